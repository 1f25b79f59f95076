"""Kernels by value, compared with torch on the CPU."""

from fractions import Fraction

import pytest
import torch

triton = pytest.importorskip("triton")
tl = triton.language

import language as kernels  # noqa: E402

DEVICE = "mydevice"


def numbers(*shape, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return torch.randn(*shape, generator=generator).to(dtype)
    return torch.randint(-100, 100, shape, generator=generator).to(dtype)


def on_device(*tensors):
    return [tensor.to(DEVICE) for tensor in tensors]


def empty(*shape, dtype=torch.float32):
    return torch.full(shape, 77, device=DEVICE).to(dtype)


def close(found, expected, **tolerance):
    torch.testing.assert_close(found.cpu(), expected, **tolerance)


def same(found, expected):
    close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.int16, torch.int64]
)
def test_T01_add(dtype):
    x, y, out = numbers(1000, dtype=dtype), numbers(1000, seed=1, dtype=dtype), empty(1000, dtype=dtype)
    kernels.add[(8,)](*on_device(x, y), out, 1000, BLOCK=128)
    same(out, x + y)


def test_T01_softmax():
    x, out = numbers(37, 781), empty(37, 781)
    kernels.softmax[(37,)](out, x.to(DEVICE), 781, 781, 781, BLOCK=1024)
    close(out, x.softmax(1))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_T01_matmul(dtype, transposed):
    a, b, c = numbers(70, 90, dtype=dtype), numbers(90, 50, seed=1, dtype=dtype), empty(70, 50, dtype=dtype)
    x, y = on_device(a, b.t().contiguous().t() if transposed else b)
    kernels.matmul[(3, 2)](x, y, c, 70, 50, 90, *x.stride(), *y.stride(), *c.stride(), BM=32, BN=32, BK=16)
    close(c, (a.float() @ b.float()).to(dtype), rtol=1e-2 if dtype != torch.float32 else 1e-4, atol=1e-3)


