"""Reductions against the CPU: operators, dtypes, dimensions, layouts, sizes around tiles, forms, places of extremes."""

import itertools
import math
from functools import partial

import pytest
import torch

from portable.compare import FLOATS, cases, same, same_error, same_with_gradients

INTEGERS = [torch.int64, torch.int32, torch.uint8]
ALL = [*FLOATS, *INTEGERS, torch.bool]
INF = float("inf")


def norm(order):
    return lambda x, **dims: torch.linalg.vector_norm(x, order, **dims)


# What is called, the kernel that computes it, and dtypes. All take dim= and keepdim=, or dim only.
CASES = {
    "sum": (torch.sum, "sum.dim_IntList", ALL),
    "nansum": (torch.nansum, "nansum", ALL),
    "prod": (torch.prod, "prod", ALL),
    "mean": (torch.mean, "mean.dim", FLOATS),
    "amax": (torch.amax, "amax", ALL),
    "amin": (torch.amin, "amin", ALL),
    "aminmax": (lambda x, **dims: torch.aminmax(x, **dims), "aminmax", ALL),
    "max": (torch.max, "max.dim", ALL),
    "min": (torch.min, "min.dim", ALL),
    "argmax": (torch.argmax, "argmax", [*FLOATS, *INTEGERS]),
    "argmin": (torch.argmin, "argmin", [*FLOATS, *INTEGERS]),
    "any": (torch.any, "any", ALL),
    "all": (torch.all, "all", ALL),
    "norm 0": (norm(0), "linalg_vector_norm", FLOATS),
    "norm 1": (norm(1), "linalg_vector_norm", FLOATS),
    "norm 2": (norm(2), "linalg_vector_norm", FLOATS),
    "norm 3": (norm(3), "linalg_vector_norm", FLOATS),
    "norm inf": (norm(INF), "linalg_vector_norm", FLOATS),
    "norm -inf": (norm(-INF), "linalg_vector_norm", FLOATS),
    "var": (torch.var, "var.correction", FLOATS),
    "std": (lambda x, **dims: torch.std(x, correction=0, **dims), "std.correction", FLOATS),
    "var_mean": (torch.var_mean, "var_mean.correction", FLOATS),
    "std_mean": (torch.std_mean, "std_mean.correction", FLOATS),
    "logsumexp": (lambda x, **dims: torch.logsumexp(x, **({"dim": (0, 1)} | dims)), "logsumexp", ALL),
}


def values(shape, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if not dtype.is_floating_point:
        return torch.randint(0, 2 if dtype == torch.bool else 4, shape, generator=generator).to(dtype)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def is_short(name, dtype):
    return dtype == torch.float32 or (name in ("sum", "max", "any") and dtype in (torch.bfloat16, torch.int64))


TOLERANCE = {torch.bfloat16: 1.6e-2, torch.float16: 2e-3, torch.float32: 2e-5, torch.float64: 1e-9}
compare = partial(same, tolerance=TOLERANCE)


@pytest.fixture
def agree(agree):
    return partial(agree, compare=compare)


@pytest.mark.parametrize(("name", "dtype"), cases({name: every for name, (_, _, every) in CASES.items()}, is_short))
def test_every_operator_and_dtype(agree, name, dtype):
    function, kernel, _ = CASES[name]
    x = values((7, 37), dtype)
    for dims in [{}, {"dim": 0}, {"dim": -1, "keepdim": True}]:
        if kernel in ("max.dim", "min.dim") and not dims:
            continue
        agree(kernel, function, x, **dims)


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "amax", "argmax", "min", "any", "var", "logsumexp", "norm 2"])
def test_short_rows_and_few_columns(agree, name):
    """Rows are walked side by side, and several rows are taken for one."""
    function, kernel, dtypes = CASES[name]
    for dtype in {torch.float32, torch.bfloat16, *dtypes} & {torch.float32, torch.bfloat16, torch.int64}:
        if dtype in dtypes:
            for size in (8, 31, 63, 127):
                agree(kernel, function, values((37, size), dtype), dim=1)
            for shape in ((1024, 2), (1031, 3), (2040, 24)):  # a prime number of rows cannot be divided
                agree(kernel, function, values(shape, dtype), dim=0)


@pytest.mark.parametrize("name", ["sum", "amax", "var"])
def test_all_sets_of_dimensions(agree, name):
    function, kernel, _ = CASES[name]
    x = values((3, 4, 5, 6), torch.float32)
    for size in range(1, 5):
        for dim in itertools.combinations(range(4), size):
            agree(kernel, function, x, dim=dim)
    agree(kernel, function, x, dim=(-1, 1), keepdim=True)


LAYOUTS = {
    "transposed": lambda x: x.t(),
    "every second": lambda x: x[:, ::2],
    "row": lambda x: x[:1].expand(6, -1),
    "column": lambda x: x[:, :1].expand(-1, 8),
    "permuted": lambda x: x.reshape(3, 2, 2, 2, 2).permute(4, 2, 0, 3, 1),
    "one element": lambda x: x[:1, :1],
    "0-dim": lambda x: x[0, 0],
}


