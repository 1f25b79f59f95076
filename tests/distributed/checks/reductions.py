"""Collectives that compute: all_reduce, reduce, reduce_scatter in all its forms."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence

import pytest
import torch
import torch.distributed as dist
from rank import Rank

from checks import REDUCED, check, numbers, same

NO_AVERAGE = "ReduceOp.AVG is NCCL's"
FLOATS = [name for name in REDUCED if getattr(torch, name).is_floating_point]
INTEGERS = [name for name in REDUCED if not getattr(torch, name).is_floating_point]
OPERATIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "SUM": operator.add,
    "PRODUCT": operator.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}


def folded(name: str, parts: list[torch.Tensor]) -> torch.Tensor:
    """What that operation makes of the ranks' parts."""
    if name == "AVG":
        return functools.reduce(operator.add, parts) / len(parts)
    return functools.reduce(OPERATIONS[name], parts)


def reduces_all(w: Rank, operation: str, dtypes: Sequence[str]) -> None:
    for dtype in dtypes:
        x = numbers(w.rank, dtype=dtype).to(w.device)
        dist.all_reduce(x, op=getattr(dist.ReduceOp, operation))
        same(x, folded(operation, [numbers(r, dtype=dtype) for r in w.ranks]), (operation, dtype))


@check()
def all_reduce(w: Rank) -> None:
    for operation in ("SUM", "PRODUCT", "MIN", "MAX"):
        reduces_all(w, operation, REDUCED)
    for operation in ("BAND", "BOR", "BXOR"):
        reduces_all(w, operation, INTEGERS)


@check(gloo="its all_reduce takes no int16")
def all_reduce_of_int16(w: Rank) -> None:
    for operation in ("SUM", "MAX"):
        reduces_all(w, operation, ["int16"])


@check(sizes=(2,), gloo=NO_AVERAGE)  # halves of sums are exact
def all_reduce_averages(w: Rank) -> None:
    reduces_all(w, "AVG", FLOATS)


@check(sizes=(3,), gloo=NO_AVERAGE)
def all_reduce_averages_of_three(w: Rank) -> None:
    averages(w, FLOATS)


def averages(w: Rank, dtypes: Sequence[str]) -> None:
    """Rounded."""
    for dtype in dtypes:
        x = numbers(w.rank, dtype=dtype).to(w.device)
        dist.all_reduce(x, op=dist.ReduceOp.AVG)
        torch.testing.assert_close(x.cpu(), folded("AVG", [numbers(r, dtype=dtype) for r in w.ranks]))


@check()
def all_reduce_of_bools(w: Rank) -> None:
    for operation, expected in (("MAX", torch.logical_or), ("MIN", torch.logical_and), ("SUM", torch.logical_or)):
        x = numbers(w.rank, dtype="bool").to(w.device)
        dist.all_reduce(x, op=getattr(dist.ReduceOp, operation))
        same(x, functools.reduce(expected, [numbers(r, dtype="bool") for r in w.ranks]), operation)


@check()
def all_reduce_of_complex_numbers(w: Rank) -> None:
    for dtype in ("complex64", "complex128"):
        x = numbers(w.rank, dtype=dtype).to(w.device)
        dist.all_reduce(x)
        same(x, sum(numbers(r, dtype=dtype) for r in w.ranks), dtype)
        with pytest.raises(ValueError, match="complex"):
            dist.all_reduce(x, op=dist.ReduceOp.MAX)


@check(gloo=NO_AVERAGE)
def all_reduce_averages_complex_numbers(w: Rank) -> None:
    averages(w, ("complex64", "complex128"))


@check(gloo=NO_AVERAGE)
def all_reduce_averages_of_integers(w: Rank) -> None:
    """Toward zero, from either side."""
    for dtype in (*INTEGERS, "int16"):
        less = 0 if dtype == "uint8" else 4
        x = (numbers(w.rank, dtype=dtype) - less).to(w.device)
        dist.all_reduce(x, op=dist.ReduceOp.AVG)
        total = functools.reduce(operator.add, [numbers(r, dtype=dtype) - less for r in w.ranks])
        same(x, total.div(w.size, rounding_mode="trunc"), dtype)


