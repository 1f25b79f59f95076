"""Cumulative operators against the CPU."""

import pytest
import torch

FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
NUMBERS = [*FLOATS, torch.int64, torch.int32, torch.uint8, torch.bool]
CASES = {
    "cumsum": (torch.cumsum, NUMBERS),
    "cumprod": (torch.cumprod, NUMBERS),
    "_cummax_helper": (torch.cummax, NUMBERS),
    "_cummin_helper": (torch.cummin, NUMBERS),
    "_logcumsumexp": (torch.logcumsumexp, FLOATS),
}
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1.6e-2, torch.float16: 2e-3, torch.float64: 1e-9}


def values(shape, dtype):
    if dtype.is_floating_point:
        return torch.randn(shape).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 4, shape).to(dtype)


def compare(got, expected):
    if isinstance(expected, tuple):
        for a, b in zip(got, expected, strict=True):
            compare(a, b)
        return
    assert got.dtype == expected.dtype
    assert got.stride() == expected.stride()
    tolerance = TOLERANCE.get(expected.dtype, 0)
    torch.testing.assert_close(got.cpu(), expected, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param(name, dtype, marks=() if dtype in (torch.float32, torch.int64) else pytest.mark.long)
        for name, (_, dtypes) in CASES.items()
        for dtype in dtypes
    ],
)
def test_every_operator_and_dtype(device, ran, name, dtype):
    function, _ = CASES[name]
    x = values((3, 9, 40), dtype)
    for dim in (0, 1, -1):
        expected = function(x, dim)
        on_device = x.to(device)
        with ran(name):
            got = function(on_device, dim)
        compare(got, expected)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (1,), (1, 65), (3, 256), (2, 257), (1, 50_001), (700, 3)])
@pytest.mark.parametrize("name", ["cumsum", "_cummax_helper"])
def test_sizes(device, name, shape):
    function, _ = CASES[name]
    x = torch.randint(-4, 5, shape).float()
    for dim in range(-1, max(len(shape) - 1, 0)):
        compare(function(x.to(device), dim), function(x, dim))


@pytest.mark.parametrize("name", CASES)
def test_nan_infinity_and_layouts(device, name):
    function, _ = CASES[name]
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[1.0, nan, 2, nan], [-inf, -inf, 1, 1], [inf, 1, inf, 0], [0, -inf, inf, 2], [1, 2, 2, 1]])
    for dim in (0, 1):
        compare(function(x.to(device), dim), function(x, dim))
        compare(function(x.to(device).t(), dim), function(x.t(), dim))
        compare(function(x.to(device)[:, ::2], dim), function(x[:, ::2], dim))


def test_forms_and_dtypes(device):
    x = torch.randn(4, 6)
    y = x.to(device)
    compare(torch.cumsum(y, 1, dtype=torch.float64), torch.cumsum(x, 1, dtype=torch.float64))
    compare(torch.cumsum(y * 9, 0, dtype=torch.int32), torch.cumsum(x * 9, 0, dtype=torch.int32))
    for out in (torch.empty(0, device=device), torch.zeros(4, 6, 2, device=device)[..., 0]):
        torch.cumsum(y, 1, out=out)
        torch.testing.assert_close(out.cpu(), x.cumsum(1))
    wide = torch.zeros(4, 6, dtype=torch.float64, device=device)
    compare(torch.cumprod(y, 1, out=wide), torch.cumprod(x, 1, out=torch.zeros(4, 6, dtype=torch.float64)))
    compare(y.clone().cumsum_(0), x.clone().cumsum_(0))
    pair = torch.empty(0, device=device), torch.empty(0, dtype=torch.int64, device=device)
    compare(torch.cummax(y, 0, out=pair), torch.cummax(x, 0))


def test_errors_are_the_cpus(device):
    x = torch.randn(3, 4)
    for call in (lambda t: t.cumsum(2), lambda t: torch.logcumsumexp(t.long(), 0), lambda t: t.cummax(-3)):
        with pytest.raises((IndexError, RuntimeError)) as expected:
            call(x)
        with pytest.raises(type(expected.value)) as got:
            call(x.to(device))
        assert str(got.value).splitlines()[0] == str(expected.value).splitlines()[0]


def test_gradients_are_the_cpus(device):
    x = torch.randn(4, 5)
    grads = []
    for place in ("cpu", device):
        leaf = x.to(place).detach().requires_grad_()
        (leaf.cumsum(1) * leaf.cumprod(0) + leaf.cummax(1).values + leaf.logcumsumexp(0)).sum().backward()
        grads.append(leaf.grad.cpu())
    torch.testing.assert_close(grads[1], grads[0])
