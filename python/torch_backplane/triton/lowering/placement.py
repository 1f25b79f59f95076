"""Where the arrays of a kernel lie, in groups of several items.

An array is private to each item if all of its accesses are at the item's own elements (see deals.py), else it is in
local memory; arrays that are needed at different times share it. That is read from the text, once it is written.
"""

from __future__ import annotations

import re
from collections import Counter

from torch_backplane.triton.lowering.accesses import Access, Accesses
from torch_backplane.triton.lowering.barriers import HARD, LOOP, Barriers
from torch_backplane.triton.lowering.state import BARRIER, Lowering
from torch_backplane.triton.words import bytes_kept, kept


class Placement:
    """Of the arrays of a lowered kernel, whose text is completed: private indices, and the barriers that are needed."""

    def __init__(self, low: Lowering, parameters: list[str]) -> None:
        self._arrays, self._items, text = low.arrays, low.items, low.text.lines
        accesses = Accesses(low, parameters)
        accesses.drop_unread(text)
        found = accesses.by_array()
        self._private = {name for name, of in found.items() if of[0].own and all(one.own == of[0].own for one in of)}
        self._local = [name for name in self._arrays if name in found and name not in self._private]
        shared = [{one for one in line if one.array not in self._private} for line in accesses.lines]
        spans = _live(text, shared)
        clashes: set[frozenset[str]] = set()
        while True:
            self._share(spans, clashes)
            barriers = Barriers(text, shared, self._places)
            if not barriers.clashes:
                break
            clashes |= barriers.clashes
        for at, line in enumerate(text):
            if line.strip() == BARRIER:
                text[at] = line.replace(BARRIER, HARD) if at in barriers.placed else ""
            for index in sorted(accesses.indices[at], key=lambda one: one.start, reverse=True):
                if index.array in self._private and line:
                    text[at] = text[at][: index.start] + index.slot + text[at][index.end :]
        names = Counter(re.findall(r"\w+", "\n".join(text)))
        unused = {f"i32 const {name} =" for name in low.dealt if names[name] == 1}
        text[:] = [line for line in text if line and line.strip().partition("=")[0] + "=" not in unused]

    def _share(self, spans: dict[str, tuple[int, int]], clashes: set[frozenset[str]]) -> None:
        """Give arrays that are never needed at once the same memory."""

        def clash(one: str, other: str) -> bool:
            first, second = spans[one], spans[other]
            return frozenset((one, other)) in clashes or (first[0] <= second[1] and second[0] <= first[1])

        self._places: list[list[str]] = []
        for name in sorted(self._local, key=self._bytes, reverse=True):
            free = next((place for place in self._places if not any(clash(name, other) for other in place)), None)
            if free is None:
                self._places.append([name])
            else:
                free.append(name)

    def _bytes(self, name: str) -> int:
        type, size = self._arrays[name]
        return bytes_kept(type) * size

    @property
    def local_bytes(self) -> int:
        """Of a group."""
        return sum(-(-self._bytes(place[0]) // 8) * 8 for place in self._places)

    def local(self) -> list[str]:
        """Declarations for the top of the kernel."""
        lines = []
        for first, *others in self._places:
            kind = kept(self._arrays[first][0])
            if all(kept(self._arrays[other][0]) == kind for other in others):
                lines.append(f"BP_LOCAL_ARRAY({kind}, {first}, {self._arrays[first][1]});")
                lines += [f"BP_LOCAL {kind}* const {other} = {first};" for other in others]
                continue
            lines.append(f"BP_LOCAL_ARRAY(u64, {first}_, {-(-self._bytes(first) // 8)});")
            for name in (first, *others):
                kind = kept(self._arrays[name][0])
                lines.append(f"BP_LOCAL {kind}* const {name} = (BP_LOCAL {kind}*){first}_;")
        return lines

    def private(self) -> list[str]:
        """Declarations for a program."""
        return [
            f"{kept(self._arrays[name][0])} {name}[{max(1, self._arrays[name][1] // self._items)}];"
            for name in self._arrays
            if name in self._private
        ]


def _live(text: list[str], accesses: list[set[Access]]) -> dict[str, tuple[int, int]]:
    """The segments, which are between two places for barriers, of an array's first and last access.

    An array that is needed behind a loop, or was written before it, is needed in the whole loop.
    """
    segments: list[int] = []
    loops, heads = [], []
    spans: dict[str, tuple[int, int]] = {}
    for at, raw in enumerate(text):
        line = raw.strip()
        segments.append((segments[-1] if segments else 0) + (line in (BARRIER, HARD)))
        if line.endswith("{"):
            heads.append((at, line))
        elif line == "}":
            start, head = heads.pop()
            if LOOP.search(head):
                loops.append((start, at))
        for access in accesses[at]:
            spans[access.array] = (spans.get(access.array, (at, at))[0], at)
    for start, end in loops:  # the inner ones first
        for name, (first, last) in spans.items():
            if (first < start <= last) or (first <= end < last):
                spans[name] = min(first, start), max(last, end)
    return {name: (segments[first], segments[last]) for name, (first, last) in spans.items()}
