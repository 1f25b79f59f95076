"""``torch.<device>.host_view``: device memory as a CPU tensor, in place or as a copy that is written back."""

import numpy as np
import pytest
import torch
from dtypes import dtypes
from host_layouts import LAYOUTS, run_delayed
from torch._subclasses import FakeTensorMode

from backplane_tools.conformance.checks import in_threads
from torch_backplane import _backend

DTYPES = dtypes("bfloat16 float8_e5m2 int64 uint16 bool complex64")
WRITTEN_LAYOUTS = {
    **LAYOUTS,
    "a size of 1 with stride 0": lambda base: base[0].as_strided((1, 6), (0, 1), 3),
}


@pytest.fixture
def is_in_place(device):
    return "host_view" in _backend.C.driver.capabilities()


def numbers(dtype):
    return torch.arange(24.0).view(4, 6).to(dtype)


@pytest.mark.parametrize(
    ("layout", "dtype"),
    [*((layout, torch.float32) for layout in WRITTEN_LAYOUTS), *(("every second", dtype) for dtype in DTYPES)],
    ids=str,
)
def test_E55_what_the_host_reads_and_writes_is_the_tensors(device, device_module, is_in_place, dtype, layout):
    base, expected = numbers(dtype).to(device), numbers(dtype)
    x, same = WRITTEN_LAYOUTS[layout](base), WRITTEN_LAYOUTS[layout](expected)
    with device_module.host_view(x) as host:
        assert (host.device.type, host.dtype, host.shape) == ("cpu", dtype, x.shape)
        assert torch.equal(host.float() if dtype.itemsize == 1 else host, same.float() if dtype.itemsize == 1 else same)
        if x.numel() > 0:
            assert (host.data_ptr() == x.data_ptr()) is is_in_place
        if is_in_place:
            assert host.stride() == x.stride()
        host.fill_(1)
    same.fill_(1)
    assert torch.equal(base.cpu().view(torch.uint8), expected.view(torch.uint8))


def test_E55_numpy_writes_through_it(device, device_module):
    x = torch.zeros(2, 3, device=device)
    with device_module.host_view(x.t()) as host:
        np.add(host.numpy(), np.arange(6.0).reshape(3, 2), out=host.numpy())
    assert x.tolist() == [[0, 2, 4], [1, 3, 5]]


DELAYED = """
other = m.Stream()
for current in (m.default_stream(), m.Stream()):
    with m.stream(current):
        x = torch.zeros(1 << 16, device=d)
        gates.delay(current, 30000)
        x.fill_(7)
        with m.host_view(x) as host:
            found = (host.min().item(), host.max().item())
            host.fill_(3)
            gates.delay(current, 30000)
        with m.stream(other):
            y = x + 1
        other.synchronize()
        print(found, y.min().item(), y.max().item())
"""


@pytest.mark.once
def test_E55_the_block_is_ordered_between_earlier_and_later_work(printed, memory_kind, shim):
    assert run_delayed(printed, shim, memory_kind, DELAYED) == ["(7.0, 7.0) 4.0 4.0"] * 2


def write_and_fail(view):
    with view as host:
        host[1] = 5
        raise KeyError("of the user")


def test_E55_writes_before_an_exception_are_kept(device, device_module):
    x = torch.zeros(4, device=device)
    with pytest.raises(KeyError, match="of the user"):
        write_and_fail(device_module.host_view(x))
    assert x.tolist() == [0, 5, 0, 0]


def test_E55_a_view_to_read_writes_nothing_back(device, device_module, is_in_place):
    x = torch.arange(3.0, device=device).expand(4, 3)
    with device_module.host_view(x, "r") as host:
        assert torch.equal(host, torch.arange(3.0).expand(4, 3))
    assert x._version == 0
    x = torch.zeros(3, device=device)
    with pytest.raises(RuntimeError, match='read-only: use mode="r\\+"'), device_module.host_view(x, mode="r") as host:
        host[0] = 1
    assert x.tolist() == [1 if is_in_place else 0, 0, 0]
    with pytest.raises(KeyError, match="of the user"):
        write_and_fail(device_module.host_view(x, "r"))
    assert x._version == 0


def test_E55_the_shape_of_the_cpu_tensor_may_change(device, device_module):
    x = torch.zeros(2, 3, device=device)
    with device_module.host_view(x) as host:
        host.t_()[2, 1] = 5
    assert x.tolist() == [[0, 0, 0], [0, 0, 5]]


