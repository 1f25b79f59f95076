"""``torch.from_dlpack`` of another library's tensors that report a device of this kind (``kDLExtDev``)."""

import ctypes
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.dlpack import DLDeviceType, from_dlpack, to_dlpack


class DLTensor(ctypes.Structure):
    """The structure of dlpack.h, which is the first member of what an unversioned capsule points to."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


def changed(tensor, version=None, **fields):
    """A tensor's capsule with some fields changed; ``shape`` and ``strides`` change the first entry."""
    capsule = tensor.detach().__dlpack__(max_version=version)  # a tensor whose sizes no other one has
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    # Before the tensor of a versioned capsule: version, context, deleter, flags.
    place = get(capsule, b"dltensor_versioned") + 32 if version else get(capsule, b"dltensor")
    inside = DLTensor.from_address(place)
    for name, value in fields.items():
        if name in ("shape", "strides"):
            getattr(inside, name)[0] = value
        else:
            setattr(inside, name, value)
    return capsule


class Foreign:
    """Another library's tensor, over one of torch's; ``asked`` has the arguments of its export."""

    def __init__(self, tensor, knows=("stream", "max_version", "dl_device", "copy"), index=None, **fields):
        self.tensor, self.knows, self.fields = tensor, knows, fields
        self.index = tensor.device.index if index is None else index
        self.asked = []

    def __dlpack_device__(self):
        return (DLDeviceType.kDLExtDev, self.index)

    def __dlpack__(self, **options):
        if unknown := set(options) - set(self.knows):
            raise TypeError(f"unexpected argument {unknown}")
        self.asked.append(options)
        return changed(self.tensor, **self.fields)


def test_E54_another_librarys_tensor_is_shared(device):
    x = torch.arange(6.0, device=device).view(2, 3)
    y = torch.from_dlpack(Foreign(x.t()))
    assert (y.device, y.data_ptr(), y.stride()) == (x.device, x.data_ptr(), (1, 3))
    y.add_(1)
    assert x.tolist() == [[1, 2, 3], [4, 5, 6]]
    copy = torch.from_dlpack(Foreign(x), copy=True, device=device)
    assert copy.device == x.device
    assert torch.from_dlpack(Foreign(x), device="cpu").tolist() == x.tolist()


def test_E54_its_memory_lives_as_long_as_the_last_tensor(device, device_module):
    before = device_module.memory_allocated()
    x = torch.arange(256.0, device=device)
    y = torch.from_dlpack(Foreign(x))
    del x
    assert device_module.memory_allocated() == before + 1024
    assert y.sum().item() == 255 * 128
    del y
    assert device_module.memory_allocated() == before


@pytest.mark.requires("streams")
def test_E54_its_export_receives_the_stream_that_will_use_it(device, device_module):
    x = torch.arange(3.0, device=device)
    foreign = Foreign(x)
    torch.from_dlpack(foreign)
    stream = device_module.Stream()
    with device_module.stream(stream):
        torch.from_dlpack(foreign)
    assert [options["stream"] for options in foreign.asked] == [0, stream.native_handle]
    assert foreign.asked[0]["max_version"] == (1, 0)


@pytest.mark.requires("streams")
@pytest.mark.parametrize("knows", [(), ("max_version",)])
def test_E54_without_a_stream_argument_its_tensor_is_ready_on_the_default_stream(device, device_module, knows):
    stream = device_module.Stream()
    x = torch.zeros(1 << 20, device=device)
    for step in range(1, 6):
        x.add_(1)
        with device_module.stream(stream):
            seen = torch.from_dlpack(Foreign(x, knows)).clone()
        stream.synchronize()
        assert seen.min().item() == seen.max().item() == step
        device_module.default_stream().wait_stream(stream)


@pytest.mark.parametrize("knows", [(), ("stream",), ("max_version",), ("stream", "max_version")])
def test_E54_its_export_receives_the_arguments_that_it_supports(device, knows):
    foreign = Foreign(torch.arange(3.0, device=device), knows)
    assert torch.from_dlpack(foreign).tolist() == [0, 1, 2]
    assert set(foreign.asked[0]) == set(knows)


HOST = np.zeros(1 << 16, dtype=np.float32)

