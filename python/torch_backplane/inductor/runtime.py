"""Functions that a module written by Inductor calls: they make callable kernels from text."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import torch

from torch_backplane import _backend
from torch_backplane.inductor import LIBRARY


def files_of(definitions: str) -> list[str]:
    """The files of the dialect's library for a kernel with these definitions."""
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
        written: bit i is set if the kernel writes tensor i.
        per_item: BP_PER_ITEM.
        extents: the factors of the number of groups: a length, or the number of the call that is the length; and how
            many elements of it a group computes, 0 for a tile of its lanes, -n for n of each item. The groups of parts,
            separated by (0, -2, 0), are added.
        reports: whether the kernel reports places that are out of range.
        device: the index of the graph's device.
        definitions: macros of the library's tiles (dialect/tiles.bpc), for a kernel that multiplies by them.
    """
    return _backend.C.modules.generated_kernel(
        name, definitions, text, files_of(definitions), per_item, pointers, values, written, reports, list(extents)
    )


def generated_kernel(async_compile: Any, name: str, text: str, *, device: int, **facts: Any) -> Any:
    """A kernel, or a future of Inductor's that becomes the kernel after the whole module has been read.

    Args:
        async_compile: Inductor's ``AsyncCompile``; its threads compile.
        name: as in :func:`kernel_object`.
        text: of ``BP_KERNEL(generated, ...)``.
        device: the index of the device for which it is compiled first.
        facts: the other arguments of :func:`kernel_object`.

    Raises:
        RuntimeError: with the compiler's log, from the future. Immediately in a forked child of a process that has used
            the device: the compiling threads do not exist there.
    """
    getattr(torch, _backend.device)._lazy_init()
    kernel = kernel_object(name, text, **facts)

    def compiled() -> Any:
        try:
            kernel.prepare(device)
        except RuntimeError as error:
            raise RuntimeError(
                f'{error}\nbackend="aot_eager" of torch.compile runs without generated kernels'
            ) from error
        return kernel

    return async_compile.submit(compiled)


def bits_of(number: torch.Tensor) -> int:
    """The bits of a number on the CPU, as the integer that a kernel takes for it."""
    if number.dtype.is_floating_point:
        number = number.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[number.itemsize])
    value = int(number.item())
    return value - 2**64 if value >= 2**63 else value


def bits_of_float64(number: float) -> int:
    """The bits of a number that a call has computed, as a double."""
    return int.from_bytes(struct.pack("<d", number), "little", signed=True)


def bits_of_float32(number: float) -> int:
    """The same as a float32; infinity if it is too large."""
    try:
        return int.from_bytes(struct.pack("<f", number), "little")
    except OverflowError:
        return int.from_bytes(struct.pack("<f", math.copysign(math.inf, number)), "little")
