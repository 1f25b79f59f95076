"""Arrays in local memory whose elements are small floats as such, not f32: read and written with a conversion."""

from __future__ import annotations

import re
from collections.abc import Iterable

from torch_backplane.triton.lowering.accesses import ASSIGNS, closing
from torch_backplane.triton.lowering.state import Lowering
from torch_backplane.triton.words import NARROW, load, store


class Narrow:
    """Those of some arrays that can be: all of their accesses are to one element, and read or write it."""

    def __init__(self, low: Lowering, arrays: Iterable[str]) -> None:
        self._types = {name: low.arrays[name][0] for name in arrays if low.arrays[name][0].elem in NARROW}
        self._pattern = self._access()
        for line in low.text.lines:
            for match in self._pattern.finditer(line):
                if not _is_plain(line, match):
                    self._types.pop(match.group(), None)
        self._pattern = self._access()

    @property
    def names(self) -> Iterable[str]:
        """The arrays."""
        return self._types.keys()

    def rewritten(self, line: str) -> str:
        """A line of the kernel's text with the conversions."""
        for match in reversed(list(self._pattern.finditer(line))):  # what is inside of another access comes first
            type, end = self._types[match.group()], closing(line, match.end() + 1) + 1
            if assigns := ASSIGNS.match(line, end):
                stop = line.index(";", end)
                line = f"{line[: assigns.end()]} {store(type, line[assigns.end() : stop].strip())}{line[stop:]}"
            else:
                line = line[: match.start()] + load(type, line[match.start() : end]) + line[end:]
        return line

    def _access(self) -> re.Pattern[str]:
        return re.compile(rf"(?<![\w.])(?:{'|'.join(self._types)})\b" if self._types else r"(?!)")


def _is_plain(line: str, match: re.Match[str]) -> bool:
    if line[match.end() : match.end() + 1] != "[" or line[match.start() - 1 : match.start()] == "&":
        return False
    end = closing(line, match.end() + 1) + 1
    assigns = ASSIGNS.match(line, end)
    return assigns is None or (assigns.group().strip() == "=" and ";" in line[end:])