LIES = {
    "memory of the host": ({"data": HOST.ctypes.data}, r"its driver does not know.*through the host"),
    "no memory": ({"data": 0}, "its driver does not know"),
    "an end outside": ({"shape": 1 << 40}, "its driver does not know"),
    "a stride outside": ({"strides": -(1 << 40)}, "its driver does not know"),
    "an offset outside": ({"byte_offset": 1 << 45}, "its driver does not know"),
    "no size": ({"shape": -1}, "its sizes and strides are not valid"),
    "beyond numbers": ({"shape": (1 << 63) - 1, "strides": 4}, "its sizes and strides are not valid"),
}


@pytest.mark.requires("pointer_info")
@pytest.mark.parametrize(("fields", "match"), LIES.values(), ids=LIES.keys())
def test_E54_memory_that_the_driver_does_not_know_is_refused(device, fields, match):
    x = torch.arange(4.0, device=device)
    for use in (
        lambda: from_dlpack(changed(x, None, **fields)),
        lambda: from_dlpack(changed(x, (1, 0), **fields)),
        lambda: torch.from_dlpack(Foreign(x, **fields)),
    ):
        with pytest.raises(BufferError, match=match):
            use()
    assert (x + 1).tolist() == [1, 2, 3, 4]  # the device is usable


@pytest.mark.requires("pointer_info", "multi_device")
def test_E54_memory_of_another_device_is_refused(device):
    x = torch.arange(4.0, device=device)
    with pytest.raises(BufferError, match="which belongs to device 0"):
        torch.from_dlpack(Foreign(x, index=1, device_id=1))


@pytest.mark.parametrize("index", [-1, 99])
def test_E54_a_device_that_is_not_there_is_refused(device, device_module, index):
    x = torch.arange(4.0, device=device)
    match = f"it is of device {index}, and there are {device_module.device_count()}"
    for take in (lambda: changed(x, device_id=index), lambda: Foreign(x, index=index, device_id=index)):
        with pytest.raises(BufferError, match=match):
            from_dlpack(take())


def test_E54_a_dtype_that_torch_does_not_have_is_refused(device):
    x = torch.arange(4.0, device=device)
    match = r"torch has no dtype for elements of type code \d+, \d+ bits and \d+ lanes"
    for dtype in ({"bits": 24}, {"lanes": 4}, {"code": 77}, {"code": 3}):
        with pytest.raises(BufferError, match=match):
            torch.from_dlpack(Foreign(x, **dtype))


def test_E54_a_refused_capsule_frees_its_memory(device, device_module):
    before = device_module.memory_allocated()
    capsule = changed(torch.ones(256, device=device), device_id=99)
    with pytest.raises(BufferError):
        from_dlpack(capsule)
    assert 'capsule object "dltensor"' in repr(capsule)
    del capsule
    assert device_module.memory_allocated() == before


def test_E54_a_capsule_is_taken_once(device):
    x = torch.arange(3.0, device=device)
    capsule = to_dlpack(x)
    assert from_dlpack(capsule).tolist() == [0, 1, 2]
    with pytest.raises((BufferError, RuntimeError), match="only once"):
        from_dlpack(capsule)


def test_E54_tensors_of_other_devices_are_left_to_torch(device):
    assert torch.from_dlpack(np.arange(3)).tolist() == [0, 1, 2]
    assert from_dlpack(to_dlpack(torch.arange(3))).device.type == "cpu"
    assert torch.from_dlpack(np.arange(3), device=device).device == device
    for wrong in (5, object()):
        with pytest.raises((TypeError, RuntimeError, ValueError)):
            torch.from_dlpack(wrong)
    assert torch.from_dlpack is torch.utils.dlpack.from_dlpack


def test_E54_empty_tensors_have_no_address(device):
    x = torch.empty(0, 3, device=device)
    assert torch.from_dlpack(Foreign(x)).shape == (0, 3)
    assert torch.from_dlpack(Foreign(torch.tensor(5.0, device=device))).item() == 5


@pytest.mark.once
def test_E54_the_first_use_of_the_device_may_be_an_import(printed):
    """The driver is opened for the query; it does not know the address."""
    code = f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_dlpack_from_others import changed
        assert not m.is_initialized()
        host = torch.arange(3.0)
        try:
            torch.from_dlpack(changed(host, device_type=12))
        except BufferError as error:
            print("its driver does not know" in str(error), torch.ones(2, device=d).tolist())
    """
    assert printed(code) == "True [1.0, 1.0]\n"