@pytest.mark.requires("host_view")
def test_E46_E55_the_memory_stays_while_a_view_of_it_lives(device, device_module):
    device_module.empty_cache()
    before = device_module.memory_allocated()
    x = torch.arange(256.0, device=device)
    pointer = x.data_ptr()
    with device_module.host_view(x) as host:
        array = host.numpy()
    del x, host
    assert device_module.memory_allocated() == before + 1024
    assert pointer not in [torch.zeros(256, device=device).data_ptr() for _ in range(4)]
    assert array.sum() == 255 * 128
    del array
    assert device_module.memory_allocated() == before


@pytest.mark.requires("host_view")
def test_E55_the_storage_is_not_resized_below_a_view(device, device_module):
    x = torch.arange(4.0, device=device)
    kept = []
    for _ in range(2):
        with device_module.host_view(x, "r") as host:
            kept.append(host)
    del host
    for _ in range(2):
        for resize in (lambda: x.resize_(4096), lambda: x.untyped_storage().resize_(0)):
            with pytest.raises(RuntimeError, match="not resizable"):
                resize()
        assert kept.pop().tolist() == [0, 1, 2, 3]
    assert x.resize_(4096)[:4].tolist() == [0, 1, 2, 3]


@pytest.mark.requires("host_view")
def test_E55_a_storage_that_is_not_resizable_stays_so(device, device_module):
    x = torch.from_dlpack(torch.arange(4.0, device=device))
    with device_module.host_view(x) as host:
        host.add_(1)
    del host
    assert not x.untyped_storage().resizable()
    assert x.tolist() == [1, 2, 3, 4]


