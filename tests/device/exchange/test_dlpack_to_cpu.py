"""DLPack tensors of the device for the CPU: over the device's memory where the host reaches it, else copies."""

import numpy as np
import pytest
import torch
from device_memory import emptied
from dtypes import dtypes
from host_layouts import LAYOUTS, run_delayed
from torch.utils.dlpack import DLDeviceType, from_dlpack

from backplane_tools.conformance.checks import in_threads
from torch_backplane import _backend

CPU = (DLDeviceType.kDLCPU, 0)
DTYPES = dtypes("float16 float64 int8 int64 uint16 uint64 bool complex64 complex128")
READ_LAYOUTS = {
    **LAYOUTS,
    "expanded": lambda base: base[1].expand(3, 6),
    "overlapping": lambda base: base.as_strided((3, 3), (2, 1), 5),
}


@pytest.fixture
def is_zero_copy(device):
    return "zero_copy" in _backend.C.driver.capabilities()


def address(array):
    return array.__array_interface__["data"][0]


READ_ONLY = getattr(torch.utils.dlpack, "ReadOnlyTensorWrapper", None)


@pytest.mark.skipif(READ_ONLY is None, reason="torch exports read-only tensors from 2.14 on")
def test_E53_a_tensor_to_read(device, is_zero_copy):
    x = torch.arange(4.0).to(device)
    array = np.from_dlpack(READ_ONLY(x), device="cpu")
    assert not array.flags.writeable
    assert array.tolist() == [0, 1, 2, 3]
    assert (address(array) == x.data_ptr()) == is_zero_copy
    assert np.from_dlpack(x, device="cpu").flags.writeable
    assert not np.from_dlpack(READ_ONLY(torch.arange(4.0))).flags.writeable  # the CPU's are torch's own
    with pytest.raises(RuntimeError, match="only supports DLPack export"):
        READ_ONLY(x) + 1
    with pytest.raises(BufferError, match="versioned DLPack protocol"):
        x.__dlpack__(read_only=True)


@pytest.mark.parametrize(
    ("layout", "dtype"),
    [*((layout, torch.float32) for layout in READ_LAYOUTS), *(("every second", dtype) for dtype in DTYPES)],
    ids=str,
)
def test_E53_numpy_gets_values_and_strides(device, is_zero_copy, dtype, layout):
    x = READ_LAYOUTS[layout](torch.arange(24.0).view(4, 6).to(dtype).to(device))
    expected = READ_LAYOUTS[layout](torch.arange(24.0).view(4, 6).to(dtype)).numpy()
    array = np.from_dlpack(x, device="cpu")
    assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
    assert np.array_equal(array, expected)
    if is_zero_copy and x.numel() > 0:
        assert address(array) == x.data_ptr()
        assert array.strides == expected.strides
        assert address(np.from_dlpack(x, device="cpu", copy=False)) == x.data_ptr()


@pytest.mark.requires("zero_copy")
def test_E53_both_sides_write(device):
    x = torch.zeros(2, 3, device=device)
    array = np.from_dlpack(x.t(), device="cpu")
    assert array.flags.writeable
    array[2, 1] = 5
    assert x.tolist() == [[0, 0, 0], [0, 0, 5]]
    x.fill_(2)
    torch.accelerator.synchronize()
    assert array.tolist() == [[2, 2]] * 3


def test_E53_a_copy_shares_no_memory(device):
    x = torch.zeros(3, device=device)
    array = np.from_dlpack(x, device="cpu", copy=True)
    array[0] = 1
    x.add_(2)
    assert (array.tolist(), x.tolist()) == ([1, 0, 0], [2] * 3)


@pytest.mark.requires("zero_copy")
def test_E46_E53_the_array_keeps_the_memory(device, device_module):
    before = emptied(device_module).memory_allocated()
    x = torch.arange(256.0, device=device)
    pointer = x.data_ptr()
    array = np.from_dlpack(x[3:], device="cpu")
    del x
    assert device_module.memory_allocated() == before + 1024
    assert pointer not in [torch.zeros(256, device=device).data_ptr() for _ in range(4)]
    assert array.tolist() == list(range(3, 256))
    part = array[5:7]
    del array
    assert device_module.memory_allocated() == before + 1024
    del part
    assert device_module.memory_allocated() == before


@pytest.mark.requires("zero_copy")
def test_E53_any_thread_may_free_the_array(device, device_module):
    before = device_module.memory_allocated()
    arrays = [np.from_dlpack(torch.zeros(256, device=device), device="cpu") for _ in range(20)]
    assert device_module.memory_allocated() == before + 20 * 1024
    in_threads(lambda _: arrays.clear())
    assert device_module.memory_allocated() == before


@pytest.mark.requires("zero_copy")
def test_E53_an_unused_capsule_frees_its_memory(device, device_module):
    before = device_module.memory_allocated()
    for version in (None, (1, 0)):
        capsule = torch.ones(256, device=device).__dlpack__(dl_device=CPU, max_version=version)
        assert device_module.memory_allocated() == before + 1024
        del capsule
        assert device_module.memory_allocated() == before


