"""Creation operators: what they make, where, and what they refuse."""

import contextlib

import pytest
import torch
from dtypes import COMMON, EVERY, FLOATS, dtypes

EACH = pytest.mark.parametrize("dtype", [*COMMON, *dtypes("uint16 float8_e4m3fn")], ids=str)


@contextlib.contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def bits(x):
    return x.cpu().contiguous().view(torch.uint8).tolist()


def test_E08_empty_has_the_sizes_strides_and_format_that_were_asked_for(device):
    x = torch.empty(2, 3, 4, 5, device=device, memory_format=torch.channels_last)
    assert x.stride() == torch.empty(2, 3, 4, 5, memory_format=torch.channels_last).stride()
    assert torch.empty(2, 3, device=device).stride() == (3, 1)
    assert torch.empty_strided((2, 3), (1, 2), device=device).stride() == (1, 2)
    assert torch.empty(0, 3, device=device).shape == (0, 3)
    with pytest.raises(RuntimeError, match="negative dimension"):
        torch.empty(-1, device=device)


def test_E08_empty_has_the_default_dtype(device):
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.empty(1, device=device).dtype == torch.float64
        assert torch.empty_strided((1,), (1,), device=device).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_E08_symbolic_sizes(device):
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    size = ShapeEnv().create_unbacked_symint()
    with torch._subclasses.FakeTensorMode():
        assert torch.empty(size, 2, device=device).shape[1] == 2


def test_empty_without_an_index_is_on_the_current_device(device, device_module):
    if device_module.device_count() > 1:
        with device_module.device(1):
            assert torch.empty(1, device=device.type).device.index == 1
            assert torch.empty(1, device=device).device.index == 0
        assert torch.empty(1, device=torch.device(device.type, 1)).device.index == 1
    assert torch.empty(1, device=device.type).device == device


def test_D25_the_key_set_is_exactly_the_devices(device):
    x = torch.empty(1, device=device)
    keys = {"PrivateUse1", "ADInplaceOrView", "AutogradPrivateUse1", "AutocastPrivateUse1"}
    text = str(torch._C._dispatch_keys(x))
    assert {word.strip() for word in text[text.index("(") + 1 : text.index(")")].split(",")} == keys
    assert torch._C._dispatch_keys(x) == torch._C._dispatch_keys(torch.empty_strided((1,), (1,), device=device))
    assert torch._C._dispatch_keys(x) == torch._C._dispatch_keys(x.view(1)) == torch._C._dispatch_keys(torch.sin(x))


@EACH
def test_E09_creation_functions_equal_the_cpus(device, dtype):
    for make in (
        lambda **kw: torch.ones(3, dtype=dtype, **kw),
        lambda **kw: torch.zeros(2, 3, dtype=dtype, **kw),
        lambda **kw: torch.full((3,), 1, dtype=dtype, **kw),
        lambda **kw: torch.tensor([1, 0, 1], dtype=dtype, **kw),
    ):
        assert make(device=device).device == device
        assert bits(make(device=device)) == bits(make())


def test_E09_ranges_and_identities_equal_the_cpus(device):
    for make in (
        lambda **kw: torch.arange(7, **kw),
        lambda **kw: torch.arange(0.5, 4, 0.5, **kw),
        lambda **kw: torch.linspace(0, 1, 5, **kw),
        lambda **kw: torch.eye(3, **kw),
        lambda **kw: torch.ones_like(torch.empty(2, 3, **kw).t()),
        lambda **kw: torch.empty(2, 3, **kw).new_full((2,), 4.0),
    ):
        made, expected = make(device=device), make()
        assert made.device == device
        assert made.dtype == expected.dtype
        assert made.stride() == expected.stride()
        assert torch.equal(made.cpu(), expected)
    assert torch.randint(3, 5, (100,), device=device).unique().tolist() == [3, 4]


@EACH
def test_E10_fill_really_fills(device, dtype):
    x = torch.empty(5, dtype=dtype, device=device)
    assert bits(x.fill_(1)) == bits(torch.ones(5, dtype=dtype))
    assert bits(x.zero_()) == bits(torch.zeros(5, dtype=dtype))


def test_E10_fill_of_strided_and_expanded_tensors(device):
    x, expected = torch.zeros(4, 6, device=device), torch.zeros(4, 6)
    for t in (x, expected):
        t[:, ::2].fill_(3)
        t[1].zero_()
    assert torch.equal(x.cpu(), expected)
    for dtype in (torch.complex64, torch.complex128):
        assert bits(torch.full((2,), 1 + 2j, dtype=dtype, device=device)) == bits(torch.full((2,), 1 + 2j, dtype=dtype))
    assert torch.zeros(1, device=device).expand(3).fill_(1).tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match="overflow"):
        torch.zeros(1, dtype=torch.uint8, device=device).fill_(1000)


