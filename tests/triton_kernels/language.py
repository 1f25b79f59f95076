"""Kernels that try the language, one subject each. ``DEVICE`` is where the tensors are."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n
    tl.store(out + places, tl.load(x + places, mask=mask) + tl.load(y + places, mask=mask), mask=mask)


@triton.jit
def softmax(out, x, out_stride, x_stride, n, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * x_stride + columns, mask=columns < n, other=-float("inf"))
    power = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * out_stride + columns, power / tl.sum(power, 0), mask=columns < n)


@triton.jit
def matmul(a, b, c, m, n, k, sam, sak, sbk, sbn, scm, scn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    pa = a + rows[:, None] * sam + depth[None, :] * sak
    pb = b + depth[:, None] * sbk + columns[None, :] * sbn
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, k, BK):
        x = tl.load(pa, mask=(rows[:, None] < m) & (depth[None, :] < k - first), other=0.0)
        y = tl.load(pb, mask=(columns[None, :] < n) & (depth[:, None] < k - first), other=0.0)
        sums = tl.dot(x, y, sums)
        pa += BK * sak
        pb += BK * sbk
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * scm + columns[None, :] * scn, sums.to(c.dtype.element_ty), mask=mask)


@triton.jit
def layer_norm(x, out, weight, bias, mean_out, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x += row * n
    out += row * n
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(0, n, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        total += tl.load(x + columns, mask=columns < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(0, n, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        value = tl.load(x + columns, mask=columns < n, other=0.0).to(tl.float32)
        value = tl.where(columns < n, value - mean, 0.0)
        squares += value * value
    scale = 1 / tl.sqrt(tl.sum(squares, axis=0) / n + eps)
    tl.store(mean_out + row, mean)
    for first in range(0, n, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        mask = columns < n
        value = (tl.load(x + columns, mask=mask).to(tl.float32) - mean) * scale
        value = value * tl.load(weight + columns, mask=mask) + tl.load(bias + columns, mask=mask)
        tl.store(out + columns, value.to(out.dtype.element_ty), mask=mask)


@triton.jit
def two_ends(x, out, m, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < m, other=1) * 2, mask=at < n)


@triton.jit
def sums_of_rows(x, out, m, n, START: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, STEP: tl.constexpr):
    """Sums that loops of any number of turns carry to reductions, with masks of each comparison."""
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN)
    total, highest = tl.full([BM, BN], 1.0, tl.float32), tl.full([BM, BN], -1e30, tl.float32)
    last, odd = tl.full([BN // 2], 0.0, tl.float32), tl.full([BN // 2], 0.5, tl.float32)
    p = x + rows[:, None] * n + columns[None, :] + START
    for first in range(START, n, STEP):
        at = first + columns
        value = tl.load(p, mask=(rows[:, None] <= m - 1) & (at[None, :] <= n - 1) & (columns[None, :] < STEP), other=0)
        total += value
        highest = tl.maximum(highest, tl.where(n > at[None, :], value, -2e30))
        p += STEP
    for first in range(START, n, STEP):
        at = first + columns
        value = tl.load(x + at, mask=(n - 1 >= at) & (columns < STEP), other=0)
        last, b = tl.split(tl.reshape(value, (BN // 2, 2)))
        odd += b
    least = tl.max(highest, 1)
    tl.store(out + rows, tl.sum(total, 1), mask=rows < m)
    tl.store(out + m + rows, tl.where(least < 0, least, least * 2), mask=rows < m)
    if tl.program_id(0) == 0:
        tl.store(out + 2 * m, tl.sum(last, 0) * 1000)
        tl.store(out + 2 * m + 1, tl.sum(odd, 0))


@triton.jit
def locked_sum(x, out, lock, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    part = tl.load(x + tl.program_id(0) * BLOCK + columns)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out + columns, tl.load(out + columns) + part)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def attention(q, k, v, out, scale, length, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    head = tl.program_id(1)
    q += head * length * D
    k += head * length * D
    v += head * length * D
    out += head * length * D
    rows, dims, keys = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D), tl.arange(0, BN)
    query = tl.load(q + rows[:, None] * D + dims[None, :], mask=rows[:, None] < length, other=0.0)
    highest = tl.full([BM], -float("inf"), dtype=tl.float32)
    total = tl.zeros([BM], dtype=tl.float32)
    sums = tl.zeros([BM, D], dtype=tl.float32)
    end = tl.minimum(length, (tl.program_id(0) + 1) * BM) if CAUSAL else length
    for first in range(0, end, BN):
        places = first + keys
        key = tl.load(k + places[None, :] * D + dims[:, None], mask=places[None, :] < length, other=0.0)
        scores = tl.dot(query, key) * scale
        mask = places[None, :] < length
        if CAUSAL:
            mask = mask & (rows[:, None] >= places[None, :])
        scores = tl.where(mask, scores, -float("inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        powers = tl.exp(scores - higher[:, None])
        fall = tl.exp(highest - higher)
        total = total * fall + tl.sum(powers, 1)
        value = tl.load(v + places[:, None] * D + dims[None, :], mask=places[:, None] < length, other=0.0)
        sums = sums * fall[:, None] + tl.dot(powers.to(value.dtype), value)
        highest = higher
    result = sums / total[:, None]
    tl.store(out + rows[:, None] * D + dims[None, :], result.to(out.dtype.element_ty), mask=rows[:, None] < length)


@triton.jit
def dropout(x, out, n, p, seed, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.rand(seed, places) > p
    value = tl.load(x + places, mask=places < n)
    tl.store(out + places, tl.where(keep, value / (1 - p), 0.0), mask=places < n)


@triton.jit
def random_numbers(out, seed, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    a, b, c, d = tl.randint4x(seed, places)
    tl.store(out + places, a)
    tl.store(out + BLOCK + places, b)
    tl.store(out + 2 * BLOCK + places, c)
    tl.store(out + 3 * BLOCK + places, d)


@triton.jit
def histogram(x, out, BLOCK: tl.constexpr, BINS: tl.constexpr):
    counts = tl.histogram(tl.load(x + tl.arange(0, BLOCK)), BINS)
    tl.store(out + tl.arange(0, BINS), counts)


@triton.jit
def atomics(sums, highest, lowest, old, x, places, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    value, place = tl.load(x + at, mask=mask), tl.load(places + at, mask=mask)
    tl.atomic_add(sums + place, value, mask=mask)
    tl.atomic_max(highest + place, value, mask=mask)
    tl.atomic_min(lowest + place, value, mask=mask)
    tl.store(old + at, tl.atomic_add(old + n + at, value, mask=mask), mask=mask)


@triton.jit
def add_into(sums, x, places, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.atomic_add(sums + tl.load(places + at), tl.load(x + at))


@triton.jit
def atomic_bits(ands, ors, xors, exchanged, x, BLOCK: tl.constexpr):
    value = tl.load(x + tl.arange(0, BLOCK))
    tl.atomic_and(ands + tl.arange(0, BLOCK) % 4, value)
    tl.atomic_or(ors + tl.arange(0, BLOCK) % 4, value)
    tl.atomic_xor(xors + tl.arange(0, BLOCK) % 4, value)
    tl.atomic_xchg(exchanged + tl.arange(0, BLOCK), value)


@triton.jit
def swap(x, out, expected, desired, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    old = tl.atomic_cas(
        x + places, tl.full([BLOCK], expected, x.dtype.element_ty), tl.full([BLOCK], desired, x.dtype.element_ty)
    )
    tl.store(out + places, old)


@triton.jit
def _first_order(a1, b1, a2, b2):
    return a1 * a2, a2 * b1 + b2


@triton.jit
def scans(x, y, sums, products, back, recurrence, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr):
    places = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    value, other = tl.load(x + places), tl.load(y + places)
    tl.store(sums + places, tl.cumsum(value, AXIS))
    tl.store(products + places, tl.cumprod(other, AXIS))
    tl.store(back + places, tl.cumsum(value, AXIS, reverse=True))
    _, state = tl.associative_scan((other, value), AXIS, _first_order)
    tl.store(recurrence + places, state)


@triton.jit
def while_loop(x, out, steps, limit, BLOCK: tl.constexpr):
    value = tl.load(x + tl.arange(0, BLOCK))
    count = 0
    while (tl.max(value, 0) < limit) & (count < 50):
        value = value * 2 + 1
        count += 1
    tl.store(out + tl.arange(0, BLOCK), value)
    tl.store(steps, count)


@triton.jit
def orders(x, ascending, descending, joined, gathered, flipped, best, places, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    value = tl.load(x + at)
    tl.store(ascending + at, tl.sort(value, 1))
    tl.store(descending + at, tl.sort(value, 1, descending=True))
    first, second = tl.split(tl.reshape(value, (M, N // 2, 2)))
    tl.store(joined + at, tl.reshape(tl.join(second, first), (M, N)))
    index = tl.load(places + at)
    tl.store(gathered + at, tl.gather(value, index, 1))
    tl.store(flipped + at, tl.flip(value, 1))
    tl.store(best + tl.arange(0, M), tl.argmax(value, 1))
    highest, where = tl.min(value, 1, return_indices=True)
    tl.store(best + M + tl.arange(0, M), where)
    tl.store(best + 2 * M + tl.arange(0, M), highest)


@triton.jit
def shapes(x, transposed, permuted, cat, interleaved, broadcast, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    value = tl.load(x + at)
    tl.store(transposed + tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :], value.T)
    cube = tl.reshape(value, (M, N // 4, 4))
    tl.store(permuted + tl.arange(0, M * N), tl.ravel(tl.permute(cube, (2, 0, 1))))
    flat = tl.ravel(value)
    tl.store(cat + tl.arange(0, 2 * M * N), tl.cat(flat, flat + 1, can_reorder=True))
    tl.store(interleaved + tl.arange(0, 2 * M * N), tl.interleave(flat, -flat))
    rows = tl.sum(value, 1)
    tl.store(broadcast + at, tl.broadcast_to(rows[:, None], (M, N)) + tl.max(value, 0)[None, :])


@triton.jit
def early_return(x, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if tl.program_id(0) * BLOCK >= n:
        return
    value = tl.load(x + places)
    if tl.sum(value, 0) < 0:
        tl.store(out + places, -value)
        return
    tl.store(out + places, value + 1)


@triton.jit(noinline=True)
def _row_sum(x, row, scale, BLOCK: tl.constexpr):
    value = tl.load(x + row * BLOCK + tl.arange(0, BLOCK)) * scale
    return tl.sum(value, 0), tl.max(value, 0)


@triton.jit
def not_inlined(x, out, BLOCK: tl.constexpr):
    for row in range(3):
        total, highest = _row_sum(x, row, 2.0, BLOCK)
        again, _ = _row_sum(x, row, total, BLOCK)
        tl.store(out + row * 3, total)
        tl.store(out + row * 3 + 1, highest)
        tl.store(out + row * 3 + 2, again)


@triton.jit
def descriptors(x, out, m, n, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[m, n], strides=[n, 1], block_shape=[BM, BN])
    target = tl.make_tensor_descriptor(out, shape=[m, n], strides=[n, 1], block_shape=[BM, BN])
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    target.store([row, column], source.load([row, column]) * 2)


@triton.jit
def host_descriptors(source, target, BM: tl.constexpr, BN: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    target.store([row, column], source.load([row, column]) + 1)


@triton.jit
def block_pointers(x, out, m, n, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_block_ptr(x, (m, n), (n, 1), (tl.program_id(0) * BM, 0), (BM, BN), (1, 0))
    target = tl.make_block_ptr(out, (m, n), (n, 1), (tl.program_id(0) * BM, 0), (BM, BN), (1, 0))
    for _ in range(0, n, BN):
        value = tl.load(source, boundary_check=(0, 1), padding_option="zero")
        tl.store(target, value * 2, boundary_check=(0, 1))
        source = tl.advance(source, (0, BN))
        target = tl.advance(target, (0, BN))


@triton.jit
def casts(x, out, TO: tl.constexpr, BLOCK: tl.constexpr):
    value = tl.load(x + tl.arange(0, BLOCK))
    tl.store(out + tl.arange(0, BLOCK), value.to(TO).to(out.dtype.element_ty))


@triton.jit
def bits(x, out, TO: tl.constexpr, BLOCK: tl.constexpr):
    value = tl.load(x + tl.arange(0, BLOCK))
    tl.store(out + tl.arange(0, BLOCK), value.to(TO, bitcast=True))


@triton.jit
def grid(out, X: tl.constexpr, Y: tl.constexpr):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    sizes = tl.num_programs(0) * 10000 + tl.num_programs(1) * 100 + tl.num_programs(2)
    tl.store(out + (z * Y + y) * X + x, sizes * 1000 + x * 100 + y * 10 + z)


@triton.jit
def integers(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, a // b)
    tl.store(out + n + at, a % b)
    tl.store(out + 2 * n + at, (a << 3) ^ (b >> 1))
    tl.store(out + 3 * n + at, tl.where(a < b, a & b, a | b))
    tl.store(out + 4 * n + at, tl.minimum(a, b) - tl.maximum(a, b))
    tl.store(out + 5 * n + at, tl.umulhi(a, b))
    tl.store(out + 6 * n + at, tl.abs(a))
    tl.store(out + 7 * n + at, tl.cdiv(a, 7))


@triton.jit
def functions(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at)
    tl.store(out + at, tl.exp(v))
    tl.store(out + n + at, tl.log(tl.abs(v)))
    tl.store(out + 2 * n + at, tl.sin(v) + tl.cos(v))
    tl.store(out + 3 * n + at, tl.rsqrt(tl.abs(v)))
    tl.store(out + 4 * n + at, tl.erf(v))
    tl.store(out + 5 * n + at, tl.floor(v) + tl.ceil(v))
    tl.store(out + 6 * n + at, tl.sigmoid(v))
    tl.store(out + 7 * n + at, tl.fma(v, v, v))
    tl.store(out + 8 * n + at, tl.clamp(v, -1.0, 1.0))
    tl.store(out + 9 * n + at, libdevice.tanh(v))
    tl.store(out + 10 * n + at, libdevice.pow(tl.abs(v), v))
    tl.store(out + 11 * n + at, libdevice.atan2(v, v + 1))
    tl.store(out + 12 * n + at, libdevice.round(v))
    tl.store(out + 13 * n + at, libdevice.fmod(v, v + 2))
    tl.store(out + 14 * n + at, tl.exp2(v) + tl.log2(tl.abs(v)))
    tl.store(out + 15 * n + at, v / 3.0 + tl.sqrt(tl.abs(v)))


@triton.jit
def mixed(x, out, TURNS: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    v = tl.load(x + at)
    for turn in tl.static_range(TURNS):
        v = (v * 3) ^ (v >> 2)
        if turn % 16 == 0:
            v += tl.sum(v, 0)
    tl.store(out + at, v)


@triton.jit
def quotients(x, y, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, libdevice.div_rz(tl.load(x + at), tl.load(y + at)))


@triton.jit
def batched_dot(a, b, out, G: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    g, m, n, k = tl.arange(0, G), tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + g[:, None, None] * (M * K) + m[None, :, None] * K + k[None, None, :])
    y = tl.load(b + g[:, None, None] * (K * N) + k[None, :, None] * N + n[None, None, :])
    tl.store(out + g[:, None, None] * (M * N) + m[None, :, None] * N + n[None, None, :], tl.dot(x, y))


@triton.jit
def plain_dot(a, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x, y = tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :])
    result = tl.dot(x, y, out_dtype=out.dtype.element_ty)
    tl.store(out + m[:, None] * N + n[None, :], result)


@triton.jit
def nested(pair, rest, out, BLOCK: tl.constexpr):
    x, second = pair
    y, scale = second
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) * scale + tl.load(y + at) + rest[0])


@triton.jit
def pointers_in_memory(table, out, BLOCK: tl.constexpr):
    source = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    at = tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0) * BLOCK + at, tl.load(source + at))


@triton.jit
def carried(x, out, n, BLOCK: tl.constexpr):
    """Loops that carry blocks in ways of their own: swapped, moved, pointers, from a loop in it."""
    at = tl.arange(0, BLOCK)
    a, b, p = tl.load(x + at), tl.load(x + BLOCK + at), x + at
    total = tl.zeros([BLOCK], tl.float32)
    for i in range(n):
        a, b = b, a + 1
        inner = tl.zeros([BLOCK], tl.float32)
        for j in range(i, i + 2):
            inner += tl.load(p + j)
        total += inner + tl.flip(total, 0)
        p += 1
    tl.store(out + at, a)
    tl.store(out + BLOCK + at, b)
    tl.store(out + 2 * BLOCK + at, total)


@triton.jit
def where_kinds_differ(x, kinds, out, m, n, M: tl.constexpr, N: tl.constexpr):
    """Of the first ``m`` rows none does."""
    rows, columns = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    places = rows * N + columns
    kind = tl.load(kinds + places, volatile=True)
    other = tl.load(kinds + places, mask=rows < m, other=2)
    read = tl.load(x + places, mask=kind != other, other=2)
    tl.store(out + places, read + (kind & 15).to(tl.float16), mask=rows < m)
    tl.store(out + M * N + places, read, mask=columns < n)
