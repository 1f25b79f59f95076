"""Cumulative operators against the CPU."""

import pytest
import torch

from portable.compare import FLOATS, cases, same, same_error, same_with_gradients

CASES = {
    "cumsum": torch.cumsum,
    "cumprod": torch.cumprod,
    "_cummax_helper": torch.cummax,
    "_cummin_helper": torch.cummin,
    "_logcumsumexp": torch.logcumsumexp,
}
WHOLE = [torch.int64, torch.int32, torch.uint8, torch.bool]
DTYPES = {name: FLOATS if name == "_logcumsumexp" else [*FLOATS, *WHOLE] for name in CASES}


def values(shape, dtype):
    if dtype.is_floating_point:
        return torch.randn(shape).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 4, shape).to(dtype)


@pytest.mark.parametrize(("name", "dtype"), cases(DTYPES))
def test_every_operator_and_dtype(agree, name, dtype):
    x = values((3, 9, 40), dtype)
    for dim in (0, 1, -1):
        agree(name, CASES[name], x, dim)


@pytest.mark.parametrize("name", ["cumsum", "_cummax_helper"])
def test_sizes(agree, name):
    for shape in ((), (0,), (2, 0), (1,), (1, 65), (3, 256), (2, 257), (1, 50_001), (700, 3)):
        x = torch.randint(-4, 5, shape).float()
        for dim in range(-1, max(len(shape) - 1, 0)):
            agree(None, CASES[name], x, dim)
    agree(None, CASES[name], torch.randint(-4, 5, (3, 257)), 1)


@pytest.mark.parametrize("name", CASES)
def test_nan_infinity_and_layouts(agree, name):
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[1.0, nan, 2, nan], [-inf, -inf, 1, 1], [inf, 1, inf, 0], [0, -inf, inf, 2], [1, 2, 2, 1]])
    for view in (x, x.t(), x[:, ::2]):
        for dim in (0, 1):
            agree(None, CASES[name], view, dim)


def test_forms_and_dtypes(agree, device):
    x = torch.randn(4, 6)
    y = x.to(device)
    agree(None, torch.cumsum, x, 1, dtype=torch.float64)
    agree(None, torch.cumsum, x * 9, 0, dtype=torch.int32)
    for out in (torch.empty(0, device=device), torch.zeros(4, 6, 2, device=device)[..., 0]):
        torch.cumsum(y, 1, out=out)
        torch.testing.assert_close(out.cpu(), x.cumsum(1))
    wide = torch.zeros(4, 6, dtype=torch.float64, device=device)
    same(torch.cumprod(y, 1, out=wide), torch.cumprod(x, 1, out=torch.zeros(4, 6, dtype=torch.float64)))
    same(y.clone().cumsum_(0), x.clone().cumsum_(0))
    pair = torch.empty(0, device=device), torch.empty(0, dtype=torch.int64, device=device)
    same(torch.cummax(y, 0, out=pair), torch.cummax(x, 0))


def test_errors_are_the_cpus(device):
    for call in (lambda t: t.cumsum(2), lambda t: torch.logcumsumexp(t.long(), 0), lambda t: t.cummax(-3)):
        same_error(device, call, torch.randn(3, 4))


def test_gradients_are_the_cpus(device):
    def function(x):
        return x.cumsum(1) * x.cumprod(0) + x.cummax(1).values + x.logcumsumexp(0)

    same_with_gradients(device, function, torch.randn(4, 5))
