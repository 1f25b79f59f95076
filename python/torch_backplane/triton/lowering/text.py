"""The text of a kernel while it is written: lines, scopes, names, and the functions in front of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch_backplane.triton import expressions, libdevice

_FUNCTIONS = {**expressions.HELPERS, **libdevice.HELPERS}


class Text:
    """Lines of a kernel's body."""

    def __init__(self, depth: int) -> None:
        self.lines: list[str] = []
        self.depth = depth
        self.functions: dict[str, str] = {}
        """Definitions in front of the kernel, by name."""
        self._names = 0

    def name(self, hint: str) -> str:
        """A new name. It has an underscore, as none of the dialect's types has."""
        self._names += 1
        return f"{hint}_{self._names}"

    def line(self, text: str) -> None:
        """Write a line at the present depth."""
        self.lines.append("  " * self.depth + text)

    @contextmanager
    def scope(self, head: str = "") -> Iterator[None]:
        """``head { ... }``."""
        self.line(f"{head} {{".lstrip())
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    @contextmanager
    def captured(self) -> Iterator[list[str]]:
        """The lines that are written meanwhile, which do not become part of the text."""
        lines, self.lines = self.lines, []
        depth, self.depth = self.depth, 0
        try:
            yield self.lines
        finally:
            self.lines, self.depth = lines, depth

    @property
    def last(self) -> str:
        """The last line."""
        return self.lines[-1].strip() if self.lines else ""

    def preamble(self) -> str:
        """The functions that the lines call."""
        body = "\n".join([*self.lines, *self.functions.values()])
        return "".join([*(text for name, text in _FUNCTIONS.items() if name in body), *self.functions.values()])
