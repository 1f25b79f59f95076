"""Portable kernels on the drivers for PoCL and lavapipe: operators, a step of training, threads, against the CPU."""

import os
import re
import subprocess
import sys

import pytest
from checker import Built

import backplane_sdk

pytestmark = [pytest.mark.long, pytest.mark.system]


@pytest.fixture(scope="module")
def sdk_driver(tmp_path_factory):
    return Built(tmp_path_factory.mktemp("drivers")).sdk_driver


KINDS = {
    "opencl": ["memory=fine", "memory=buffers", "memory=coarse,items=32"],
    "vulkan": ["device_type=cpu,memory=unified", "device_type=cpu,memory=staged,items=32"],
}
if "OPENCL_INTEL" in os.environ:  # make test-opencl-intel
    KINDS = {"opencl": ["language=c", "language=spirv", "language=spirv,items=32"]}


@pytest.fixture(params=[f"{driver} {options}" for driver, kinds in KINDS.items() for options in kinds])
def run_on_two(request, run_in_process, device, sdk_driver, tmp_path):
    """Run code on two parts of a device; an operator without a kernel that compiles is an error."""
    prefix = device.type.upper()
    driver, options = request.param.split()
    env = {f"{prefix}_DRIVER": str(sdk_driver(driver)), f"{prefix}_CACHE_DIR": str(tmp_path / "cache")}

    def run(code):
        return run_in_process(code, options=f"sub_devices=2,{options}", env=env).stdout

    return run


def test_operators(run_on_two, device):
    code = f"""
        import torch
        import torch.nn.functional as F
        from torch_backplane import compiler, driver, fallback

        torch.manual_seed(0)
        x, y = torch.randn(5, 33, 47), torch.randn(5, 33, 47)
        image, weight = torch.randn(2, 3, 12, 11), torch.randn(4, 3, 3, 3)
        calls = [
            lambda: (x + 2 * y, x[:, 1::3, 5:].double().tanh(), x.bfloat16() * y.bfloat16()),
            lambda: (torch.where(x > y, F.gelu(x), y.exp()), (100 * x).to(torch.int64) ^ 7),
            lambda: (x.sum(1), x.mean(-1), x.amax(0), x.cumsum(2), x.argmax(1)),
            lambda: (F.softmax(x, 2), F.layer_norm(x, (47,))),
            lambda: (x @ y.mT, torch.bmm(x, y.mT), F.linear(x, y[0])),
            lambda: (F.conv2d(image, weight, padding=1), F.max_pool2d(image, 2)),
            lambda: (F.interpolate(image, size=7, mode="bilinear"), F.interpolate(image, size=5)),
            lambda: (x.sort(2)[0], x.topk(4)[0], x[torch.tensor([3, 1, 1])], x.gather(1, x.argsort(1))),
            lambda: (torch.cat([x, y]), x.flip(1), x.roll(3, 2), x[:, None, ::2].expand(5, 4, 17, 47).contiguous()),
        ]

        def same(found, expected):
            for ours, theirs in zip(found, expected):
                for one, other in zip(ours, theirs):
                    loose = dict(rtol=1e-3, atol=1e-4) if one.dtype == torch.float32 else {{}}
                    torch.testing.assert_close(one.cpu(), other, **loose)

        expected = [call() for call in calls]
        for index in (0, 1):
            with torch.device("{device.type}", index), fallback.budget(calls=0):
                x, y, image, weight = (one.to(torch.device("{device.type}", index)) for one in (x, y, image, weight))
                found = [call() for call in calls]
            same(found, expected)
        counts = compiler.counts()
        print(torch.accelerator.device_count(), counts.compiled > 20, counts.failed, *driver.info().shims)
    """
    assert run_on_two(code).split() == ["2", "True", "0"]