def test_fill_from_a_tensor(device):
    x = torch.zeros(3, device=device)
    assert x.fill_(torch.tensor(2.0)).tolist() == [2, 2, 2]
    assert x.fill_(torch.tensor(5, device=device)).tolist() == [5, 5, 5]
    x[1] = 7
    assert x.fill_(x[1]).tolist() == [7, 7, 7]


@EACH
def test_item_of_every_dtype(device, dtype):
    value = torch.tensor([0, 1], dtype=dtype)
    assert value.to(device)[1].item() == value[1].item()


def test_item_of_lazy_bits(device):
    x = torch.tensor([1 + 2j, 3 - 4j])
    assert x.to(device).conj()[0].item() == 1 - 2j
    assert x.to(device).conj().imag[1].item() == 4
    assert bool(torch.tensor([True], device=device))
    with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
        torch.ones(2, device=device).item()


def test_uninitialised_memory_is_filled_when_torch_asks_for_it(device):
    with deterministic():
        assert torch.empty(3, device=device).isnan().all()
        assert torch.empty_strided((2,), (1,), dtype=torch.int32, device=device).tolist() == [2**31 - 1] * 2
        assert torch.ones(1, device=device).resize_(3)[1:].isnan().all()


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("dtype", [*EVERY, *dtypes("float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu")], ids=str)
def test_uninitialised_memory_has_the_bytes_of_the_cpus(device, dtype):
    def made(on):
        with deterministic():
            yield bits(torch.empty(4, dtype=dtype, device=on))
            yield bits(torch.empty_strided((2,), (2,), dtype=dtype, device=on))
            yield bits(torch.empty(0, dtype=dtype, device=on).resize_(4))

    assert list(made(device)) == list(made("cpu"))


@pytest.mark.parametrize("dtype", dtypes("bits8 uint4 float4_e2m1fn_x2"), ids=str)
def test_what_torch_cannot_fill_is_refused(device, dtype):
    for on in ("cpu", device):
        with deterministic(), pytest.raises(NotImplementedError, match=r"fill_empty_deterministic_.* not implemented"):
            torch.empty_strided((2,), (2,), dtype=dtype, device=on)
    assert torch.ones(2, device=device).tolist() == [1, 1]


def test_zero_tensors_of_forward_mode_differentiation_have_no_memory(device):
    zero = torch._efficientzerotensor((2, 3), device=device)
    assert zero._is_zerotensor()
    assert zero.device == device
    assert torch.equal((torch.ones(2, 3, device=device) + zero).cpu(), torch.ones(2, 3))


@pytest.mark.parametrize("function", [torch.dot, torch.vdot, torch.inner])
def test_D36_products_with_a_zero_tensor_are_zero_tensors(device, function):
    ones = torch.ones(3, dtype=torch.complex64, device=device)
    zero = torch._efficientzerotensor(3, dtype=torch.complex64, device=device)
    for a, b in ((zero, ones), (ones, zero), (zero.conj(), ones), (zero, zero)):
        result = function(a, b)
        assert result.device == device
        assert result._is_zerotensor()
        assert torch.equal(result.cpu(), torch.tensor(0j))
        assert torch.equal(result.unsqueeze(0).cpu(), torch.zeros(1, dtype=torch.complex64))


def test_a_zero_tensor_has_nothing_to_record(device, device_module):
    torch._efficientzerotensor(3, device=device).record_stream(device_module.current_stream())


@pytest.mark.parametrize("make", [torch.empty, lambda *size, **options: torch.empty_strided(size, (1,), **options)])
def test_complex_half_warns_that_it_is_experimental(device, make):
    torch.set_warn_always(True)
    try:
        with pytest.warns(UserWarning, match="ComplexHalf support is experimental"):
            make(2, dtype=torch.complex32, device=device)
    finally:
        torch.set_warn_always(False)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_kaiser_windows(device, dtype):
    """By a table of functions that torch has for each device type."""
    for length, periodic, beta in ((0, True, 12.0), (1, False, 3.5), (2, True, 0.0), (9, False, 12.0), (16, True, 3.5)):
        expected = torch.kaiser_window(length, periodic, beta, dtype=dtype)
        found = torch.kaiser_window(length, periodic, beta, dtype=dtype, device=device)
        assert found.device == device
        torch.testing.assert_close(found.cpu(), expected)
