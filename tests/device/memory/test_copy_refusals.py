"""A copy or a fill raises in the call, as on the CPU, and the device stays usable."""

import itertools
import random

import pytest
import torch


def outcome(call, *tensors):
    """What a call that writes into its first tensor does: the tensor's content, or the error."""
    try:
        call(*tensors)
    except (RuntimeError, NotImplementedError) as error:
        return type(error).__name__, str(error)
    return tensors[0].tolist()


@pytest.fixture
def same_as_cpu(device, device_module):
    """``same_as_cpu(call, *tensors)``: the same contents or the same error; the device computes afterwards."""

    def check(call, *tensors):
        expected = outcome(call, *[t.clone() for t in tensors])
        found = outcome(call, *[t.to(device) for t in tensors])
        device_module.synchronize()
        assert found == expected
        assert (torch.ones(2, device=device) + 1).tolist() == [2, 2]
        return expected

    return check


def negative(z):
    return z.conj().imag


CASTS = {
    "negative to bool": (lambda x, z: x.copy_(negative(z)), torch.bool, torch.complex64),
    "negative to bool, strided": (lambda x, z: x[::2].copy_(negative(z)[::2]), torch.bool, torch.complex64),
    "bits to float": (lambda x, y: x.copy_(y.view(torch.bits8)), torch.float32, torch.uint8),
    "float to bits": (lambda x, y: x.view(torch.bits8).copy_(y), torch.uint8, torch.float32),
}


@pytest.mark.parametrize("case", CASTS.values(), ids=CASTS.keys())
@pytest.mark.parametrize("non_blocking", [False, True])
def test_E12_a_cast_that_torch_does_not_know_raises_in_the_call(same_as_cpu, case, non_blocking, device):
    call, target, source = case
    x, y = torch.zeros(4, dtype=target), torch.ones(4, dtype=source)
    expected = same_as_cpu(call, x, y)
    assert expected[0] == "NotImplementedError"
    for host in (y, y.pin_memory()):  # and from the host
        with pytest.raises(NotImplementedError):
            call(x.to(device), host)
    with pytest.raises(NotImplementedError):
        call(x.clone(), y.to(device))


def test_a_strided_copy_moves_any_dtype(device):
    """It needs no conversion; torch has none for these dtypes, on the CPU neither."""
    x = torch.arange(60 * 60, dtype=torch.int64).to(torch.uint8).view(60, 60)
    for dtype in (torch.bits8, torch.float8_e8m0fnu, torch.float4_e2m1fn_x2):
        assert torch.equal(x.to(device).view(dtype).t().contiguous().view(torch.uint8).cpu(), x.t())


@pytest.mark.parametrize("value", [300, -1, 1 << 40, 2.5, 1 + 2j, float("nan")])
@pytest.mark.parametrize("layout", ["dense", "strided", "expanded"])
def test_a_value_that_does_not_fit_raises_in_the_call(same_as_cpu, value, layout):
    views = {"dense": lambda x: x, "strided": lambda x: x[:, ::2], "expanded": lambda x: x[:, :1].expand(3, 5)}
    same_as_cpu(lambda x: views[layout](x).fill_(value), torch.zeros(3, 4, dtype=torch.uint8))


FILLS = {
    "fill_": lambda x: x.fill_(2),
    "zero_": lambda x: x.zero_(),
    "fill_ of a tensor": lambda x: x.fill_(torch.tensor(3.0, device=x.device)),
    "slice": lambda x: x.__setitem__(slice(None), 4),
    "masked_fill_": lambda x: x.masked_fill_(x != 0, 5.0),
    "mask": lambda x: x.__setitem__(x != 0, 6.0),
    "index_put_": lambda x: x.index_put_(
        (torch.tensor([0], device=x.device),), torch.tensor(7, dtype=x.dtype, device=x.device)
    ),
    "index_fill_": lambda x: x.index_fill_(0, torch.tensor([0], device=x.device), 8.0),
    "add_": lambda x: x.add_(1),
    "copy_": lambda x: x.copy_(torch.ones_like(x)),
    "itself": lambda x: x.copy_(x.view_as(x)),
}
SHARED = {
    "one place": lambda base: base[:1].expand(3),
    "rows": lambda base: base[:3].expand(4, 3),
    "columns": lambda base: base[:4:2, None].expand(2, 3),
    "windows": lambda base: base[:6].unfold(0, 3, 1),
}