def test_torch_compile(run_on_two, device):
    code = f"""
        import torch
        import torch.nn.functional as F
        from torch_backplane import fallback

        torch.manual_seed(0)
        x, places = torch.randn(70, 131), torch.tensor([3, -1, 5])
        functions = [
            lambda x: (x.sum(1), x.sum(0), x.softmax(1), x.softmax(0), x.argmax(1), x.var(0)),
            lambda x: (F.layer_norm(x, (131,)), F.gelu(x + x[0]), x[:, :70].t() + x[:, :70], x.sum()),
            lambda x: (x[places.to(x.device)], F.pad(torch.cat([x, x * 2], 1), (1, 2)), (x.half() * 2).softmax(1)),
            lambda x: (x.cumsum(1), x.cumsum(0), x.logcumsumexp(1), *x.cummax(1), *x.cummin(0), x.half().cumsum(1)),
            lambda x: (torch.zeros(70, device=x.device).index_add(0, places.to(x.device) % 70, x[:3, 0]),),
        ]
        for function in functions:
            for one, other in zip(torch.compile(function)(x.to("{device.type}")), function(x)):
                loose = 1e-2 if one.dtype == torch.float16 else 1e-4
                torch.testing.assert_close(one.cpu(), other, rtol=loose, atol=loose)
        print("same")
    """
    assert run_on_two(code).strip() == "same"


def test_eight_threads_on_two_devices(run_on_two, device):
    code = f"""
        import threading

        import torch

        wrong = []

        def work(i):
            where = torch.device("{device.type}", i % 2)
            numbers = torch.Generator().manual_seed(i)
            with torch.Stream(where):
                for _ in range(20):
                    x, y = torch.randn(64, 64 + i, generator=numbers), torch.randn(64 + i, 32, generator=numbers)
                    found = (x.to(where) @ y.to(where)).relu().sum(1).cpu()
                    if not torch.allclose(found, (x @ y).relu().sum(1), rtol=1e-3, atol=1e-3):
                        wrong.append(i)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        torch.accelerator.synchronize()
        print(wrong)
    """
    assert run_on_two(code).strip() == "[]"


def test_a_step_of_training(run_on_two, device):
    code = f"""
        import torch
        from torch import nn

        def losses(where):
            torch.manual_seed(0)
            model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))
            x, target = torch.randn(16, 1, 8, 8), torch.randint(10, (16,))
            model.to(where)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
            found = []
            for _ in range(4):
                loss = nn.functional.cross_entropy(model(x.to(where)), target.to(where))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                found.append(loss.item())
            return found

        torch.testing.assert_close(losses("{device.type}:1"), losses("cpu"), rtol=1e-4, atol=1e-5)
        print("trained")
    """
    assert run_on_two(code).strip() == "trained"


@pytest.fixture(params=list(KINDS))
def run_program(request, device, sdk_driver, tmp_path):
    """A program with its arguments, in a separate process on the device of a driver."""
    prefix = device.type.upper()
    changes = {"CACHE_DIR": str(tmp_path / "cache"), "KERNELS": "wait", "OPTIONS": "device_type=cpu"}
    changes["DRIVER"] = str(sdk_driver(request.param))
    env = {**os.environ, "OMP_NUM_THREADS": "1", **{f"{prefix}_{name}": value for name, value in changes.items()}}
    return lambda *words: (
        subprocess.run(
            [sys.executable, *map(str, words)],
            env=env,
            cwd=tmp_path,
            check=True,
            timeout=900,
            capture_output=True,
            text=True,
        ).stdout
    )


@pytest.mark.timeout(900)
def test_the_demo(run_program):
    """Its own checks: accuracy, losses and gradients as the CPU's, a checkpoint on both, the GPT compiled as eager."""
    assert "done in" in run_program(backplane_sdk.source_dir() / "examples/demo/demo.py", "--quick")


@pytest.mark.timeout(900)
def test_a_sample_of_device_share(run_program, device):
    found = run_program(
        *("-m", "backplane_tools", "conformance", "--suite", "device-share", "--dtype", "float32"),
        *("--shard", "7/40", "-j", "1", "--device", device.type),
    )
    assert re.search(r"(1[0-9]|[2-9][0-9]) cases hold", found), found


def test_instructions_beyond_the_dialect_are_described(request, run_on_two):
    """Lavapipe has integer dot products; the OpenCL driver reports none."""
    out = run_on_two("from torch_backplane import compiler; print(compiler.target().features)")
    assert ("integer dot products" in out) == ("vulkan" in request.node.callspec.params["run_on_two"])