def test_E55_autograd_detects_a_change(device, device_module):
    x = torch.ones(3, device=device, requires_grad=True)
    for mode in ("r", "r+"):
        with (
            pytest.raises(RuntimeError, match=r"tensor\.detach\(\), or run the block under torch\.no_grad\(\)"),
            device_module.host_view(x, mode),
        ):
            pass
    loss = (x * x).sum()
    with torch.no_grad(), device_module.host_view(x, "r") as host:
        assert not host.requires_grad
    loss.backward(retain_graph=True)
    with torch.no_grad(), device_module.host_view(x) as host:
        host.fill_(5)
    assert (x._version, x.is_leaf, x.requires_grad) == (1, True, True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with device_module.host_view(x.detach()) as host:
        host.fill_(6)
    assert x._version == 2
    assert x.tolist() == [6] * 3


def test_E55_inference_tensors(device, device_module):
    ordinary = torch.ones(3, device=device)
    with torch.inference_mode():
        x = torch.ones(3, device=device)
        for tensor in (x, ordinary):
            with device_module.host_view(tensor) as host:
                host.add_(1)
    assert (x.tolist(), ordinary.tolist()) == ([2] * 3, [2] * 3)
    assert ordinary._version == 1
    with device_module.host_view(x, "r") as host:
        assert host.tolist() == [2] * 3


@pytest.mark.parametrize(
    ("sizes", "strides"), [((4, 3), (0, 1)), ((3, 3), (1, 1)), ((2, 2, 2), (3, 2, 1)), ((5,), (0,)), ((2, 4), (3, 1))]
)
def test_E55_a_write_to_elements_that_share_memory_is_refused(device, device_module, sizes, strides):
    x = torch.zeros(16, device=device).as_strided(sizes, strides)
    with pytest.raises(RuntimeError, match="elements of the tensor share memory"), device_module.host_view(x):
        pass
    with device_module.host_view(x, "r") as host:
        assert torch.equal(host, torch.zeros(sizes))


def freed(x):
    x.untyped_storage().resize_(0)
    return x


def of_inference(x):
    with torch.inference_mode():
        return x.clone()


def fake(x):
    with FakeTensorMode():
        return torch.empty(3, device=x.device)


REFUSALS = {
    "another device": (lambda x: x.cpu(), ValueError, "expected a tensor of"),
    "no tensor": (lambda x: 5, TypeError, "cannot be of type int"),
    "sparse": (lambda x: x.to_sparse(), NotImplementedError, "not dense"),
    "quantized": (lambda x: torch.quantize_per_tensor(x, 1.0, 0, torch.qint8), NotImplementedError, "not dense"),
    "conjugate": (lambda x: x.to(torch.complex64).conj(), RuntimeError, r"\.resolve_conj\(\)"),
    "negative": (torch._neg_view, RuntimeError, r"\.resolve_neg\(\)"),
    "freed": (freed, RuntimeError, "not allocated|out of bounds"),
    "inference": (of_inference, RuntimeError, r"inference tensor.*torch\.inference_mode\(\), or a clone"),
    "fake": (fake, NotImplementedError, "no memory of its own"),
}


@pytest.mark.parametrize(("make", "error", "match"), REFUSALS.values(), ids=REFUSALS.keys())
def test_E55_what_has_no_view_is_refused(device, device_module, make, error, match):
    with pytest.raises(error, match=match):
        device_module.host_view(make(torch.ones(2, 3, device=device))).__enter__()
    assert torch.ones(2, device=device).tolist() == [1, 1]


def test_E55_a_wrong_mode_and_a_tensor_of_vmap_are_refused(device, device_module):
    x = torch.ones(2, 3, device=device)
    with pytest.raises(ValueError, match='mode must be "r" or "r\\+", got \'w\''):
        device_module.host_view(x, "w").__enter__()
    with pytest.raises(NotImplementedError, match="no memory of its own"):
        torch.vmap(lambda row: (device_module.host_view(row, "r").__enter__(), row)[1])(x)


def test_E55_a_lazy_clone_gets_its_own_memory(device, device_module):
    original = torch.ones(4, device=device)
    clone = torch._lazy_clone(original)
    with device_module.host_view(clone) as host:
        host.fill_(5)
    assert original.tolist() == [1] * 4
    assert clone.tolist() == [5] * 4


@pytest.mark.requires("multi_device")
def test_E55_a_tensor_of_another_device_than_the_current_one(name, device_module):
    x = torch.zeros(8, device=f"{name}:1")
    with device_module.host_view(x) as host:
        host.copy_(torch.arange(8.0))
    assert device_module.current_device() == 0
    assert x.tolist() == list(range(8))


def test_E55_threads_have_views_at_once(device, device_module):
    tensors = [torch.zeros(1 << 12, device=device) for _ in range(4)]
    device_module.synchronize()  # they are used on other streams

    def count(x):
        with device_module.stream(device_module.Stream()):
            for _ in range(10):
                with device_module.host_view(x) as host:
                    host.add_(1)
                x.add_(1)
            torch.accelerator.current_stream().synchronize()

    in_threads(lambda i: count(tensors[i]), 4)
    assert [(x.min().item(), x.max().item()) for x in tensors] == [(20, 20)] * 4


COUNTED = """
import gc
import numpy as np
count = lambda: tuple(ctypes.c_int64.in_dll(driver, name).value for name in ("mapped", "unmapped"))
x = torch.arange(6.0, device=d)
with m.host_view(x) as host:
    host.add_(1)
    in_place = host.data_ptr() == x.data_ptr()
del host
a = np.from_dlpack(x, device="cpu")
try:
    b = np.from_dlpack(x, device="cpu", copy=False)
except BufferError as error:
    b = None
    assert "copy=False" in str(error)
a[0] = 50
shared = x[0].item() == 50
mapped, unmapped = count()
del a, b
gc.collect()
print(in_place, shared, mapped, unmapped, *count(), x.tolist()[1:])
"""


@pytest.mark.long_after_first
@pytest.mark.once
@pytest.mark.parametrize(
    ("flags", "found"),
    [
        (0b111, "True True 3 1 3 3"),  # all: numpy shares the memory, too
        (0b010, "True False 2 1 2 2"),  # coherent: slow to read, so only copy=False shares it
        (0b101, "False False 0 0 0 0"),  # not coherent: copies
    ],
)
def test_E55_the_flags_of_a_driver_decide(printed, flags, found):
    out = printed(COUNTED, f"kind=unified,view_flags.flags={flags}", shim_name="view_flags")
    assert out.strip() == f"{found} {[2.0, 3.0, 4.0, 5.0, 6.0]}"


@pytest.mark.long_after_first
@pytest.mark.once
@pytest.mark.parametrize("stream_kind", ["inline", "async"])
def test_E55_a_driver_without_the_group_copies(printed, stream_kind):
    code = """
        x = torch.arange(6.0, device=d).view(2, 3).t()
        with m.host_view(x) as host:
            assert host.data_ptr() != x.data_ptr() and host.stride() == (1, 3)
            host.mul_(2)
            inner = x.tolist()
        host.fill_(9)  # after the block: not copied back
        print(inner, x.tolist())
    """
    out = printed(code, f"kind=unified,stream={stream_kind},hide_groups.groups=bp.host_view", shim_name="hide_groups")
    assert out.strip() == "[[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]] [[0.0, 6.0], [2.0, 8.0], [4.0, 10.0]]"


@pytest.mark.long_after_first
@pytest.mark.once
def test_E55_a_forked_child_drops_a_view_and_makes_none(printed, memory_kind):
    code = """
        import os
        x = torch.arange(3.0, device=d)
        with m.host_view(x, "r") as host:
            pass
        pid = os.fork()
        if pid == 0:
            del host
            try:
                with m.host_view(x):
                    os._exit(1)
            except RuntimeError as error:
                os._exit(0 if "forked subprocess" in str(error) else 2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        print(host.tolist(), x.tolist())
    """
    assert printed(code, f"kind={memory_kind}").strip() == "[0.0, 1.0, 2.0] [0.0, 1.0, 2.0]"