def test_T01_layer_norm():
    x, weight, bias = numbers(13, 300), numbers(300, seed=1), numbers(300, seed=2)
    out, mean = empty(13, 300), empty(13)
    kernels.layer_norm[(13,)](*on_device(x), out, *on_device(weight, bias), mean, 300, 1e-5, BLOCK=128)
    close(out, torch.nn.functional.layer_norm(x, (300,), weight, bias), rtol=1e-4, atol=1e-5)
    close(mean, x.mean(1), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("n", "start", "width", "step"),
    [
        *((n, start, 16, 16) for n, start in ((0, 0), (16, 16), (1, 0), (16, 0), (20, 4), (17, 0), (48, 3))),
        *((300, 0, 512, 512), (300, 0, 256, 256), (300, 5, 128, 100), (256, 0, 256, 256), (129, 1, 128, 128)),
    ],
)
def test_T01_loops_of_any_number_of_turns(n, start, width, step):
    x, out = numbers(5, n), torch.full((12,), 7.0, device=DEVICE)
    kernels.sums_of_rows[(3,)](x.to(DEVICE), out, 5, n, START=start, BM=2, BN=width, STEP=step)
    taken = x[:, start:]
    turns = -(-max(0, n - start) // step)
    highest = torch.cat([taken, torch.full((5, 1), -1e30)], 1)
    if turns and step < width:  # elements between two steps count as 0
        highest = torch.cat([highest, torch.zeros(5, 1)], 1)
    least = highest.amax(1)
    pieces = (
        [torch.nn.functional.pad(piece, (0, width - piece.numel())) for piece in taken[0].split(step)] if turns else []
    )
    whole = torch.stack(pieces).sum(0) if pieces else torch.zeros(width)
    expected = torch.cat([taken.sum(1) + width, torch.where(least < 0, least, least * 2)])
    close(out[:10], expected, rtol=1e-5, atol=1e-4)
    last = pieces[-1][::2].sum() if pieces else torch.tensor(0.0)
    close(out[10:], torch.stack([last * 1000, whole[1::2].sum() + width / 4]), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("block", [64, 256])
@pytest.mark.parametrize(("m", "n"), [(500, 400), (300, 700), (70, 700), (0, 700), (-70, 200), (500, 0), (500, -300)])
def test_T01_masks_that_end_at_two_places(m, n, block):
    x, whole = numbers(2048), torch.zeros(2048, device=DEVICE)
    kernels.two_ends[(1024 // block,)](x.to(DEVICE)[1024:], whole[1024:], m, n, BLOCK=block)
    expected = torch.zeros(2048)
    expected[1024 : 1024 + max(0, n)] = torch.cat([x[1024 : 1024 + max(0, m)] * 2, torch.full((1024,), 2.0)])[
        : max(0, n)
    ]
    close(whole, expected)


def test_T01_a_lock():
    x, out, lock = numbers(16, 64), torch.zeros(64, device=DEVICE), torch.zeros(1, dtype=torch.int32, device=DEVICE)
    kernels.locked_sum[(16,)](x.to(DEVICE), out, lock, 64, BLOCK=64)
    close(out, x.sum(0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_T01_attention(dtype, causal):
    q, k, v = (numbers(3, 100, 32, seed=seed, dtype=dtype) for seed in range(3))
    out = empty(3, 100, 32, dtype=dtype)
    kernels.attention[(4, 3)](*on_device(q, k, v), out, 32**-0.5, 100, CAUSAL=causal, BM=32, BN=16, D=32)
    expected = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=causal)
    close(
        out.float(),
        expected,
        rtol=1e-2 if dtype == torch.float16 else 1e-4,
        atol=2e-3 if dtype == torch.float16 else 1e-5,
    )


def test_T01_dropout():
    x, out = numbers(1000).abs() + 1, empty(1000)
    kernels.dropout[(8,)](x.to(DEVICE), out, 1000, 0.3, 123, BLOCK=128)
    kept = out.cpu() != 0
    assert 0.6 < kept.float().mean() < 0.8
    close(out.cpu()[kept], (x / 0.7)[kept])


def test_T01_histogram():
    x, out = torch.randint(0, 16, (256,), dtype=torch.int32), empty(16, dtype=torch.int32)
    kernels.histogram[(1,)](x.to(DEVICE), out, BLOCK=256, BINS=16)
    same(out, torch.bincount(x, minlength=16).int())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64])
def test_T01_sums_into_places(dtype):
    x, places, sums = torch.randint(-3, 4, (64,)).to(dtype), torch.randint(0, 5, (64,)), torch.ones(5, dtype=dtype)
    found = sums.to(DEVICE)
    kernels.add_into[(1,)](found, *on_device(x, places), BLOCK=64)
    same(found, sums.index_add(0, places, x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int64])
def test_T01_atomics(dtype):
    x = torch.randint(-9, 9, (200,)).to(dtype)
    places = torch.randint(0, 7, (200,))
    sums, highest, lowest = (torch.zeros(7, dtype=dtype, device=DEVICE) for _ in range(3))
    old = torch.arange(400).to(dtype).to(DEVICE)
    kernels.atomics[(4,)](sums, highest, lowest, old, *on_device(x, places), 200, BLOCK=64)
    zero = torch.zeros(7, dtype=dtype)
    same(sums, zero.index_add(0, places, x))
    same(highest, zero.scatter_reduce(0, places, x, "amax"))
    same(lowest, zero.scatter_reduce(0, places, x, "amin"))
    same(
        old,
        torch.cat([torch.arange(200, 400), torch.arange(200, 400)]).to(dtype)
        + torch.cat([torch.zeros(200), x]).to(dtype),
    )


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_T01_atomic_bits(dtype):
    x = torch.randint(0, 1 << 30, (64,)).to(dtype)
    ands, ors, xors = torch.full((4,), -1, dtype=dtype), torch.zeros(4, dtype=dtype), torch.zeros(4, dtype=dtype)
    exchanged = empty(64, dtype=dtype)
    found = on_device(ands, ors, xors)
    kernels.atomic_bits[(1,)](*found, exchanged, x.to(DEVICE), BLOCK=64)
    for i, value in enumerate(x):
        ands[i % 4] &= value
        ors[i % 4] |= value
        xors[i % 4] ^= value
    for one, expected in zip(found, (ands, ors, xors), strict=True):
        same(one, expected)
    same(exchanged, x)


@pytest.mark.parametrize(("dtype", "whole"), [(torch.float32, torch.int32), (torch.float64, torch.int64)])
def test_T01_atomic_bits_of_floats(dtype, whole):
    x = numbers(64).to(dtype)
    found = [tensor.to(dtype).to(DEVICE) for tensor in (torch.full((4,), 1.7), torch.full((4,), 0.3), torch.ones(4))]
    expected = [tensor.cpu().view(whole).clone() for tensor in found]
    exchanged = torch.zeros(64, dtype=dtype, device=DEVICE)
    kernels.atomic_bits[(1,)](*found, exchanged, x.to(DEVICE), BLOCK=64)
    for at, value in enumerate(x.view(whole)):
        expected[0][at % 4] &= value
        expected[1][at % 4] |= value
        expected[2][at % 4] ^= value
    for tensor, right in zip(found, expected, strict=True):
        assert torch.equal(tensor.cpu().view(whole), right)
    same(exchanged, x)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int16])
def test_T01_compare_and_swap(dtype):
    x = torch.tensor([1, 2] * 32, dtype=dtype)
    found, out = x.to(DEVICE), empty(64, dtype=dtype)
    kernels.swap[(1,)](found, out, 2, 5, BLOCK=64)
    same(out, x)
    same(found, torch.tensor([1, 5] * 32, dtype=dtype))


@pytest.mark.parametrize("axis", [0, 1])
def test_T01_scans(axis):
    x, y = numbers(16, 32), numbers(16, 32, seed=1).clamp(-1.5, 1.5)
    sums, products, back, recurrence = (empty(16, 32) for _ in range(4))
    kernels.scans[(1,)](*on_device(x, y), sums, products, back, recurrence, M=16, N=32, AXIS=axis)
    close(sums, x.cumsum(axis), rtol=1e-4, atol=1e-5)
    close(products, y.cumprod(axis), rtol=1e-4, atol=1e-5)
    close(back, x.flip(axis).cumsum(axis).flip(axis), rtol=1e-4, atol=1e-5)
    state = torch.zeros_like(x.select(axis, 0))
    states = []
    for a, b in zip(y.unbind(axis), x.unbind(axis), strict=True):
        state = a * state + b
        states.append(state)
    close(recurrence, torch.stack(states, axis), rtol=1e-4, atol=1e-4)


def test_T01_while_loop():
    x, out, steps = torch.arange(64.0), empty(64), empty(1, dtype=torch.int32)
    kernels.while_loop[(1,)](x.to(DEVICE), out, steps, 1000.0, BLOCK=64)
    count = 0
    while x.max() < 1000:
        x, count = x * 2 + 1, count + 1
    same(out, x)
    assert steps.item() == count


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_T01_orders(dtype):
    x = torch.randperm(8 * 32).reshape(8, 32).to(dtype)
    places = torch.randint(0, 32, (8, 32), dtype=torch.int32)
    ascending, descending, joined, gathered, flipped = (empty(8, 32, dtype=dtype) for _ in range(5))
    best = empty(24, dtype=dtype)
    kernels.orders[(1,)](
        x.to(DEVICE), ascending, descending, joined, gathered, flipped, best, places.to(DEVICE), M=8, N=32
    )
    same(ascending, x.sort(1).values)
    same(descending, x.sort(1, descending=True).values)
    same(joined, x.reshape(8, 16, 2).flip(2).reshape(8, 32))
    same(gathered, x.gather(1, places.long()))
    same(flipped, x.flip(1))
    lowest = x.min(1)
    same(best, torch.cat([x.argmax(1), lowest.indices, lowest.values]).to(dtype))


def test_T01_a_chain_longer_than_calls_can_nest():
    x, out = numbers(64, dtype=torch.int32), empty(64, dtype=torch.int32)
    kernels.mixed[(1,)](x.to(DEVICE), out, TURNS=500, N=64)
    for turn in range(500):
        x = (x * 3) ^ (x >> 2)
        x = x + x.sum(dtype=torch.int32) if turn % 16 == 0 else x
    same(out, x)


def test_T01_shapes():
    x = numbers(8, 16)
    transposed, permuted, cat, interleaved, broadcast = empty(16, 8), empty(128), empty(256), empty(256), empty(8, 16)
    kernels.shapes[(1,)](x.to(DEVICE), transposed, permuted, cat, interleaved, broadcast, M=8, N=16)
    same(transposed, x.t().contiguous())
    same(permuted, x.reshape(8, 4, 4).permute(2, 0, 1).reshape(-1))
    flat = x.reshape(-1)
    same(cat.sort().values, torch.cat([flat, flat + 1]).sort().values)
    same(interleaved, torch.stack([flat, -flat], 1).reshape(-1))
    close(broadcast, x.sum(1, keepdim=True) + x.max(0).values, rtol=1e-5, atol=1e-5)


def test_T01_early_return():
    x, out = numbers(4, 64), torch.zeros(6, 64, device=DEVICE)
    kernels.early_return[(6,)](x.to(DEVICE), out, 256, BLOCK=64)
    expected = torch.where(x.sum(1, keepdim=True) < 0, -x, x + 1)
    same(out, torch.cat([expected, torch.zeros(2, 64)]))


def test_T01_a_function_that_is_not_inlined():
    x, out = numbers(3, 64), empty(3, 3)
    kernels.not_inlined[(1,)](x.to(DEVICE), out, BLOCK=64)
    total = x.sum(1) * 2
    close(out, torch.stack([total, x.amax(1) * 2, x.sum(1) * total], 1), rtol=1e-4, atol=1e-4)


def test_T01_descriptors():
    x, out = numbers(50, 70), empty(50, 72)[:, :70].contiguous()
    kernels.descriptors[(4, 3)](x[:, :68].contiguous().to(DEVICE), out, 50, 68, BM=16, BN=32)
    close(out.reshape(-1)[: 50 * 68].reshape(50, 68), x[:, :68] * 2)


def test_T01_descriptors_of_the_host():
    from triton.tools.tensor_descriptor import TensorDescriptor

    x = numbers(48, 64).to(DEVICE)
    out = torch.zeros(48, 64, device=DEVICE)
    source, target = (TensorDescriptor(t, list(t.shape), list(t.stride()), [16, 32]) for t in (x, out))
    kernels.host_descriptors[(3, 2)](source, target, BM=16, BN=32)
    same(out, x.cpu() + 1)


@pytest.mark.skipif(not hasattr(tl, "advance"), reason="Triton 3.9 has no block pointers")
def test_T01_block_pointers():
    x, out = numbers(50, 70), empty(50, 70)
    kernels.block_pointers[(4,)](x.to(DEVICE), out, 50, 70, BM=16, BN=32)
    same(out, x * 2)


@pytest.mark.parametrize(
    ("to", "dtype"),
    [
        (tl.float8e4nv, torch.float8_e4m3fn),
        (tl.float8e5, torch.float8_e5m2),
        (tl.bfloat16, torch.bfloat16),
        (tl.int8, torch.int8),
        (tl.float64, torch.float64),
    ],
)
def test_T01_casts(to, dtype):
    x, out = numbers(64) * 10, empty(64)
    kernels.casts[(1,)](x.to(DEVICE), out, TO=to, BLOCK=64)
    same(out, x.to(dtype).float())


def test_T01_bits():
    x, out = numbers(64), empty(64, dtype=torch.int32)
    kernels.bits[(1,)](x.to(DEVICE), out, TO=tl.int32, BLOCK=64)
    same(out, x.view(torch.int32))


def test_T01_grid():
    out = empty(4, 3, 2, dtype=torch.int64)
    kernels.grid[(2, 3, 4)](out, X=2, Y=3)
    expected = torch.tensor([[[20304000 + x * 100 + y * 10 + z for x in range(2)] for y in range(3)] for z in range(4)])
    same(out, expected)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_T01_integers(dtype):
    x, y = torch.randint(-(2**31), 2**31 - 1, (2, 64)).to(dtype)
    if dtype == torch.int64:
        x, y = x * 1234567, y * 7654321
    out = empty(8, 64, dtype=dtype)
    kernels.integers[(1,)](*on_device(x, y), out, 64, BLOCK=64)
    bits = 32 if dtype == torch.int32 else 64
    products = [(int(a) % 2**bits) * (int(b) % 2**bits) >> bits for a, b in zip(x, y, strict=True)]
    high = torch.tensor([p - 2**bits if p >= 2 ** (bits - 1) else p for p in products]).to(dtype)
    quotient = torch.div(x, y, rounding_mode="trunc")
    expected = [quotient, x - quotient * y, (x << 3) ^ (y >> 1), torch.where(x < y, x & y, x | y)]
    expected += [torch.minimum(x, y) - torch.maximum(x, y), high, x.abs(), torch.div(x + 6, 7, rounding_mode="trunc")]
    same(out, torch.stack(expected))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_T01_functions(dtype):
    x, out = numbers(64).to(dtype), empty(16, 64, dtype=dtype)
    kernels.functions[(1,)](x.to(DEVICE), out, 64, BLOCK=64)
    a = x.abs()
    rounded = (a + 0.5).floor().copysign(x)
    expected = [x.exp(), a.log(), x.sin() + x.cos(), a.rsqrt(), x.erf(), x.floor() + x.ceil(), x.sigmoid(), x * x + x]
    expected += [
        x.clamp(-1, 1),
        x.tanh(),
        a.pow(x),
        x.atan2(x + 1),
        rounded,
        x.fmod(x + 2),
        x.exp2() + a.log2(),
        x / 3 + a.sqrt(),
    ]
    close(out, torch.stack(expected), rtol=1e-5 if dtype == torch.float32 else 1e-7, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_T01_quotients_toward_zero(dtype):
    x, y, out = numbers(512, dtype=dtype), numbers(512, seed=1, dtype=dtype), empty(512, dtype=dtype)
    x[:6] = torch.tensor([1.0, -1.0, 0.0, float("inf"), 6.0, 3e38])
    y[:6] = torch.tensor([0.0, 0.0, 0.0, 2.0, 2.0, 0.1])
    kernels.quotients[(1,)](*on_device(x, y), out, BLOCK=512)
    expected = x / y
    exact = [Fraction(a) / Fraction(b) for a, b in zip(x[6:].tolist(), y[6:].tolist(), strict=True)]
    too_large = [abs(Fraction(found)) > abs(true) for found, true in zip(expected[6:].tolist(), exact, strict=True)]
    assert any(too_large)
    smaller = expected[6:].nextafter(torch.zeros(506, dtype=dtype))
    expected[6:] = torch.where(torch.tensor(too_large), smaller, expected[6:])
    if dtype == torch.float32:
        expected[5] = torch.finfo(dtype).max  # instead of infinity
    torch.testing.assert_close(out.cpu(), expected, rtol=0, atol=0, equal_nan=True)


def test_T01_batched_dot():
    a, b, out = numbers(2, 16, 32), numbers(2, 32, 16, seed=1), empty(2, 16, 16)
    kernels.batched_dot[(1,)](*on_device(a, b), out, G=2, M=16, N=16, K=32)
    close(out, a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("dtype", "to"),
    [
        (torch.int8, torch.int32),
        (torch.float64, torch.float64),
        (torch.float8_e5m2, torch.float32),
        (torch.float16, torch.float16),
    ],
)
def test_T01_dot_of_a_dtype(dtype, to):
    a = (numbers(16, 32) * 3).to(dtype)
    b = (numbers(32, 16, seed=1) * 3).to(dtype)
    out = empty(16, 16, dtype=to)
    kernels.plain_dot[(1,)](*on_device(a, b), out, M=16, N=16, K=32)
    close(out, (a.double() @ b.double()).to(to), rtol=1e-2, atol=1e-3)


def test_T01_nested_tuples():
    x, y, out = numbers(64), numbers(64, seed=1), empty(64)
    kernels.nested[(1,)]((x.to(DEVICE), (y.to(DEVICE), 2.5)), (7,), out, BLOCK=64)
    close(out, x * 2.5 + y + 7)


def test_T01_a_mask_of_16_bits_guards_32():
    """GCC 12 takes the mask of the first elements for those of all, unless it leaves the short loop in the long one."""
    x, kinds, out = numbers(4, 16), torch.arange(64, dtype=torch.int16).mul(7).remainder(5), empty(2, 4, 16)
    kernels.where_kinds_differ[(1,)](x.to(DEVICE), kinds.to(DEVICE), out, 2, 12, M=4, N=16)
    differ = kinds.view(4, 16) != 2
    differ[:2] = False
    read = torch.where(differ, x, 2.0)
    same(out[0, :2], read[:2] + kinds.view(4, 16)[:2])
    same(out[1, :, :12], read[:, :12])


def test_T01_pointers_in_memory():
    parts = [numbers(32, seed=seed).to(DEVICE) for seed in range(3)]
    table = torch.tensor([part.data_ptr() for part in parts], device=DEVICE)
    out = empty(3, 32)
    kernels.pointers_in_memory[(3,)](table, out, BLOCK=32)
    same(out, torch.stack(parts).cpu())


def test_T01_what_loops_carry():
    x, out = numbers(256), empty(3, 64)
    kernels.carried[(1,)](x.to(DEVICE), out, 5, BLOCK=64)
    a, b, total = x[:64], x[64:128], torch.zeros(64)
    for i in range(5):
        a, b = b, a + 1
        inner = sum(x[i + j : i + j + 64] for j in range(i, i + 2))
        total = total + inner + total.flip(0)
    close(out, torch.stack([a, b, total]), rtol=1e-5, atol=1e-5)