def reduced_of_numbers(w: Rank, operation: str, values: list[list[int]], dtype: str) -> list[int]:
    """What an all_reduce makes of Python's numbers: a list for each rank."""
    x = torch.tensor(values[w.rank], dtype=getattr(torch, dtype)).to(w.device)
    dist.all_reduce(x, op=getattr(dist.ReduceOp, operation))
    found: list[int] = x.cpu().tolist()
    return found


UNSIGNED: dict[str, Callable[[list[int]], int]] = {
    "SUM": sum,
    "PRODUCT": math.prod,
    "MIN": min,
    "MAX": max,
    "BAND": lambda of_all: functools.reduce(operator.and_, of_all),
    "BOR": lambda of_all: functools.reduce(operator.or_, of_all),
    "BXOR": lambda of_all: functools.reduce(operator.xor, of_all),
}


@check(gloo="its reductions take none of these dtypes")
def all_reduce_of_unsigned_integers(w: Rank) -> None:
    """On both sides of the half where signed ones are negative; they wrap around, as Python's modulo."""
    for bits in (16, 32, 64):
        half = 1 << (bits - 1)
        values = [[3 + r, half - 2 + r, half + 5 * r, (1 << bits) - 1 - r] for r in w.ranks]
        for operation, of_all in UNSIGNED.items():
            expected = [of_all(list(column)) % (1 << bits) for column in zip(*values, strict=True)]
            assert reduced_of_numbers(w, operation, values, f"uint{bits}") == expected, (bits, operation)


