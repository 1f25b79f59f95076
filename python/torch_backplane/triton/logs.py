"""What kernels print and assert: the log of a launch is read when the launch is complete.

Such a launch is synchronous. It cannot be captured into a graph, whose replays nothing would read.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from torch_backplane import _backend
from torch_backplane.triton.lowering.messages import RECORD, RECORDS, Message


@contextmanager
def reading(kernel: str, messages: Sequence[Message], arguments: Sequence[Any]) -> Iterator[torch.Tensor]:
    """A log on the arguments' device for a launch of that kernel; behind the block it is read, and printed.

    Raises:
        AssertionError: an assertion of the kernel has failed: with its text, the program and the element.
        RuntimeError: before the launch, if the current stream is capturing a graph.
    """
    if getattr(torch, _backend.device).is_current_stream_capturing():
        raise RuntimeError(
            f"{kernel} prints or asserts, and the host reads that after each launch: it cannot be recorded into a "
            "graph, whose replays nothing reads. Launch it outside of the capture, or without tl.device_print and "
            "debug=True"
        )
    device = next((one.device for one in tree_leaves(arguments) if isinstance(one, torch.Tensor)), _backend.device)
    log = torch.zeros(1 + RECORD * RECORDS, dtype=torch.int64, device=device)
    yield log
    wanted = int(log[0])
    records = log[1 : 1 + RECORD * min(wanted, RECORDS)].reshape(-1, RECORD).tolist()
    failed: list[str] = []
    for number, operand, x, y, z, element, bits in records:
        message = messages[number]
        if message.is_assertion:
            failed.append(_failure(message, (x, y, z), element))
        else:
            print(_line(message, operand, (x, y, z), element, bits))
    if wanted > RECORDS:
        print(f"({wanted - RECORDS} further lines are not shown: a launch prints {RECORDS})", file=sys.stderr)
    if failed:
        raise AssertionError("\n".join(failed[:8]))


def _index(shape: tuple[int, ...], element: int) -> str:
    found: list[int] = []
    for length in reversed(shape):
        found.insert(0, element % length)
        element //= length
    return ", ".join(str(place) for place in found)


def _failure(message: Message, program: tuple[int, int, int], element: int) -> str:
    where = f" at element ({_index(message.shapes[0], element)})" if message.shapes[0] else ""
    return f"{message.location}: device_assert in program {program}{where}: {message.text}"


def _line(message: Message, operand: int, program: tuple[int, int, int], element: int, bits: int) -> str:
    """As Triton prints it on its own devices."""
    text = f"pid {program} idx ({_index(message.shapes[operand], element)}) {message.text}"
    if message.types[operand] == "none":
        return text
    if len(message.types) > 1:
        text += f" (operand {operand})"
    return f"{text}: {_value(message, message.types[operand], bits)}"


def _value(message: Message, kind: str, bits: int) -> Any:
    width = (
        64 if kind == "ptr" else 32 if kind in ("f16", "bf16") or kind.startswith("f8") else int(kind.lstrip("iufb"))
    )
    bits &= (1 << width) - 1
    if message.is_hexadecimal or kind == "ptr":
        return f"0x{bits:0{width // 4}x}"
    if kind[0] in "fb":
        return f"{struct.unpack('<d' if width == 64 else '<f', bits.to_bytes(width // 8, 'little'))[0]:f}"
    return bits - (1 << width) if kind[0] == "i" and width > 1 and bits >> (width - 1) else bits
