"""``torch.<device>.profiler``: ranges and marks, for :mod:`torch.profiler` and for the vendor's own tools.

Device times are recorded by torch's own profiler, with ``ProfilerActivity.PrivateUse1`` (docs/profiler.md).
"""

from __future__ import annotations

from contextlib import ContextDecorator
from types import TracebackType
from typing import Any

import torch

from torch_backplane import _backend

__all__ = ["activity_records", "mark", "range"]


class range(ContextDecorator):
    """A named range of a thread's work: a ``torch.profiler.record_function``, and a range in the vendor's tools.

    In a profile, on the row of a stream, it spans the work that was queued in it. Also a decorator.

    Args:
        name: the name that is shown.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._open: list[Any] = []

    def __enter__(self) -> range:
        function = torch.profiler.record_function(self.name)
        _backend.C.profiler.push_range(self.name)
        function.__enter__()
        self._open.append(function)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.pop().__exit__(kind, error, trace)
        _backend.C.profiler.pop_range()


def mark(name: str) -> None:
    """Mark a point in time, in torch's profile as in the vendor's tools.

    Args:
        name: the name that is shown.
    """
    with torch.profiler.record_function(name):
        _backend.C.profiler.mark(name)


def activity_records() -> int:
    """Number of records of device work in this process; it increases only while a profile is on."""
    return _backend.C.profiler.activity_records()