@pytest.mark.parametrize("name", ["sum", "max", "argmax", "var_mean"])
def test_layouts(agree, name):
    function, _, _ = CASES[name]
    for layout in LAYOUTS.values():
        view = layout(values((6, 8), torch.float32))
        with_dims = [{"dim": d} for d in range(-1, max(view.dim() - 1, 0))]
        for dims in with_dims if name == "max" else [{}, *with_dims]:
            agree(None, function, view, **dims)


SIZES = [(1, 70_001), (3, 1023), (300, 1025), (2000, 3), (17, 16), (70_001, 1), (5000, 20), (257, 513), (40_000, 2)]


@pytest.mark.parametrize("shape", SIZES)
def test_sizes_around_tiles_and_parts(device, shape):
    x = torch.randint(-8, 9, shape).float()  # sums of these are exact
    on_device = x.to(device)
    for dim in (0, 1):
        assert torch.equal(on_device.sum(dim).cpu(), x.sum(dim))
        values, places = on_device.max(dim)
        assert torch.equal(values.cpu(), x.max(dim).values)
        assert torch.equal(x.gather(dim, places.cpu().unsqueeze(dim)).squeeze(dim), values.cpu())
        assert torch.equal(places.cpu(), (x == values.cpu().unsqueeze(dim)).int().argmax(dim))
    assert on_device.sum().item() == x.sum().item()
    assert on_device.argmin().item() == x.argmin().item()
    torch.testing.assert_close(on_device.var().cpu(), x.var(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("order", ["first", "middle", "last"])
def test_nan_and_infinity(agree, device, order):
    x = values((5, 200), torch.float32)
    place = {"first": 0, "middle": 77, "last": 199}[order]
    x[0, place] = float("nan")
    x[1, place], x[1, 100] = INF, INF
    x[2, place] = -INF
    x[3] = -INF
    x[4] = INF
    on_device = x.to(device)
    for name in ("sum", "nansum", "amax", "amin", "aminmax", "max", "min", "argmax", "argmin", "logsumexp", "norm inf"):
        for dim in (0, 1):
            agree(CASES[name][1], CASES[name][0], x, dim=dim)
    assert math.isnan(on_device.max().item())
    assert math.isnan(on_device.min().item())


def test_nothing_to_fold(agree, device):
    x = torch.empty(3, 0, 4)
    for function in (torch.sum, torch.mean, torch.prod, torch.nansum, torch.any, torch.all):
        for dims in ({}, {"dim": 1}, {"dim": 0}):
            agree(None, function, x, **dims)
    agree(None, torch.logsumexp, x, 1)
    agree(None, torch.linalg.vector_norm, x, dim=1)
    for function in (torch.amax, torch.argmax):
        same_error(device, function, x, 1)


def test_dtypes_that_are_asked_for(agree):
    x = values((4, 9), torch.float32) * 100
    for dtype in (torch.float64, torch.bfloat16, torch.int64, torch.int32):
        agree(None, torch.sum, x, 1, dtype=dtype)
        agree(None, torch.sum, x, dtype=dtype)
    agree(None, torch.mean, x, 0, dtype=torch.float64)
    agree(None, torch.linalg.vector_norm, x, dim=0, dtype=torch.float64)
    integers = torch.full((3, 50_000), 2**30, dtype=torch.int32)
    agree(None, torch.sum, integers, 1)
    agree(None, torch.sum, integers, 1, dtype=torch.int32)


def test_forms(device, ran):
    x = values((6, 11), torch.float32)
    results = []
    for place in (device, "cpu"):
        y = x.to(place)
        outs = [torch.empty(0, device=place), torch.zeros(6, 2, device=place)[:, 0]]
        wide = torch.zeros(6, dtype=torch.float64, device=place)
        pair = torch.empty(0, device=place), torch.empty(0, dtype=torch.int64, device=place)
        for out in outs:
            torch.sum(y, 1, out=out)
        torch.sum(y, 1, out=wide)
        torch.max(y, 1, out=pair)
        logsumexp = torch.logsumexp(y, 1, out=torch.empty(0, device=place))
        norm = torch.norm(y, 2, 1)
        results.append([*outs, wide, *pair, logsumexp, norm, torch.count_nonzero(y > 0, 1), torch.count_nonzero(y > 0)])
    compare(*results)
    with ran("sum.dim_IntList"):
        torch.sum(x.to(device), 1, out=torch.empty(6, device=device))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.sum(3),
        lambda x: x.sum((0, 0)),
        lambda x: x.long().mean(),
        lambda x: torch.mean(x, 0, out=torch.empty(5, dtype=torch.int64, device=x.device)),
        lambda x: torch.linalg.vector_norm(x.long()),
        lambda x: torch.max(x, 2),
    ],
)
def test_errors_are_the_cpus(device, call):
    same_error(device, call, values((4, 5), torch.float32))


def test_the_same_sums_each_time(device):
    x = torch.randn(1_000_003, device=device)
    assert len({x.sum().item() for _ in range(5)}) == 1
    expected = x.cpu().double().sum().item()
    assert abs(x.sum().item() - expected) < 1e-2


def test_gradients_are_the_cpus(device):
    def function(x):
        return x.sum() + x.var(1).sum() + x.max(0).values.prod() + x.norm() + x.logsumexp(1).mean()

    same_with_gradients(device, function, values((5, 7), torch.float32))
