"""Torch's device-generic test base on the device: a vendor's test file, as it would be written."""
# ruff: noqa: PT009 - torch's assertEqual compares tensors

import os
import subprocess
import sys

import pytest
import torch
from torch.testing import make_tensor
from torch.testing._internal.common_methods_invocations import op_db

from torch_backplane.testing.device_type import (
    TestCase,
    deviceCountAtLeast,
    dtypes,
    instantiate_device_type_tests,
    onlyNativeDeviceTypes,
    ops,
    parametrize,
)


class TestExample(TestCase):
    @dtypes(torch.float32, torch.int64)
    def test_sort(self, device, dtype):
        x = make_tensor((20,), device=device, dtype=dtype)
        self.assertEqual(x.device, torch.device(device))
        self.assertEqual(x.sort().values.cpu(), x.cpu().sort().values)

    @ops([op for op in op_db if op.name in ("add", "exp")], allowed_dtypes=(torch.float32,))
    def test_against_the_cpu(self, device, dtype, op):
        for sample in op.sample_inputs(device, dtype):
            host = sample.transform(lambda value: value.cpu() if isinstance(value, torch.Tensor) else value)
            found = op(sample.input, *sample.args, **sample.kwargs)
            self.assertEqual(found.device.type, torch.device(device).type)
            self.assertEqual(found.cpu(), op(host.input, *host.args, **host.kwargs))

    @parametrize("size", [0, 3])
    @onlyNativeDeviceTypes
    def test_sizes(self, device, size):
        self.assertEqual(torch.ones(size, device=device).sum().item(), size)


class TestDevices(TestCase):
    @deviceCountAtLeast(2)
    def test_two(self, devices):
        self.assertEqual(len({str(torch.ones(1, device=name).device) for name in devices}), len(devices))


instantiate_device_type_tests(TestExample, globals())
instantiate_device_type_tests(TestDevices, globals(), only_for=torch._C._get_privateuse1_backend_name())


def test_C85_a_class_for_the_device_was_made(name):
    made = globals()["TestExamplePRIVATEUSE1"]
    tests = {test for test in dir(made) if test.startswith("test_")}
    assert {f"test_sort_{name}_float32", f"test_sort_{name}_int64", f"test_against_the_cpu_exp_{name}_float32"} <= tests
    assert "TestExample" not in globals()
    assert "TestExampleCPU" not in globals()


@pytest.mark.once
def test_a_wrong_device_type_is_an_error():
    class TestOther(TestCase):
        def test_it(self, device): ...

    with pytest.raises(RuntimeError, match="no test class for nodevice"):
        instantiate_device_type_tests(TestOther, {"TestOther": TestOther}, only_for="nodevice")


@pytest.mark.long
@pytest.mark.once
def test_a_failing_test_fails(tmp_path):
    """The base on a test that is wrong: a test that could not fail would prove nothing."""
    (tmp_path / "test_wrong.py").write_text(
        "from torch_backplane.testing.device_type import TestCase, instantiate_device_type_tests\n"
        "class TestWrong(TestCase):\n"
        "    def test_it(self, device): self.assertEqual(device, 'cpu')\n"
        "instantiate_device_type_tests(TestWrong, globals())\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_wrong.py"],
        cwd=tmp_path,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed" in done.stdout, done.stdout + done.stderr
