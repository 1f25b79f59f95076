"""torch.compile with float8 in, within and out of its kernels, bit for bit as the CPU's operators."""

import pytest
import torch
from torch._inductor.utils import run_and_get_code

from portable.compare import each
from torch_backplane import fallback

FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
each_dtype = pytest.mark.parametrize("dtype", each(FLOAT8, torch.float8_e4m3fn, torch.float8_e5m2fnuz))
pytestmark = pytest.mark.usefixtures("each_compiles")


@pytest.fixture
def same(device):
    """``same(function, x, ...)``: compiled for the device, by kernels, it gives the bits of the CPU's operators."""

    def same(function, *arguments, kernels=1):
        operands = [one.to(device) for one in arguments]
        with fallback.budget(calls=0):
            got, (code,) = run_and_get_code(torch.compile(function, fullgraph=True), *operands)
        assert code.count("generated_kernel(async_compile") == kernels
        assert "torch.ops" not in code.split("def call")[1]
        expected = function(*arguments)
        assert got.dtype == expected.dtype
        got = got.cpu()
        torch.testing.assert_close(got.float(), expected.float(), rtol=0, atol=0, equal_nan=True)
        if got.itemsize == 1:
            assert torch.equal(got.view(torch.uint8), expected.view(torch.uint8))

    return same


def numbers():
    """Beyond each format's range, and within it, subnormal ones, too."""
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 448.0, 465.0, 1e5, -1e38, 2.0**-20])
    return torch.cat([special, torch.randn(1990) * 2.0 ** torch.randint(-18, 18, (1990,))])


@each_dtype
def test_F19_a_result_is_rounded(same, dtype):
    same(lambda x: (x * 1.5).to(dtype), numbers())


@each_dtype
def test_F19_an_argument_is_read(same, dtype):
    every = torch.arange(256).to(torch.uint8).view(dtype)
    same(lambda x: x.float() * 0.5 + 1, every)
    same(lambda x: x.to(torch.bfloat16), every)


@each_dtype
def test_F19_within_a_kernel_it_is_rounded(same, dtype):
    """A kernel that quantizes and uses the result continues with a number that float8 has."""
    same(lambda x: x.to(dtype).float() * 2 - x, numbers()[10:])
    same(lambda x: x.to(dtype).to(torch.float8_e5m2), numbers())


@each_dtype
def test_F19_moved_and_compared(same, dtype):
    x = numbers().to(dtype).reshape(40, 50)
    y = x.flip(0)
    same(lambda x, y: torch.cat([x.t(), y.t()], 1), x, y)
    same(lambda x, y: torch.where(x.float() > 1, x, y), x, y)
    same(lambda x, y: x == y, x, y)


@each_dtype
def test_F19_scaled_by_rows(same, dtype):
    """Quantized by the largest of a row, and back: a fold, and a store of float8 beside it."""
    largest = torch.finfo(dtype).max

    def quantized(x):
        scale = x.abs().amax(1, keepdim=True) * 2.0**-8  # which is exact
        return (x / scale).clamp(-largest, largest).to(dtype)

    same(quantized, torch.randn(64, 200))
    same(lambda x: quantized(x).float().sum(0).round(), torch.randn(64, 33).round(), kernels=2)


def test_F19_e8m0_is_moved_by_kernels_and_converted_by_operators(device):
    """Which Inductor decides so for every device."""
    x = numbers().to(torch.float8_e8m0fnu)

    def function(x):
        return torch.cat([x.reshape(40, 50).t(), x.reshape(50, 40)], 1), (x.float() * 0.5).to(torch.float8_e8m0fnu)

    got, (code,) = run_and_get_code(torch.compile(function, fullgraph=True), x.to(device))
    assert code.count("generated_kernel(async_compile") == 2
    for one, expected in zip(got, function(x), strict=True):
        assert torch.equal(one.cpu().view(torch.uint8), expected.view(torch.uint8))


def test_F19_sums_into_places_of_float8_are_the_operators(device):
    """Eager has index_put, by the CPU, and refuses scatter_add."""
    x, at = torch.ones(3).to(torch.float8_e5m2), torch.tensor([0, 0, 1])

    def put(x, at):
        return x.new_zeros(4).index_put((at,), x, accumulate=True)

    assert torch.equal(torch.compile(put)(x.to(device), at.to(device)).cpu().float(), put(x, at).float())
    with pytest.raises(NotImplementedError, match="not implemented for 'Float8_e5m2'"):
        torch.compile(lambda x, at: x.new_zeros(4).scatter_add(0, at, x))(x.to(device), at.to(device))
