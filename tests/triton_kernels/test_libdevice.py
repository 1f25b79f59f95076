"""Functions of CUDA's libdevice at special values, compared with Python's."""

import math

import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

DEVICE = "mydevice"
INF, NAN = math.inf, math.nan


@triton.jit
def of_one(x, out, exponents, N: tl.constexpr):
    at = tl.arange(0, N)
    v = tl.load(x + at)
    tl.store(out + at, libdevice.sinpi(v))
    tl.store(out + N + at, libdevice.cospi(v))
    tl.store(out + 2 * N + at, libdevice.normcdf(v))
    tl.store(out + 3 * N + at, libdevice.logb(v))
    tl.store(exponents + at, libdevice.ilogb(v))


@triton.jit
def of_two(x, y, n, out, N: tl.constexpr):
    at = tl.arange(0, N)
    v = tl.load(x + at)
    tl.store(out + at, libdevice.remainder(v, tl.load(y + at)))
    tl.store(out + N + at, libdevice.pow(v, tl.load(n + at)))


@triton.jit
def of_f32(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    v = tl.load(x + at)
    tl.store(out + at, libdevice.erfcinv(v))
    tl.store(out + N + at, libdevice.fma_rn(v, v, v))


@triton.jit
def of_bits(x, y, s, out, wide, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    number = libdevice.hiloint2double(a, b)
    tl.store(wide + at, number)
    tl.store(out + at, libdevice.double2hiint(number))
    tl.store(out + N + at, libdevice.double2loint(number))
    tl.store(out + 2 * N + at, libdevice.byte_perm(a, b, tl.load(s + at)))


def sinpi(x):
    return math.copysign(0, x) if x % 1 == 0 else math.sin(math.pi * math.fmod(x, 2))


def cospi(x):
    return 0.0 if x % 1 == 0.5 else math.cos(math.pi * math.fmod(x, 2))


def normcdf(x):
    return math.erfc(-x / math.sqrt(2)) / 2


def logb(x):
    return -INF if x == 0 else math.frexp(x)[1] - 1 if math.isfinite(x) else x * x


def ilogb(x):
    return -(2**31) if x == 0 or x != x else 2**31 - 1 if math.isinf(x) else math.frexp(x)[1] - 1


def power(x, n):
    return math.copysign(abs(x) ** n if x or n >= 0 else INF, x if n % 2 else 1)


def of(function, *tensors):
    def value(*numbers):
        try:
            return function(*numbers)
        except ValueError:
            return NAN

    found = [value(*numbers) for numbers in zip(*(tensor.tolist() for tensor in tensors), strict=True)]
    return torch.tensor(found, dtype=torch.float64)


def check(found, expected, dtype):
    precision = 4e-6 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(found.cpu(), expected.to(found.dtype), rtol=precision, atol=0, equal_nan=True)
    assert torch.equal(found.cpu().signbit(), expected.signbit()) or expected.isnan().any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_T01_libdevice_at_special_values(dtype):
    values = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, 2.5, 3.0, 0.25, 100.5, -2.75, 1e-3, 5.0, -3.5, 17.0]
    x = torch.tensor(values, dtype=dtype)
    out, exponents = torch.empty(4, 16, dtype=dtype, device=DEVICE), torch.empty(16, dtype=torch.int32, device=DEVICE)
    of_one[(1,)](x.to(DEVICE), out, exponents, N=16)
    for found, function in zip(out, (sinpi, cospi, normcdf, logb), strict=True):
        check(found, of(function, x), dtype)
    assert exponents.tolist() == [ilogb(value) for value in x.tolist()]
    x = torch.tensor([INF, -INF, NAN, 1e30, -1e30, 6e-39, -6e-39, 2.0**-1022 if dtype == torch.float64 else 2.0**-126])
    x = x.to(dtype)
    of_one[(1,)](x.to(DEVICE), out, exponents, N=8)
    check(out.view(-1)[24:32], of(logb, x), dtype)
    assert exponents[:8].tolist() == [ilogb(value) for value in x.tolist()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_T01_libdevice_remainders_and_whole_powers(dtype):
    least, most = torch.finfo(dtype).smallest_normal / 16, torch.finfo(dtype).max
    x = torch.tensor([5.0, -5.0, 7.5, 1e30, -1e30, 17.0, most, 3 * least, -2.5, -0.0, INF, 4.0, 1.0, 2.0, 0.75, NAN])
    y = torch.tensor([3.0, 3.0, 5.0, 7.0, 0.7, least, most / 2, 2 * least, 5.0, 1.0, 2.0, INF, 0.0, -0.5, 0.5, 1.0])
    n = torch.tensor([2, 3, -1, 1, 0, -2, 1, 0, 3, -1, -1, 3, 7, -8, 2, 1], dtype=torch.int32)
    x, y = x.to(dtype), y.to(dtype)
    x[6], x[7], y[5], y[6], y[7] = most, 3 * least, least, most / 2, 2 * least  # torch.tensor's default is f32
    out = torch.empty(2, 16, dtype=dtype, device=DEVICE)
    of_two[(1,)](x.to(DEVICE), y.to(DEVICE), n.to(DEVICE), out, N=16)
    check(out[0], of(math.remainder, x, y), dtype)
    check(out[1], of(power, x, n), dtype)


def test_T01_libdevice_in_single_precision():
    x = torch.tensor([0.0, 2.0, 1.0, 0.25, 1.75, 1e-3, 1e-10, 1.999])
    out = torch.empty(2, 8, device=DEVICE)
    of_f32[(1,)](x.to(DEVICE), out, N=8)
    inverse = [INF, -INF, 0.0, 0.8134198475976185, -0.8134198475976185, 2.326753765513525, 4.572824967389486]
    inverse.append(-torch.erfinv(x.double()[-1] - 1).item())
    torch.testing.assert_close(out[0].cpu(), torch.tensor(inverse), rtol=2e-5, atol=0)
    torch.testing.assert_close(out[1].cpu(), x * x + x)


def test_T01_libdevice_bits_of_numbers():
    x, y, s = torch.randint(-(2**31), 2**31, (3, 16), generator=torch.Generator().manual_seed(1)).int()
    s[:4] = torch.tensor([0x3210, 0x7654, 0x0123, 0x1537])
    out, wide = (
        torch.empty(3, 16, dtype=torch.int32, device=DEVICE),
        torch.empty(16, dtype=torch.float64, device=DEVICE),
    )
    of_bits[(1,)](x.to(DEVICE), y.to(DEVICE), s.to(DEVICE), out, wide, N=16)
    assert torch.equal(wide.cpu().view(torch.int64), x.long() << 32 | y.long() & 0xFFFFFFFF)
    assert torch.equal(out[:2].cpu(), torch.stack([x, y]))
    selected = [
        int.from_bytes([(b << 32 | a & 0xFFFFFFFF) >> 8 * (k >> 4 * i & 7) & 255 for i in range(4)], "little")
        for a, b, k in zip(x.tolist(), y.tolist(), s.tolist(), strict=True)
    ]
    assert [value & 0xFFFFFFFF for value in out[2].tolist()] == selected
