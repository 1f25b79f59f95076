"""A block is read whole before one is written to the same tensor."""

import pytest
import torch
import triton
import triton.language as tl

DEVICE = "mydevice"


@triton.jit
def reversed_in_place(x, y, out, n, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(x + at, tl.load(x + N - 1 - at))


@triton.jit
def moved_by_one(x, y, out, n, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(x + 1 + at, tl.load(x + at) * 2, mask=at + 1 < N)


@triton.jit
def masked_by_others(x, y, out, n, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(x + at, at, mask=tl.load(x + N - 1 - at) % 2 == 0)


@triton.jit
def where_it_says(x, y, out, n, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(x + tl.load(x + at), at)


@triton.jit
def moved_by_a_loop(x, y, out, n, N: tl.constexpr):
    pointers = x + tl.arange(0, N // 2)
    for _ in range(n):
        value = tl.load(pointers)
        pointers += 1
        tl.store(pointers, value + 1)


@triton.jit
def moved_by_a_branch(x, y, out, n, N: tl.constexpr):
    to = y
    if n > 2:
        to = x
    at = tl.arange(0, N)
    tl.store(to + at, tl.load(x + N - 1 - at))


@triton.jit
def exchanged(x, y, out, n, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.atomic_xchg(x + at, tl.load(x + N - 1 - at)))


@triton.jit
def by_way_of_itself(x, y, out, n, N: tl.constexpr):
    at = tl.arange(0, N)
    rows = at[:, None] * 0 + tl.load(x + tl.arange(0, 4))[None, :]
    tl.store(x + at, tl.sum(tl.load(x + rows), 1) + tl.load(x + tl.load(x + at)))


@triton.jit
def behind_a_return(x, y, out, n, N: tl.constexpr):
    at = tl.arange(0, N)
    before = tl.load(x + N - 1 - at)
    if n > 5:
        return
    tl.store(x + at, at)
    tl.store(y + at, before)


@triton.jit
def behind_branches_and_a_return(x, y, out, n, N: tl.constexpr):
    at = tl.arange(0, N)
    before = tl.load(x + at)
    if n > 2:
        before = tl.load(x + N - 1 - at)
        if n > 5:
            return
    tl.store(x + at, at)
    tl.store(y + at, before)


def expected(kernel, x, y, out, n):
    flipped, at = x.flip(0), torch.arange(len(x), dtype=x.dtype)
    if kernel is reversed_in_place or kernel is moved_by_a_branch:
        return flipped, y, out
    if kernel is by_way_of_itself:
        return x[x[:4].long()].sum() + x[x.long()], y, out
    if kernel in (behind_a_return, behind_branches_and_a_return):
        return at, flipped, out
    if kernel is moved_by_one:
        return torch.cat([x[:1], x[:-1] * 2]), y, out
    if kernel is masked_by_others:
        return torch.where(flipped % 2 == 0, at, x), y, out
    if kernel is where_it_says:
        return x.argsort().to(x.dtype), y, out
    if kernel is exchanged:
        return flipped, y, x
    found, half = x.clone(), len(x) // 2
    for turn in range(n):
        found[turn + 1 : turn + 1 + half] = found[turn : turn + half] + 1
    return found, y, out


@pytest.mark.parametrize("length", [8, 256])
@pytest.mark.parametrize(
    "kernel",
    [
        reversed_in_place,
        moved_by_one,
        masked_by_others,
        where_it_says,
        moved_by_a_loop,
        moved_by_a_branch,
        exchanged,
        by_way_of_itself,
        behind_a_return,
        behind_branches_and_a_return,
    ],
)
def test_T01_a_block_is_read_before_one_is_written(kernel, length):
    x = torch.randperm(length, generator=torch.Generator().manual_seed(1)).int()
    tensors = [x, torch.zeros_like(x), torch.zeros_like(x)]
    on_device = [tensor.to(DEVICE) for tensor in tensors]
    kernel[(1,)](*on_device, 3, N=length)
    for found, right in zip(on_device, expected(kernel, *tensors, 3), strict=True):
        assert torch.equal(found.cpu(), right)