@pytest.mark.requires("zero_copy")
def test_E53_the_storage_is_not_resized_below_an_array(device):
    x = torch.arange(4.0, device=device)
    array = np.from_dlpack(x, device="cpu")
    with pytest.raises(RuntimeError, match="not resizable"):
        x.resize_(4096)
    assert array.tolist() == [0, 1, 2, 3]
    del array
    assert x.resize_(4096)[:4].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_E53_torch_takes_the_capsule_on_the_cpu(device, is_zero_copy, version):
    x = torch.arange(6.0, device=device).to(torch.bfloat16).view(2, 3).t()
    y = from_dlpack(x.__dlpack__(dl_device=CPU, max_version=version))
    assert (y.device.type, y.dtype, y.stride() == x.stride()) == ("cpu", torch.bfloat16, True)
    assert torch.equal(y, torch.arange(6.0).to(torch.bfloat16).view(2, 3).t())
    assert (y.data_ptr() == x.data_ptr()) is is_zero_copy
    assert torch.equal(torch.from_dlpack(x, device="cpu"), y)


def test_E53_dtypes_that_numpy_does_not_have_are_refused_with_what_to_write(device):
    bfloat, eighth = torch.ones(3, device=device).bfloat16(), torch.ones(3, device=device).to(torch.float8_e4m3fn)
    complex_halves = torch.empty(3, dtype=torch.complex32, device=device)
    instead = {r"x\.view\(torch\.uint16\)": bfloat, r"x\.view\(torch\.uint8\)": eighth}
    for text, x in {**instead, r"torch\.view_as_real\(x\)": complex_halves}.items():
        with pytest.raises((BufferError, RuntimeError), match=f"Unsupported dtype.*{text}"):
            np.from_dlpack(x, device="cpu")
    bits = np.from_dlpack(bfloat.view(torch.uint16), device="cpu")
    assert bits.tolist() == torch.ones(3).bfloat16().view(torch.uint16).tolist()
    assert np.from_dlpack(eighth.view(torch.uint8), device="cpu").tolist() == [56] * 3


def test_E53_other_errors_are_not_changed(device):
    """Only a consumer's error about a dtype or a device is extended."""

    def dropped(error):
        capsule = torch.ones(3, device=device).bfloat16().__dlpack__(dl_device=CPU)
        try:
            raise error
        finally:
            del capsule

    for error in (KeyError("Unsupported dtype"), RuntimeError("no memory"), BufferError("too many dimensions")):
        with pytest.raises(type(error)) as caught:
            dropped(error)
        assert caught.value is error


def test_E53_what_torch_does_not_export_is_refused(device):
    x = torch.ones(3, device=device, requires_grad=True)
    complex_ = torch.ones(3, dtype=torch.complex64, device=device).conj()
    for copy in (None, True):
        with torch.no_grad(), pytest.raises(BufferError, match="require gradient"):
            np.from_dlpack(x, device="cpu", copy=copy)
        with pytest.raises(BufferError, match="conjugate bit"):
            np.from_dlpack(complex_, device="cpu", copy=copy)
        with pytest.raises(BufferError, match="negative bit"):
            np.from_dlpack(complex_.imag, device="cpu", copy=copy)
        with pytest.raises(BufferError, match="layout"):
            np.from_dlpack(_Sparse(x.detach().to_sparse()), device="cpu", copy=copy)
    with pytest.raises(TypeError, match="stream must be an int or None, got str"):
        x.detach().__dlpack__(dl_device=CPU, stream="1")
    assert np.from_dlpack(x.detach(), device="cpu").tolist() == [1] * 3


class _Sparse:
    """numpy first asks an object for its device."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack_device__(self):
        return CPU

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**options)


def test_E53_a_lazy_clone_gets_its_own_memory(device):
    original = torch.ones(4, device=device)
    clone = torch._lazy_clone(original)
    np.from_dlpack(clone, device="cpu")[:] = 5
    assert original.tolist() == [1] * 4


@pytest.mark.requires("multi_device")
def test_E53_a_tensor_of_another_device_than_the_current_one(name, device_module):
    x = torch.arange(8.0, device=f"{name}:1")
    assert np.from_dlpack(x, device="cpu").tolist() == list(range(8))
    assert device_module.current_device() == 0


@pytest.mark.once
@pytest.mark.parametrize(
    ("options", "shim_name"),
    [("kind=discrete", None), ("kind=unified,stream=inline,hide_groups.groups=bp.host_view", "hide_groups")],
)
def test_E46_E53_without_a_host_view_a_copy_must_be_allowed(printed, options, shim_name):
    code = """
        import numpy as np
        from torch_backplane import _backend
        x = torch.arange(3.0, device=d)
        try:
            np.from_dlpack(x, device="cpu", copy=False)
        except BufferError as error:
            assert f"Leave copy= out for a copy, or write `with torch.{d}.host_view(x) as host:`" in str(error), error
        try:
            _backend.C.memory.host_view(x)
        except NotImplementedError as error:
            print("copy with .cpu()" in str(error))
        copy = np.from_dlpack(x, device="cpu")
        x.fill_(5)
        print(copy.tolist())
    """
    assert printed(code, options, shim_name=shim_name).splitlines() == ["True", "[0.0, 1.0, 2.0]"]


DELAYED = """
import numpy as np
for current in (m.default_stream(), m.Stream()):
    for copy in (None, True):
        with m.stream(current):
            x = torch.zeros(1 << 16, device=d)
            gates.delay(current, 30000)
            x.fill_(7)
            array = np.from_dlpack(x, device="cpu", copy=copy)
            print(array.min(), array.max(), current.query())
"""


@pytest.mark.long_after_first
@pytest.mark.once
def test_E53_what_is_queued_is_waited_for(printed, memory_kind, shim):
    assert run_delayed(printed, shim, memory_kind, DELAYED) == ["7.0 7.0 True"] * 4
