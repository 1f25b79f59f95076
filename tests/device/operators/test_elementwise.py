"""Elementwise operators at the edges of their ranges: the CPU's values and signs, by a kernel or by the fallback."""

import pytest
import torch
from dtypes import FLOATS, INTEGERS, dtypes
from torch.nn import functional


def values(dtype, *shape, seed=0):
    """Positive and negative numbers, small enough that no integer overflows."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(shape, generator=generator) * 8 - 4
    return (x > 0) if dtype == torch.bool else x.abs().to(dtype) if dtype == torch.uint8 else x.to(dtype)


def same(result, expected):
    assert (result.dtype, result.shape, result.stride()) == (expected.dtype, expected.shape, expected.stride())
    tolerance = {"atol": 5e-4, "rtol": 2e-3} if expected.dtype == torch.float16 else {}
    torch.testing.assert_close(result.cpu(), expected, equal_nan=True, **tolerance)


@pytest.mark.parametrize("dtype", dtypes("float16 bfloat16"), ids=str)
def test_half_scalars_are_rounded_where_the_cpu_rounds_them(device, dtype):
    x = values(dtype, 500).abs() + 0.1
    near = x[7].item() * 1.0001  # rounded to the half type it is that element, and in float it is not
    wide = torch.tensor(near, dtype=torch.float64)
    for f in (
        lambda t: t == near,
        lambda t: t >= near,
        lambda t: t > wide.to(t.device),
        lambda t: torch.maximum(t, wide),
        lambda t: t**0.3,
        lambda t: t + 0.3,
        lambda t: 0.3 - t,
        lambda t: t * 0.3,
        lambda t: t / 0.3,
        lambda t: t * (wide * 0.1).to(t.device),
    ):
        assert torch.equal(f(x.to(device)).cpu(), f(x))


def test_an_element_times_a_half_type_is_not_rounded_to_it(device):
    tiny = torch.tensor(1e-9, dtype=torch.float64)  # 0 as a float16, and 0 times infinity is no number
    infinite = torch.full((2,), torch.inf, dtype=torch.float16)
    assert (infinite.to(device) * tiny.to(device)).tolist() == (infinite * tiny).tolist() == [torch.inf] * 2


def test_values_at_the_ends_of_the_range(device):
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([0.0, -0.0, inf, -inf, nan, 1e-40, -1e-40, 88.7, 89.0, -87.5, -103.0, -104.5, 3e38, 1e-30] * 5)
    for dtype in (torch.float32, torch.float64):
        a = x.to(dtype)
        for name in ("exp", "log", "sqrt", "rsqrt", "reciprocal", "sigmoid", "tanh", "relu", "abs", "neg"):
            f = getattr(torch, name)
            same(f(a.to(device)), f(a))
        for name in ("maximum", "minimum", "eq", "lt", "div"):
            f = getattr(torch, name)
            same(f(a.to(device), a.flip(0).to(device)), f(a, a.flip(0)))


def test_the_accuracy_of_functions(device):
    """Within 4 units in the last place of the truth, over the whole range."""
    x = torch.cat([torch.linspace(-100, 88, 20001), torch.logspace(-30, 30, 20001), -torch.logspace(-30, 1, 5001)])
    for f in (torch.exp, torch.log, torch.tanh, torch.sigmoid):
        arguments = x[x > 0] if f is torch.log else x[x > -87]  # beyond it, e^-x and so sigmoid overflow, as on the CPU
        truth = f(arguments.double())
        found = f(arguments.to(device)).cpu().double()
        unit = torch.clamp(truth.abs(), min=torch.finfo(torch.float32).tiny) * torch.finfo(torch.float32).eps
        fine = truth.abs() < torch.finfo(torch.float32).max
        assert ((found - truth).abs() / unit)[fine].max() < 4, f.__name__


@pytest.mark.parametrize("mode", [None, "floor", "trunc"])
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.uint8], ids=str)
def test_division_is_rounded_as_the_cpu_rounds(device, mode, dtype):
    x = values(dtype, 40)
    for y in (values(dtype, 40, seed=1) * 2 + 1, torch.tensor([0.1, -0.1, 1, 3] * 10).to(dtype).clamp(min=1)):
        same(torch.div(x.to(device), y.to(device), rounding_mode=mode), torch.div(x, y, rounding_mode=mode))
    same(torch.div(x.to(device), 3, rounding_mode=mode), torch.div(x, 3, rounding_mode=mode))


@pytest.mark.parametrize("dtype", [dtype for dtype in INTEGERS if dtype.is_signed], ids=str)
def test_the_smallest_integer_by_minus_one_wraps(device, dtype):
    least = torch.iinfo(dtype).min
    x = torch.tensor([least, least, -7, 7, 0], dtype=dtype, device=device)
    y = torch.tensor([-1, 2, -1, 2, -1], dtype=dtype, device=device)
    expected = [least, least // 2, 7, 3, 0]
    by_minus_one = [least, least, 7, -7, 0]
    assert torch.div(x, y, rounding_mode="trunc").tolist() == expected
    assert torch.div(x, y, rounding_mode="trunc", out=torch.empty_like(y)).tolist() == expected
    assert x.clone().div_(y, rounding_mode="trunc").tolist() == expected
    assert x[:2].clone().div_(y.long()[:1], rounding_mode="trunc").tolist() == by_minus_one[:2]
    assert torch.div(x, y[:1], rounding_mode="trunc").tolist() == by_minus_one
    for minus_one in (-1, torch.tensor(-1), torch.tensor(-1, dtype=dtype, device=device)):
        assert torch.div(x, minus_one, rounding_mode="trunc").tolist() == by_minus_one
        assert x.clone().div_(minus_one, rounding_mode="trunc").tolist() == by_minus_one
    assert torch.div(x[0], y, rounding_mode="trunc").tolist() == [least, least // 2, least, least // 2, least]
    assert torch.div(x, y, rounding_mode="trunc").dtype == torch.div(x, -1, rounding_mode="trunc").dtype == dtype
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        torch.div(x, y + 1, rounding_mode="trunc")
    for function in (torch.floor_divide, torch.remainder, torch.fmod, torch.gcd, torch.lcm):
        assert function(x, y).tolist() == function(x.cpu(), y.cpu()).tolist()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_power_of_two_that_alone_leaves_the_range(device, dtype):
    info = torch.finfo(dtype)
    x = torch.tensor([0.0, -0.0, info.tiny, info.max, 1.5, float("inf"), float("nan")], dtype=dtype)
    n = torch.tensor([3000, 3000, 20, -20, -3, -3000, 1])
    for call in (
        torch.ldexp,
        lambda x, n: x.clone().ldexp_(n),
        lambda x, n: torch.ldexp(x, n, out=torch.empty_like(x)),
    ):
        expected, found = call(x, n), call(x.to(device), n.to(device)).cpu()
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(found.signbit()[:2], expected.signbit()[:2])
    torch.testing.assert_close(
        torch.ldexp(x.to(device), n.to(device).to(dtype) / 100).cpu(), torch.ldexp(x, n.to(dtype) / 100), equal_nan=True
    )


ODD = (
    "tanh sinh sin tan asin atan asinh atanh erf erfinv expm1 log1p sqrt round trunc frac neg abs ceil floor softsign "
    "gelu silu hardtanh tanhshrink"
)


@pytest.mark.parametrize("name", ODD.split())
def test_zero_keeps_its_sign(device, name):
    function = getattr(torch, name, None) or getattr(functional, name)
    for dtype in FLOATS:
        x = torch.tensor([-0.0, 0.0] * 20, dtype=dtype)
        assert torch.equal(function(x.to(device)).signbit().cpu(), function(x).signbit()), dtype


def test_division_by_zero(device):
    for mode in (None, "floor", "trunc"):
        x, zero = torch.tensor([1.0, -1.0, 0.0]), torch.zeros(3)
        same(torch.div(x.to(device), zero.to(device), rounding_mode=mode), torch.div(x, zero, rounding_mode=mode))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        torch.ones(2, dtype=torch.int64, device=device) // torch.zeros(2, dtype=torch.int64, device=device)