@pytest.mark.parametrize("shared", SHARED.values(), ids=SHARED.keys())
@pytest.mark.parametrize("write", FILLS.values(), ids=FILLS.keys())
@pytest.mark.filterwarnings("ignore:Use of")
def test_E12_elements_that_share_memory_are_written_as_on_the_cpu(same_as_cpu, shared, write):
    same_as_cpu(lambda base: write(shared(base)), torch.arange(1.0, 9))
    if shared is SHARED["one place"]:
        same_as_cpu(lambda base: write(shared(base)), torch.arange(1, 9).to(torch.complex128))


def views(base, seed):
    """Views of one-dimensional memory of 12 elements, drawn from a seed: whole, parts, matrices, expanded ones."""
    choose = random.Random(seed)
    view = base
    if choose.random() < 0.8:
        begin = choose.randrange(0, 10)
        view = base[begin : begin + choose.randrange(1, 13 - begin)]
    if choose.random() < 0.3:
        view = view[:: choose.choice([2, 3])]
    if view.numel() % 2 == 0 and choose.random() < 0.5:
        view = view.view(-1, 2) if view.is_contiguous() and choose.random() < 0.6 else view.unflatten(0, (2, -1))
    if choose.random() < 0.2:
        view = view.expand(choose.choice([2, 3]), *view.shape)
    return view.t() if view.dim() == 2 and choose.random() < 0.3 else view


def copied(base, seed, apart=False):
    """What a copy between two views gives; ``apart``: from another tensor of the same content."""
    target, source = views(base, seed), views(base.clone() if apart else base, seed + 1000)
    try:
        target.copy_(source)
    except RuntimeError as error:
        return str(error)
    return base.tolist()


def test_E12_overlap_is_judged_as_on_the_cpu(device):
    """The same pairs of views of one tensor are refused, and the others give the same values."""
    refused = 0
    for seed in range(150):
        expected = copied(torch.arange(12.0), seed)
        found = copied(torch.arange(12.0, device=device), seed)
        if isinstance(expected, str):
            refused += 1
            assert found == expected, seed
        else:  # overlap that torch does not detect: the values are undefined
            assert found == expected or copied(torch.arange(12.0), seed, apart=True) != expected, seed
            assert not isinstance(found, str), seed
    assert 20 < refused < 145


def test_E12_a_broadcast_source_inside_its_target_is_refused(device):
    for m in (torch.arange(6.0), torch.arange(6.0, device=device)):
        with pytest.raises(RuntimeError, match="single memory location"):
            m[0:6].view(3, 2).copy_(m[1:3])
        assert m.tolist() == [0, 1, 2, 3, 4, 5]


def test_shapes_that_do_not_broadcast_are_refused_for_no_elements_too(same_as_cpu):
    for source, target in itertools.product([(0,), (3,), (2, 0)], [(0,), (0, 3)]):
        same_as_cpu(lambda x, y: x.copy_(y), torch.zeros(target), torch.zeros(source))


def test_a_cast_that_discards_warns_in_the_call(printed):
    """Once in a process, or always, as torch is set."""
    code = """
        import warnings
        z = torch.ones(3, dtype=torch.complex64, device=d)
        for always in (False, False, True, True):
            torch.set_warn_always(always)
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                torch.zeros(3, device=d).copy_(z)
            print(len([w for w in seen if "discards" in str(w.message)]))
    """
    assert printed(code).split() == ["1", "0", "1", "1"]


@pytest.mark.long_after_first
@pytest.mark.once
@pytest.mark.parametrize("kind", ["unified", "discrete"])
def test_a_queued_copy_goes_on_without_memory_of_the_host(printed, shim, kind):
    """torch transposes large matrices through a buffer of 60 x 60 elements, which it allocates in the copy."""
    library = shim("refuse_memory")
    code = f"""
        import ctypes
        memory = ctypes.CDLL("{library}")
        x = torch.arange(70 * 90.0, device=d).view(70, 90)
        m.synchronize()
        memory.refuse_memory(ctypes.c_size_t(60 * 60 * 4))
        y = x.t().contiguous()
        m.synchronize()
        memory.refuse_memory(0)
        assert memory.refusals_so_far() == 1
        assert torch.equal(y.cpu(), torch.arange(70 * 90.0).view(70, 90).t())
        print("fine")
    """
    assert printed(code, f"kind={kind}", env={"LD_PRELOAD": library}).split() == ["fine"]
