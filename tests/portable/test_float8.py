"""float8 in memory: conversions by every dtype, bit for bit as the CPU's; what only moves elements; comparisons."""

import pytest
import torch

from portable.compare import INTEGERS, each
from torch_backplane import fallback

FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu]
OTHERS = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.bool]
each_dtype = pytest.mark.parametrize("dtype", each(FLOAT8, torch.float8_e4m3fn, torch.float8_e8m0fnu))


def every(dtype):
    """Its 256 numbers."""
    return torch.arange(256).to(torch.uint8).view(dtype)


def bits(tensor):
    return tensor.cpu().view(torch.uint8)


@each_dtype
def test_F09_every_number_is_converted(device, ran, dtype):
    x = every(dtype)
    for other in OTHERS:
        with ran("copy_"):
            got = x.to(device).to(other)
        expected = x.to(other)
        torch.testing.assert_close(got.cpu(), expected, rtol=0, atol=0, equal_nan=True)
    finite = x[x.float().isfinite() & (x.float().abs() < 2**7) & (x.float() >= 0)]
    for other in INTEGERS:
        assert torch.equal(finite.to(device).to(other).cpu(), finite.to(other))


@each_dtype
def test_every_neighbourhood_is_rounded(device, ran, dtype):
    """The numbers, the middles between them, their neighbours in float32, and what lies beyond the range."""
    exact = every(dtype).float()
    exact = exact[exact.isfinite()].sort().values
    middles = (exact[1:].double() + exact[:-1].double()).float() / 2
    near = torch.cat([exact, middles, exact[-1:] + (exact[-1:] - exact[-2:-1]) / 2])
    x = torch.cat([near, near.nextafter(torch.tensor(torch.inf)), near.nextafter(torch.tensor(-torch.inf)), -near])
    special = [0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-45, -1e-45, 1e38, -1e38, 500.0, 70000.0, 2.0**-133]
    x = torch.cat([x, torch.tensor(special), torch.randn(5000) * 2.0 ** torch.randint(-20, 20, (5000,))])
    for source in (x, x.double(), x.half(), x.bfloat16(), x + 2j, x.clamp(-500, 500).nan_to_num(0).long(), x > 0):
        with ran("copy_"):
            got = source.to(device).to(dtype)
        assert torch.equal(bits(got), bits(source.to(dtype)))


@each_dtype
def test_between_two_formats(device, dtype):
    for other in FLOAT8:
        x = every(other)
        assert torch.equal(bits(x.to(device).to(dtype)), bits(x.to(dtype)))


@each_dtype
def test_strided_and_broadcast_copies_convert(device, dtype):
    x = torch.randn(9, 14)
    got = torch.zeros(14, 18, device=device).to(dtype)
    got[:, ::2].copy_(x.to(device).t())
    got[:, 1::2].copy_(x.to(device)[:, :1].t())
    expected = torch.zeros(14, 18).to(dtype)
    expected[:, ::2].copy_(x.t())
    expected[:, 1::2].copy_(x[:, :1].t())
    assert torch.equal(bits(got), bits(expected))


@each_dtype
def test_moves_keep_the_bits(device, dtype):
    x = every(dtype).reshape(16, 16)
    mask, at = torch.arange(256).reshape(16, 16) % 3 == 0, torch.tensor([3, 0, 3])
    calls = (
        lambda x, mask, at: x.t().contiguous(),
        lambda x, mask, at: torch.cat([x, x.t()], 1),
        lambda x, mask, at: x[at],
        lambda x, mask, at: x.index_select(1, at),
        lambda x, mask, at: x[mask],
        lambda x, mask, at: torch.where(mask, x, x.t()),
        lambda x, mask, at: x.roll(3, 1),
        lambda x, mask, at: x.clone().zero_(),
        lambda x, mask, at: torch.full_like(x, 2.0),
    )
    for call in calls:
        expected = call(x, mask, at)
        operands = [t.to(device) for t in (x, mask, at)]
        with fallback.budget(calls=0):
            got = call(*operands)
        assert torch.equal(bits(got), bits(expected))


@each_dtype
def test_comparisons(agree, dtype):
    x = every(dtype)
    y = x[torch.arange(256) ^ 128]
    for name, function in (
        ("eq.Tensor", lambda x, y: x == y),
        ("ne.Tensor", lambda x, y: x != y),
        ("eq.Scalar", lambda x, y: x == 1.99),
        ("ne.Scalar", lambda x, y: x != 2),
        ("isnan", lambda x, y: x.isnan()),
    ):
        agree(name, function, x, y)
