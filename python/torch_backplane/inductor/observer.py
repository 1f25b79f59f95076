"""The observer of graphs that are compiled for the device: that of ``torch-backplane explain --compiled``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

__all__ = ["Observer", "current", "observing"]


class Observer(Protocol):
    """The methods that the code generator calls."""

    def mark(self) -> str:
        """The name of the profiler range in which the next reported graph runs."""

    def kernel(self, graph: Any, name: str, nodes: Sequence[Any]) -> None:
        """A kernel was written into a graph's module."""

    def graph(self, graph: Any) -> None:
        """A graph's module is written."""


_observer: Observer | None = None


def current() -> Observer | None:
    """The current observer, if any."""
    return _observer


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Report to the observer what the block compiles."""
    global _observer
    _observer = observer
    try:
        yield
    finally:
        _observer = None
