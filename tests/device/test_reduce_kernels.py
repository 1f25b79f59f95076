"""The reductions of the generated project: equal to the CPU's over any dimensions, as accurate, and what ran."""

import pytest
import torch

from torch_backplane import fallback

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
REAL = [*FLOATS, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
SUMS = {"sum.dim_IntList": torch.sum, "mean.dim": torch.mean}
CHOICES = {"amax": torch.amax, "amin": torch.amin}
ARGUMENTS = {"argmax": torch.argmax, "argmin": torch.argmin}
TRUTHS = {"any": torch.any, "all": torch.all}


def values(dtype, *shape):
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0)) * 8 - 4
    return (x > -3.8) if dtype == torch.bool else x.abs().to(dtype) if dtype == torch.uint8 else x.to(dtype)


def tensors(dtype):
    x = values(dtype, 6, 5, 70)
    return [x, x.permute(2, 0, 1), x[:, ::2, 1::3], x[:1].expand(4, 5, 70), x[:, :1], values(dtype, 700), x[1, 2, 3]]


def placed(x, device):
    whole = x.as_strided((x.untyped_storage().nbytes() // x.itemsize,), (1,), 0)
    return whole.to(device).as_strided(x.size(), x.stride(), x.storage_offset())


def same(result, expected):
    assert (result.dtype, result.shape, result.stride()) == (expected.dtype, expected.shape, expected.stride())
    tolerance = {"atol": 2e-2, "rtol": 2e-3} if expected.dtype == torch.float16 else {}
    tolerance = {"atol": 0.2, "rtol": 2e-2} if expected.dtype == torch.bfloat16 else tolerance
    tolerance = {"atol": 1e-4, "rtol": 1e-5} if expected.dtype == torch.float32 else tolerance
    torch.testing.assert_close(result.cpu(), expected, equal_nan=True, **tolerance)


@pytest.fixture
def ran(kernel_calls):
    """``ran(name, call)``: the result of a call, after a check that this kernel ran in it and the fallback did not."""

    def run(name, call):
        before, fell = kernel_calls(name), sum(fallback.calls().values())
        result = call()
        assert kernel_calls(name) == before + 1
        assert sum(fallback.calls().values()) == fell
        return result

    return run


@pytest.mark.requires("host_exec")
@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("name", SUMS | CHOICES)
def test_E47_over_dimensions(device, ran, name, dtype):
    f = (SUMS | CHOICES)[name]
    if f is torch.mean and not dtype.is_floating_point:
        with pytest.raises(RuntimeError, match="must be either a floating point or complex dtype"):
            torch.mean(values(dtype, 3).to(device))
        return
    for x in tensors(dtype):
        y = placed(x, device)
        dims = [(), 0, -1] if x.dim() < 3 else [(), 0, 1, -1, (0, 2), (1, 2), (0, 1, 2)]
        for dim in dims:
            for keepdim in (False, True):
                same(ran(name, lambda: f(y, dim=dim, keepdim=keepdim)), f(x, dim=dim, keepdim=keepdim))  # noqa: B023


@pytest.mark.requires("host_exec")
@pytest.mark.parametrize("dtype", REAL[:-1], ids=str)
@pytest.mark.parametrize("name", ARGUMENTS)
def test_E47_arguments(device, ran, name, dtype):
    """Integers have ties: the first one counts, in the order of the dimensions and not of memory."""
    f = ARGUMENTS[name]
    for x in tensors(dtype):
        y = placed(x, device)
        for dim in (None, 0, -1) if x.dim() < 3 else (None, 0, 1, 2):
            same(ran(name, lambda: f(y, dim=dim)), f(x, dim=dim))  # noqa: B023
    same(ran(name, lambda: f(y, keepdim=True)), f(x, keepdim=True))


@pytest.mark.requires("host_exec")
@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("name", TRUTHS)
def test_E47_truth(device, ran, name, dtype):
    f = TRUTHS[name]
    for x in (*tensors(dtype), torch.zeros(3, 70, dtype=dtype), torch.ones(3, 70, dtype=dtype)):
        y = placed(x, device)
        same(ran(name, lambda: f(y)), f(x))  # noqa: B023
        for dim in (0, -1):
            same(ran(f"{name}.dim", lambda: f(y, dim=dim)), f(x, dim=dim))  # noqa: B023


@pytest.mark.requires("host_exec")
@pytest.mark.parametrize("name", SUMS)
def test_E47_a_dtype_for_the_result(device, ran, name):
    for dtype in (torch.float32, torch.bfloat16, torch.int32, torch.bool):
        x = values(dtype, 7, 40)
        for wanted in (torch.float64, torch.float32, torch.float16):
            f = SUMS[name]
            same(ran(name, lambda: f(x.to(device), dim=1, dtype=wanted)), f(x, dim=1, dtype=wanted))  # noqa: B023


@pytest.mark.requires("host_exec")
def test_E47_out(device, ran):
    x = values(torch.float32, 7, 40)
    y = x.to(device)
    for name, f in {"sum.dim_IntList": torch.sum, "amax": torch.amax, "argmin": torch.argmin}.items():
        dtype = torch.int64 if name == "argmin" else torch.float32
        fresh = torch.empty(0, dtype=dtype, device=device)
        assert ran(name, lambda f=f, out=fresh: f(y, dim=1, out=out)) is fresh
        same(fresh, f(x, dim=1))
        base = torch.zeros(7, 3, dtype=dtype, device=device)
        ran(name, lambda f=f, base=base: f(y, dim=1, out=base[:, 1]))
        assert torch.equal(base[:, 0].cpu(), torch.zeros(7, dtype=dtype))
        same(base[:, 1].contiguous(), f(x, dim=1))
        with pytest.warns(UserWarning, match="output with one or more elements was resized"):
            f(y, dim=1, out=torch.ones(2, dtype=dtype, device=device))


def test_nothing_to_reduce(device):
    x = torch.zeros(0, 3)
    for f in (torch.sum, torch.mean, torch.any, torch.all):
        same(f(x.to(device)), f(x))
        same(f(x.to(device), dim=0), f(x, dim=0))
        same(f(x.to(device), dim=1), f(x, dim=1))
    for f in (torch.amax, torch.argmax):
        with pytest.raises((RuntimeError, IndexError)) as expected:
            f(x, dim=0)
        with pytest.raises((RuntimeError, IndexError)) as found:
            f(x.to(device), dim=0)
        assert str(found.value).splitlines()[0] == str(expected.value).splitlines()[0]


def test_nan_wins_and_infinity_is_ordered(device):
    inf, nan = float("inf"), float("nan")
    for numbers in ([1.0, nan, 3.0, nan], [-inf, -inf], [inf, 1.0, -inf], [nan], [0.0, -0.0]):
        x = torch.tensor(numbers * 20)
        for f in (torch.amax, torch.amin, torch.argmax, torch.argmin, torch.sum, torch.any, torch.all):
            same(f(x.to(device)), f(x))
            same(f(x.repeat(3, 1).t().to(device), dim=0), f(x.repeat(3, 1).t(), dim=0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_sums_are_as_accurate_as_the_cpus(device, dtype):
    """Of a million elements, along memory and across it."""
    x = torch.rand(1 << 20, generator=torch.Generator().manual_seed(0)).to(dtype)
    for shape, dim in (((1 << 20,), 0), ((1 << 10, 1 << 10), 0), ((1 << 10, 1 << 10), 1), ((1 << 18, 4), 0)):
        a = x.reshape(shape)
        truth = a.double().mean(dim)
        found = a.to(device).mean(dim).cpu().double()
        unit = torch.finfo(dtype).eps * truth.abs()
        assert ((found - truth).abs() / unit).max() <= 0.51 + (dtype == torch.float32)


def test_gradients(device):
    x = values(torch.float32, 6, 70)
    results = []
    for where in ("cpu", device):
        leaf = x.to(where).detach().requires_grad_()
        (leaf.sum(0).mean() + leaf.amax(1).sum() + leaf.mean()).backward()
        results.append(leaf.grad.cpu())
    torch.testing.assert_close(*results)


@pytest.mark.requires("host_exec")
@pytest.mark.parametrize("name", ["sum.dim_IntList", "any", "mean.dim"])
def test_E23_complex_reductions_go_to_the_fallback(device, kernel_calls, name):
    x = torch.ones(4, 3, dtype=torch.complex64)
    f = (SUMS | TRUTHS)[name]
    before, fell = kernel_calls(name), sum(fallback.calls().values())
    assert torch.equal(f(x.to(device)).cpu(), f(x))
    assert kernel_calls(name) == before
    assert sum(fallback.calls().values()) > fell
