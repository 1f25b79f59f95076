"""What a module that Inductor wrote calls when it is loaded: text becomes a kernel that can be called."""

from __future__ import annotations

import math
import struct
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from torch_backplane import _backend

LIBRARY = ["math.bpc", "special.bpc", "philox.bpc", "generated.bpc"]


def files_of(definitions: str) -> list[str]:
    """The dialect's library in front of a kernel with these definitions."""
    return [*LIBRARY, "tiles.bpc"] if definitions else LIBRARY


def kernel_object(
    name: str,
    text: str,
    *,
    pointers: int,
    values: int,
    written: int,
    per_item: int,
    extents: Sequence[tuple[int, int, int]],
    reports: bool,
    device: int = 0,
    definitions: str = "",
) -> Any:
    """A kernel, not compiled yet: a callable of tensors, then numbers.

    Args:
        name: for messages.
        text: of ``BP_KERNEL(generated, ...)``.
        pointers: how many tensors a call takes.
        values: how many numbers follow them.
        written: bit i says that the kernel writes tensor i.
        per_item: BP_PER_ITEM.
        extents: what the number of groups is the product of: a length, or the number of the call that is one; and how
            many elements of it a group takes, 0 for a tile of its lanes, -n for n of each item. The groups of parts,
            apart by (0, -2, 0), are added.
        reports: the kernel tells of places that are out of range.
        device: the index of the one that the graph is for.
        definitions: lines that the library's tiles need (dialect/tiles.bpc), of a kernel that multiplies by them.
    """
    return _backend.C.modules.generated_kernel(
        name, definitions, text, files_of(definitions), per_item, pointers, values, written, reports, list(extents)
    )


def generated_kernel(async_compile: Any, name: str, text: str, *, device: int, **facts: Any) -> Any:
    """A kernel, or a future of Inductor's that becomes it when the module has been read whole.

    Args:
        async_compile: Inductor's ``AsyncCompile``; its threads compile.
        name: as the other arguments, of :func:`kernel_object`.
        text: of ``BP_KERNEL(generated, ...)``.
        device: the index of the one that it is compiled for first.
        facts: the rest.

    Raises:
        RuntimeError: with the compiler's log, from the future. At once in a forked child of a process that has used the
            device: it has not the threads that would compile, and would wait for them.
    """
    getattr(torch, _backend.device)._lazy_init()
    kernel = kernel_object(name, text, **facts)

    def compiled() -> Any:
        try:
            kernel.prepare(device)
        except RuntimeError as error:
            raise RuntimeError(
                f'{error}\nbackend="aot_eager" of torch.compile runs without kernels of its own'
            ) from error
        return kernel

    return async_compile.submit(compiled)


def bits_of(number: torch.Tensor) -> int:
    """Of a number on the CPU: what a kernel takes for it, its bits in an integer."""
    if number.dtype.is_floating_point:
        number = number.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[number.itemsize])
    value = int(number.item())
    return value - 2**64 if value >= 2**63 else value


def bits_of_float64(number: float) -> int:
    """Of a number that a call has computed, its double's."""
    return int.from_bytes(struct.pack("<d", number), "little", signed=True)


def bits_of_float32(number: float) -> int:
    """The same of its float32's, infinity where it is too large for one."""
    try:
        return int.from_bytes(struct.pack("<f", number), "little")
    except OverflowError:
        return int.from_bytes(struct.pack("<f", math.copysign(math.inf, number)), "little")


@cache
def without_graphs() -> None:
    """Say once that a mode of ``torch.compile`` asked for graphs, from the first module that was written under it."""
    warnings.warn(
        f"torch.compile's modes reduce-overhead and max-autotune run on {_backend.device} without graphs, kernel by "
        "kernel: torch records graphs of CUDA alone. "
        f"torch.{_backend.device}.make_graphed_callables records a module's passes on every driver that has graphs; "
        'mode="max-autotune-no-cudagraphs", or none, asks for no graphs',
        stacklevel=2,
    )
