"""Random numbers of the device's sequence in kernels of Triton: elements of dialect/philox.bpc, by seed and place."""
# Triton reads the annotations of its functions.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: ANN001, ANN201, ANN202

import triton
import triton.language as tl


@triton.jit
def _block(seed, place):
    block = place.to(tl.uint64) >> 2
    zero = tl.zeros_like(block).to(tl.uint32)
    return tl.philox(seed, (block & 0xFFFFFFFF).to(tl.uint32), (block >> 32).to(tl.uint32), zero, zero)


@triton.jit
def _one_of(place, n0, n1, n2, n3):
    low = tl.where((place & 1) != 0, n1, n0)
    return tl.where((place & 2) != 0, tl.where((place & 1) != 0, n3, n2), low)


@triton.jit
def _fraction(number):
    return (number >> 8).to(tl.float32) * (1.0 / 16777216.0)


@triton.jit
def uniform(seed, place):
    """A float32 in [0, 1)."""
    n0, n1, n2, n3 = _block(seed, place)
    return _fraction(_one_of(place, n0, n1, n2, n3))


@triton.jit
def normal(seed, place):
    """One of the pair of normal numbers at the place."""
    n0, n1, n2, n3 = _block(seed, place)
    second = (place & 2) != 0
    radius = tl.sqrt(-2.0 * tl.log(1.0 - _fraction(tl.where(second, n2, n0))))
    turn = _fraction(tl.where(second, n3, n1))
    # cos or sin of 2 pi u by an octant's polynomials
    quadrant = (turn * 4.0 + 0.5).to(tl.int32)
    x = (turn - quadrant.to(tl.float32) * 0.25) * 6.28318531
    z = x * x
    s = x + x * z * (-1.66666667e-1 + z * (8.33333310e-3 + z * (-1.98408743e-4 + z * 2.75258653e-6)))
    c = 1.0 + z * (-0.5 + z * (4.16666646e-2 + z * (-1.38887316e-3 + z * 2.44331571e-5)))
    is_odd = (quadrant & 1) != 0
    cosine = tl.where(is_odd, s, c)
    sine = tl.where(is_odd, c, s)
    cosine = tl.where(((quadrant + 1) & 2) != 0, -cosine, cosine)
    sine = tl.where((quadrant & 2) != 0, -sine, sine)
    return radius * tl.where((place & 1) != 0, sine, cosine)


@triton.jit
def between(seed, place, low, high):
    """An integer in low ... high - 1; all of them if both are equal."""
    n0, n1, n2, n3 = _block(seed, place)
    word = _one_of(place, n0, n1, n2, n3).to(tl.uint64)
    second = (place & 2) != 0
    words = (tl.where(second, n2, n0).to(tl.uint64) << 32) | tl.where(second, n3, n1).to(tl.uint64)
    count = (high - low).to(tl.uint64)
    is_word = (count - 1 < 268435455) | (count == 4294967296)
    rest = tl.where(is_word, word, words) % tl.where(count == 0, 1, count)
    return (low + tl.where(count == 0, words, rest).to(tl.int64)).to(tl.int64)
