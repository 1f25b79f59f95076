"""Checks that every rank of a world runs: functions of a Rank, one module a subject.

Numbers are small integers, so that all sums and products are exact in every dtype and order, and equality is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist

REDUCED = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64")
MOVED = (*REDUCED, "int16", "bool", "complex64", "float8_e4m3fn", "float8_e5m2")


def check(
    sizes: Sequence[int] = (2, 3), gloo: str = "", staged: str = "", native: str = "", bound: bool | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function a check.

    Args:
        sizes: of the worlds that run it.
        gloo: why Gloo itself, on the CPU, does not take it.
        staged: why the staged engine does not.
        native: why the native engine does not.
        bound: True: only for groups that are bound to a device (``device_id=``), for which torch splits groups; False:
            only for others, as in a bound one torch has no backend for the CPU.
    """

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        function.sizes, function.gloo = tuple(sizes), gloo  # type: ignore[attr-defined]
        function.staged, function.native, function.bound = staged, native, bound  # type: ignore[attr-defined]
        return function

    return mark


def checks_of(*modules: ModuleType) -> list[Callable[..., Any]]:
    """The checks that modules define."""
    return [
        function
        for module in modules
        for function in vars(module).values()
        if getattr(function, "sizes", None) and function.__module__ == module.__name__
    ]


def numbers(rank: int, shape: Sequence[int] = (5, 3), dtype: str = "float32", seed: int = 0) -> torch.Tensor:
    """What that rank has, on the CPU: the same on every rank that asks. Numbers 1 to 4, or False and True."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    type_ = getattr(torch, dtype)
    values = torch.randint(1, 5, tuple(shape), generator=generator)
    if type_ == torch.bool:
        return values > 2
    if type_.is_complex:
        return torch.complex(values.float(), torch.randint(1, 5, tuple(shape), generator=generator).float()).to(type_)
    return values.to(type_)


def total(w: Any, shape: Sequence[int] = (5, 3), dtype: str = "float32", seed: int = 0) -> torch.Tensor:
    """The sum of what all ranks have."""
    return sum(numbers(r, shape, dtype, seed) for r in w.ranks)  # type: ignore[return-value]


def adds_up(w: Any, group: Any = None) -> None:
    """A group of all ranks is usable."""
    x = numbers(w.rank).to(w.device)
    dist.all_reduce(x, group=group)
    same(x, total(w))


def exchanged(*operations: dist.P2POp) -> None:
    """Carry out a batch of messages."""
    for work in dist.batch_isend_irecv(list(operations)):
        work.wait()


def same(found: Any, expected: Any, what: object = "") -> None:
    """The same bits in the same shape and dtype, also of each tensor of a list; the message names ``what``."""
    if not isinstance(found, torch.Tensor):
        for i, (one, other) in enumerate(zip(found, expected, strict=True)):
            same(one, other, (what, i))
        return
    host = found.detach().cpu()
    if host.dtype.itemsize == 1 and host.dtype.is_floating_point:
        assert host.dtype == expected.dtype
        host, expected = host.view(torch.uint8), expected.view(torch.uint8)
    torch.testing.assert_close(host, expected, rtol=0, atol=0, msg=lambda text: f"{what}: {text}")
