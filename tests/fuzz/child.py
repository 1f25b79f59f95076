"""Work in a forked child, whose crash or hang is an outcome like others. The parent has not opened the device."""

from __future__ import annotations

import faulthandler
import json
import mmap
import os
import select
import signal
import struct
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_PLACE = struct.Struct("qqq")
HUNG = 86


class Progress:
    """Where the child is: the seed, the step of its program, and whether the device has its turn. Shared memory."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)

    def set(self, seed: int, step: int, on_device: bool) -> None:
        """Note it."""
        _PLACE.pack_into(self._memory, 0, seed, step, on_device)

    def get(self) -> tuple[int, int, bool]:
        """Read it."""
        seed, step, on_device = _PLACE.unpack_from(self._memory, 0)
        return seed, step, bool(on_device)


@dataclass
class Ended:
    """How a child ended."""

    result: Any
    """What the function returned; None if it did not."""
    how: str
    """``returned``, ``crash`` or ``hang``."""
    text: str
    """What it wrote to stderr."""


def in_child(work: Callable[[], Any], limit: float) -> Ended:
    """Run it in a fork of this process; its result is JSON.

    Args:
        work: the function. It calls ``still_alive(limit)`` before each of its parts.
        limit: seconds for each part.
    """
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as errors:
        child = os.fork()
        if child == 0:
            _be_child(work, writer, errors.fileno(), limit)
        os.close(writer)
        parts, status = [], None
        while True:
            ready, _, _ = select.select([reader], [], [], 1.0)
            if ready:
                part = os.read(reader, 1 << 16)
                if part:
                    parts.append(part)
                    continue
            elif os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            status = os.waitpid(child, 0)[1]
            break
        os.close(reader)
        errors.seek(0)
        text = errors.read().decode(errors="replace")
    code = os.waitstatus_to_exitcode(status)
    if code == 0 and parts:
        return Ended(json.loads(b"".join(parts)), "returned", text)
    if "Timeout (" in text:  # of faulthandler
        return Ended(None, "hang", text)
    name = signal.Signals(-code).name if code < 0 else f"status {code}"
    return Ended(None, "crash", f"{name}\n{text}")


def still_alive(limit: float) -> None:
    """From now on there are so many seconds; then all threads' stacks are written, and the process ends."""
    faulthandler.dump_traceback_later(limit, exit=True)


def _be_child(work: Callable[[], Any], writer: int, errors: int, limit: float) -> None:
    try:
        os.dup2(errors, 2)
        faulthandler.enable()
        still_alive(limit)
        answer = json.dumps(work()).encode()
        while answer:
            answer = answer[os.write(writer, answer) :]
        os._exit(0)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(1)


def clock() -> float:
    """Seconds, for reports."""
    return time.monotonic()
