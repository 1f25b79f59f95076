"""Which arrays, and whose elements of them, the lines of a kernel's text read and write, in groups of several items."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torch_backplane.triton.lowering.state import Lowering

DEVICE = ""
"""The array that stands for all of the device's memory."""
_POINTER = re.compile(r"BP_GLOBAL \w+\* (?:const )?(\w+)")
ASSIGNS = re.compile(r"\s*(?:[-+*|&^]|<<|>>)?=(?!=)")
"""What follows an element that is written."""


@dataclass(frozen=True)
class Access:
    """Of a line to an array."""

    array: str
    writes: bool
    own: object = None
    """How the block is dealt whose own element it is, as a tuple of one; None: it may be another item's."""


@dataclass(frozen=True)
class Index:
    """Of an access to an own element: where it stands in its line."""

    array: str
    slot: str
    """The element's number among the item's."""
    start: int
    end: int


class Accesses:
    """Of the lines of a kernel."""

    def __init__(self, low: Lowering, parameters: list[str]) -> None:
        self._arrays, self._dealt = low.arrays, low.dealt
        names = set(low.arrays)
        names.update(name for line in (*low.text.lines, *parameters) for name in _POINTER.findall(line))
        self._pattern = re.compile(rf"(?<![\w.])(?:{'|'.join(sorted(names))})\b") if names else re.compile(r"(?!)")
        self.indices: list[set[Index]] = []
        self.lines = [self._read(line) for line in low.text.lines]

    def _read(self, line: str) -> list[Access]:
        found: list[Access] = []
        self.indices.append(set())
        for match in self._pattern.finditer(line):
            array = match.group() if match.group() in self._arrays else DEVICE
            start = match.end() + 1
            if line[start - 1 : start] != "[":
                if array:  # a pointer to it
                    found += [Access(array, False), Access(array, True)]
                continue
            end = closing(line, start)
            assigned = ASSIGNS.match(line, end + 1)
            is_atomic = line[match.start() - 1 : match.start()] == "&"
            own = None
            if array and line[start:end] in self._dealt:
                slot, deal = self._dealt[line[start:end]]
                own = (deal,)
                self.indices[-1].add(Index(array, slot, start, end))
            if is_atomic or assigned is None or assigned.group().strip() != "=":
                found.append(Access(array, False, own))
            if is_atomic or assigned is not None:
                found.append(Access(array, True, own))
        return found

    def by_array(self) -> dict[str, list[Access]]:
        """Of each array of the kernel's."""
        found: dict[str, list[Access]] = {}
        for access in (one for line in self.lines for one in line if one.array):
            found.setdefault(access.array, []).append(access)
        return found

    def drop_unread(self, text: list[str]) -> None:
        """Empty the lines that only write what nothing reads."""
        unread = {name for name, found in self.by_array().items() if all(one.writes for one in found)}
        for at, found in enumerate(self.lines):
            written = {one.array for one in found if one.writes}
            is_plain = re.match(r"\s*(?:if \([^{}]*\) )?\w+\[", text[at]) and not re.search("bt_|BP_ATOMIC", text[at])
            if is_plain and len(written) == 1 and written <= unread:
                text[at], self.lines[at] = "", []


def closing(line: str, start: int) -> int:
    """Where the bracket closes that was opened before a place."""
    depth = 1
    for at in range(start, len(line)):
        depth += (line[at] == "[") - (line[at] == "]")
        if depth == 0:
            return at
    raise AssertionError(f"an index without an end: {line}")