@check(gloo=NO_AVERAGE)
def all_reduce_averages_of_unsigned_integers(w: Rank) -> None:
    """Of sums that are negative as signed integers, and smaller ones."""
    for bits in (16, 32, 64):
        part = (3 << (bits - 2)) // w.size
        values = [[part + 7 * r, part + 1, 5 + r, 0] for r in w.ranks]
        expected = [sum(column) // w.size for column in zip(*values, strict=True)]
        assert max(sum(column) for column in zip(*values, strict=True)) > 1 << (bits - 1)
        assert reduced_of_numbers(w, "AVG", values, f"uint{bits}") == expected, bits


@check(gloo="its reductions take no float8")
def all_reduce_of_float8(w: Rank) -> None:
    """Rounded once, behind the sum in float32."""
    for dtype in ("float8_e4m3fn", "float8_e5m2"):
        parts = [numbers(r, dtype=dtype) for r in w.ranks]
        for operation in ("SUM", "PRODUCT", "MIN", "MAX", "AVG"):
            x = parts[w.rank].to(w.device)
            dist.all_reduce(x, op=getattr(dist.ReduceOp, operation))
            expected = folded(operation, [part.float() for part in parts]).to(getattr(torch, dtype))
            same(x, expected, (dtype, operation))


@check()
def all_reduce_gives_all_ranks_the_same_bits(w: Rank) -> None:
    """Of numbers whose sum depends on the order: replicas that are updated by it stay equal."""
    torch.manual_seed(w.rank)
    for operation in ("SUM", "PRODUCT"):
        x = torch.randn(100003).to(w.device)
        dist.all_reduce(x, op=getattr(dist.ReduceOp, operation))
        of_all = [torch.empty_like(x) for _ in w.ranks]
        dist.all_gather(of_all, x)
        for r in w.ranks:
            assert torch.equal(of_all[r].cpu().view(torch.int32), x.cpu().view(torch.int32)), (operation, r)


@check()
def all_reduce_of_scalars_and_nothing(w: Rank) -> None:
    x = numbers(w.rank, ()).to(w.device)
    dist.all_reduce(x)
    same(x, sum(numbers(r, ()) for r in w.ranks))
    empty = torch.empty(0, 3, device=w.device)
    dist.all_reduce(empty)
    assert empty.shape == (0, 3)


@check(gloo="it wants contiguous tensors")
def all_reduce_of_dense_tensors(w: Rank) -> None:
    """Channels last and transposed: in place, in the strides they have."""
    for make in (
        lambda t: t.contiguous(memory_format=torch.channels_last),
        lambda t: t.transpose(1, 3),
        lambda t: t[1:],
    ):
        x = make(numbers(w.rank, (3, 4, 5, 6)).to(w.device))
        strides, pointer = x.stride(), x.data_ptr()
        dist.all_reduce(x)
        same(x.contiguous(), sum(make(numbers(r, (3, 4, 5, 6))) for r in w.ranks).contiguous())
        assert (x.stride(), x.data_ptr()) == (strides, pointer)


@check()
def all_reduce_leaves_what_lies_beside(w: Rank) -> None:
    whole = torch.full((100,), 7.0, device=w.device)
    dist.all_reduce(whole[10:20])
    expected = torch.full((100,), 7.0)
    expected[10:20] *= w.size
    same(whole, expected)


@check()
def reduce(w: Rank) -> None:
    for dtype in REDUCED:
        for dst in w.ranks:
            x = numbers(w.rank, dtype=dtype).to(w.device)
            dist.reduce(x, dst)
            whose = list(w.ranks) if w.rank == dst else [w.rank]
            if w.is_cpu and w.rank != dst:
                continue  # Gloo writes into the tensors of the others
            same(x, folded("SUM", [numbers(r, dtype=dtype) for r in whose]), (dtype, dst))


@check(gloo=NO_AVERAGE)
def reduce_by_other_operations(w: Rank) -> None:
    for operation in ("MAX", "MIN", "PRODUCT"):
        x = numbers(w.rank).to(w.device)
        dist.reduce(x, w.size - 1, op=getattr(dist.ReduceOp, operation))
        if w.rank == w.size - 1:
            same(x, folded(operation, [numbers(r) for r in w.ranks]), operation)


@check()
def reduce_scatter_of_a_list(w: Rank) -> None:
    for dtype in REDUCED:
        out = torch.empty(5, 3, dtype=getattr(torch, dtype), device=w.device)
        dist.reduce_scatter(out, [numbers(w.rank, dtype=dtype, seed=d).to(w.device) for d in w.ranks])
        same(out, folded("SUM", [numbers(r, dtype=dtype, seed=w.rank) for r in w.ranks]), dtype)


@check()
def reduce_scatter_of_a_tensor(w: Rank) -> None:
    for dtype in REDUCED:
        for operation in ("SUM", "MAX"):
            out = torch.empty(2, 3, dtype=getattr(torch, dtype), device=w.device)
            dist.reduce_scatter_tensor(
                out, numbers(w.rank, (2 * w.size, 3), dtype).to(w.device), op=getattr(dist.ReduceOp, operation)
            )
            parts = [numbers(r, (2 * w.size, 3), dtype).chunk(w.size)[w.rank] for r in w.ranks]
            same(out, folded(operation, parts), (dtype, operation))


@check(gloo=NO_AVERAGE)
def reduce_scatter_averages(w: Rank) -> None:
    out = torch.empty(2, 3, device=w.device)
    dist.reduce_scatter_tensor(out, numbers(w.rank, (2 * w.size, 3)).to(w.device), op=dist.ReduceOp.AVG)
    expected = folded("AVG", [numbers(r, (2 * w.size, 3)).chunk(w.size)[w.rank] for r in w.ranks])
    torch.testing.assert_close(out.cpu(), expected)


@check(gloo="it takes equal parts")
def reduce_scatter_of_parts_of_different_sizes(w: Rank) -> None:
    out = torch.empty(w.rank + 1, 2, device=w.device)
    dist.reduce_scatter(out, [numbers(w.rank, (d + 1, 2), seed=d).to(w.device) for d in w.ranks])
    same(out, sum(numbers(r, (w.rank + 1, 2), seed=w.rank) for r in w.ranks))


@check()
def reduce_scatter_in_place(w: Rank) -> None:
    """The result lies in the argument, where a sharded parameter's gradient does."""
    whole = numbers(w.rank, (2 * w.size, 3)).to(w.device)
    own = whole.chunk(w.size)[w.rank]
    dist.reduce_scatter_tensor(own, whole)
    same(own, sum(numbers(r, (2 * w.size, 3)).chunk(w.size)[w.rank] for r in w.ranks))
