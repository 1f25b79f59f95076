"""DLPack in both directions, and the errors of libraries on the CPU."""

import numpy as np
import pytest
import torch
from dtypes import COMMON
from torch.utils.dlpack import DLDeviceType, from_dlpack, to_dlpack


def test_a_tensor_reports_its_device(device, device_module):
    for index in range(min(device_module.device_count(), 2)):
        x = torch.ones(3, device=f"{device.type}:{index}")
        assert x.__dlpack_device__() == (DLDeviceType.kDLExtDev, index)
        assert torch.from_dlpack(x).device == x.device
    assert torch.ones(3).__dlpack_device__() == (DLDeviceType.kDLCPU, 0)


def test_pinned_memory_is_memory_of_the_cpu(device):
    x = torch.arange(3.0).pin_memory()
    assert x.__dlpack_device__()[0] == DLDeviceType.kDLCPU
    assert np.from_dlpack(x).tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", COMMON, ids=str)
def test_from_dlpack_shares_the_memory(device, dtype):
    x = torch.tensor([[0, 1, 2], [1, 0, 1]], device=device).to(dtype).t()
    y = torch.from_dlpack(x)
    assert (y.device, y.dtype, y.stride(), y.data_ptr()) == (x.device, x.dtype, x.stride(), x.data_ptr())
    x.fill_(1)
    assert torch.equal(y.cpu(), torch.ones(3, 2, dtype=dtype))


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_capsules_of_both_kinds(device, version):
    x = torch.arange(4.0, device=device)[1:]
    capsule = x.__dlpack__(max_version=version)
    assert "dltensor_versioned" in repr(capsule) if version else "dltensor" in repr(capsule)
    y = from_dlpack(capsule)
    assert (y.device, y.data_ptr()) == (x.device, x.data_ptr())
    for capsule in (to_dlpack(x), *(x.__dlpack__(stream=stream) for stream in (None, 0, -1))):
        assert from_dlpack(capsule).tolist() == [1, 2, 3]


def test_copies_and_across_devices(device):
    x = torch.arange(4.0, device=device)
    y = torch.from_dlpack(x, copy=True)
    assert (y.device, y.data_ptr() != x.data_ptr(), y.tolist()) == (x.device, True, [0, 1, 2, 3])
    assert torch.from_dlpack(x, device="cpu").tolist() == [0, 1, 2, 3]
    assert torch.from_dlpack(torch.arange(4.0), device=torch.device(device.type, 0)).device == x.device
    assert torch.from_dlpack(x.__dlpack__(dl_device=(DLDeviceType.kDLCPU, 0), copy=True)).device.type == "cpu"
    with pytest.raises(ValueError, match="without copying"):
        torch.from_dlpack(x, device="cpu", copy=False)


def test_what_a_capsule_cannot_represent_is_refused(device):
    conj = torch.ones(3, dtype=torch.complex64, device=device).conj()
    with_gradient = torch.ones(3, device=device, requires_grad=True)
    for x, text in ((with_gradient, "require gradient"), (conj, "conjugate bit"), (conj.imag, "negative bit")):
        with pytest.raises(BufferError, match=text):
            x.__dlpack__()
    with pytest.raises(TypeError, match="stream must be an int or None, got str"):
        torch.ones(3, device=device).__dlpack__(stream="1")


@pytest.mark.requires("streams")
def test_a_consumer_stream_waits_for_the_producer(device, device_module):
    """On a stream other than the current one, the values that are being written are read complete."""
    consumer = device_module.Stream()
    x = torch.zeros(1 << 20, device=device)
    for step in range(1, 6):
        x.add_(1)
        capsule = x.__dlpack__(stream=consumer.native_handle)
        with consumer:
            seen = torch.from_dlpack(capsule).clone()
        consumer.synchronize()
        assert seen.min().item() == seen.max().item() == step
        torch.accelerator.current_stream().wait_stream(consumer)


def test_E53_numpy_is_refused_with_what_to_write(device):
    x = torch.ones(3, device=device)
    with pytest.raises(TypeError, match=r"Tensor\.cpu\(\)"):
        np.asarray(x)
    with pytest.raises((BufferError, RuntimeError), match=r"Unsupported device.*from_dlpack\(x, device=\"cpu\"\)"):
        np.from_dlpack(x)


def test_subclasses_receive_the_call(device):
    calls = []

    class Logged(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            calls.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    x = torch.ones(3, device=device).as_subclass(Logged)
    assert x.__dlpack_device__()[0] == DLDeviceType.kDLExtDev
    assert torch.from_dlpack(x).tolist() == [1, 1, 1]
    assert torch.Tensor.__dlpack__ in calls


def test_installing_twice_wraps_once(device):
    from torch_backplane.compat import dlpack

    before = torch.Tensor.__dlpack__, torch.Tensor.__dlpack_device__
    dlpack.install(device.type)
    assert before == (torch.Tensor.__dlpack__, torch.Tensor.__dlpack_device__)
