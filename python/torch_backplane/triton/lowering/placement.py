"""Where the arrays of a kernel lie, in groups of several items.

An array is private to each item if all of its accesses are at the item's own elements (see deals.py), else it is in
local memory; arrays that are needed at different times share it. That is read from the text, once it is written.
Small floats are f32 in arrays too, unless that takes too much of local memory.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter

from torch_backplane.triton.lowering.accesses import Access, Accesses
from torch_backplane.triton.lowering.barriers import HARD, LOOP, Barriers
from torch_backplane.triton.lowering.narrow import Narrow
from torch_backplane.triton.lowering.state import BARRIER, Lowering
from torch_backplane.triton.words import bytes_kept, kept, memory

_ENOUGH = 48 << 10
"""Bytes of local memory that GPUs give every kernel: one that needs more has its small floats as such in it."""
_ALIGNED = 8


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
        self._narrow = Narrow(low, ())
        barriers = self._arrange(text, shared, spans)
        if self.local_bytes > _ENOUGH:
            self._narrow = Narrow(low, self._local)
            barriers = self._arrange(text, shared, spans)
        for at, line in enumerate(text):
            if line.strip() == BARRIER:
                text[at] = line.replace(BARRIER, HARD) if at in barriers.placed else ""
            for index in sorted(accesses.indices[at], key=lambda one: one.start, reverse=True):
                if index.array in self._private and line:
                    text[at] = text[at][: index.start] + index.slot + text[at][index.end :]
            text[at] = self._narrow.rewritten(text[at])
        names = Counter(re.findall(r"\w+", "\n".join(text)))
        unused = {f"i32 const {name} =" for name in low.dealt if names[name] == 1}
        text[:] = [line for line in text if line and line.strip().partition("=")[0] + "=" not in unused]

    def _arrange(self, text: list[str], shared: list[set[Access]], spans: dict[str, tuple[int, int]]) -> Barriers:
        """Share the memory, and place barriers; anew as long as there is no place for one between two that share it."""
        clashes: set[frozenset[str]] = set()
        while True:
            self._share(spans, clashes)
            ends = self._ends
            sharing = {
                frozenset((one, other))
                for one, other in itertools.combinations(self._local, 2)
                if self._starts[one] < ends[other] and self._starts[other] < ends[one]
            }
            barriers = Barriers(text, shared, sharing)
            if not barriers.clashes:
                return barriers
            clashes |= barriers.clashes

    def _share(self, spans: dict[str, tuple[int, int]], clashes: set[frozenset[str]]) -> None:
        """Place each array, the largest first, where no array lies that is needed at the same time."""
        self._starts: dict[str, int] = {}
        self._ends: dict[str, int] = {}
        for name in sorted(self._local, key=self._bytes, reverse=True):
            first, last = spans[name]
            around = [
                (self._starts[other], self._ends[other])
                for other in self._starts
                if frozenset((name, other)) in clashes or (first <= spans[other][1] and spans[other][0] <= last)
            ]
            size, start = -(-self._bytes(name) // _ALIGNED) * _ALIGNED, 0
            for at, end in sorted(around):
                if start + size <= at:
                    break
                start = max(start, end)
            self._starts[name], self._ends[name] = start, start + size

    def _bytes(self, name: str) -> int:
        type, size = self._arrays[name]
        return (type.bits // 8 if name in self._narrow.names else bytes_kept(type)) * size

    def _kept(self, name: str) -> str:
        type = self._arrays[name][0]
        return memory(type) if name in self._narrow.names else kept(type)

    @property
    def local_bytes(self) -> int:
        """Of a group."""
        return max(self._ends.values(), default=0)

    def local(self) -> list[str]:
        """Declarations for the top of the kernel: an array for each stretch of memory that others do not overlap."""
        stretches: list[list[str]] = []
        end = 0
        for name in sorted(self._local, key=lambda one: (self._starts[one], -self._ends[one])):
            if self._starts[name] >= end:
                stretches.append([])
            stretches[-1].append(name)
            end = max(end, self._ends[name])
        lines = []
        for first, *others in stretches:
            if not others:
                lines.append(f"BP_LOCAL_ARRAY({self._kept(first)}, {first}, {self._arrays[first][1]});")
                continue
            names, start = (first, *others), self._starts[first]
            kinds = {self._kept(name) for name in names}
            kind, width = (kinds.pop(), self._bytes(first) // self._arrays[first][1]) if len(kinds) == 1 else ("u64", 8)
            size = max(self._ends[name] for name in names) - start
            lines.append(f"BP_LOCAL_ARRAY({kind}, {first}_, {size // width});")
            for name in names:
                at = (self._starts[name] - start) // width
                place = f"{first}_ + {at}" if at else f"{first}_"
                place = place if kind == self._kept(name) else f"(BP_LOCAL {self._kept(name)}*)({place})"
                lines.append(f"BP_LOCAL {self._kept(name)}* const {name} = {place};")
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
