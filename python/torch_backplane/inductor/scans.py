"""Inductor's scans: each element of a row combined with those before it, by any function that is associative.

A value of a scan is a tuple, and its elements are names of variables. What a tile computes stands in arrays of an item,
``scan<number>_<i>[BP_PER_ITEM]``, before its scan and after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from torch_backplane.inductor import dtypes

States = Sequence[str]

# Parts of a core's tile that are walked side by side, as lanes of vectors; as long as there are many.
CHAINS = 8


def _at(arrays: States, place: str) -> list[str]:
    return [f"{array}[{place}]" for array in arrays]


def _move(to: States, source: States) -> str:
    return " ".join(f"{a} = {b};" for a, b in zip(to, source, strict=True))


@dataclass(frozen=True)
class Scan:
    """One scan of a section.

    Attributes:
        number: in the kernel.
        states: the dtypes of a value.
        combine: the statements that compute, from a value ``left0_``, ``left1_`` ... and a later one ``right0_`` ...,
            their combination.
        results: the names of its elements.
        before: the text of what the section computes before the scan; it does nothing but make variables.
        values: what is scanned.
    """

    number: int
    states: tuple[torch.dtype, ...]
    combine: tuple[str, ...]
    results: tuple[str, ...]
    before: str
    values: tuple[str, ...]

    @property
    def what(self) -> object:
        """Equal of scans that compute the same."""
        return self.states, self.combine, self.results, self.values

    @property
    def has_chains(self) -> bool:
        """Whether vectors help a core: not where a combination is one operation, nor where lanes differ in width."""
        return len(self.combine) > 1 and len({dtypes.MEMORY[dtype][1:] for dtype in self.states}) == 1

    def arrays(self) -> list[str]:
        """Of an item: the elements of a tile; where it walks rows alone, what they come to so far."""
        return [f"scan{self.number}_{i}" for i in range(len(self.states))]

    def _carry(self) -> list[str]:
        return [f"carry{self.number}_{i}" for i in range(len(self.states))]

    def _kinds(self) -> list[str]:
        return [dtypes.REGISTER[dtype] for dtype in self.states]

    def local(self) -> dict[str, tuple[str, str]]:
        """Arrays of local memory, with type and size: a tile, and a value of each item."""
        found = {}
        for i, kind in enumerate(self._kinds()):
            found[f"tile_{kind}_{i}"] = kind, "BP_TILE"
            found[f"shared_{kind}_{i}"] = kind, "BP_GROUP"
        return found

    def _define(self) -> str:
        """The combination as a macro: the earlier value, the later one, and where the result goes."""
        width = range(len(self.states))
        names = [f"{word}{i}_in" for word in ("left", "right", "to") for i in width]
        parts = [
            f"const {kind} left{i}_ = left{i}_in; const {kind} right{i}_ = right{i}_in;"
            for i, kind in enumerate(self._kinds())
        ]
        parts += [*self.combine, *(f"to{i}_in = ({kind})({self.results[i]});" for i, kind in enumerate(self._kinds()))]
        return f"#define COMBINE{self.number}({', '.join(names)}) {{ {' '.join(parts)} }}"

    def _join(self, to: States, left: States, right: States) -> str:
        return f"COMBINE{self.number}({', '.join([*left, *right, *to])})"

    def _declare(self, names: States, values: States) -> str:
        return " ".join(
            f"{kind} {name} = {value};" for kind, name, value in zip(self._kinds(), names, values, strict=True)
        )

    # ---- an item walks rows alone

    def begin_alone(self) -> list[str]:
        """In front of the loop over rows."""
        lines = [self._define()]
        for kind, array in zip(self._kinds(), self.arrays(), strict=True):
            lines += [f"{kind} {array}[BP_PER_ITEM];", f"BP_LANES(j) {array}[j] = 0;"]
        return lines

    def step_alone(self, is_first: str) -> str:
        """One more element of row j, the first of it where the condition holds."""
        arrays = _at(self.arrays(), "j")
        before = [f"({is_first} ? {value} : {one})" for value, one in zip(self.values, arrays, strict=True)]
        joined = [f"joined{i}_" for i in range(len(arrays))]
        ends = _move(arrays, [f"{is_first} ? {value} : {one}" for value, one in zip(self.values, joined, strict=True)])
        return f"{{ {self._declare(joined, self.values)} {self._join(joined, before, self.values)} {ends} }}"

    # ---- the items of a group share a row

    def begin(self) -> list[str]:
        """In front of the loop over a row."""
        arrays = [f"{kind} {array}[BP_PER_ITEM];" for kind, array in zip(self._kinds(), self.arrays(), strict=True)]
        return [self._define(), *arrays, self._declare(self._carry(), ["0"] * len(self.states))]

    def tile(self, loop: str, count: str, per_item: int) -> list[str]:
        """The scan of a tile, which begins at ``first_`` of its row.

        Args:
            loop: over the lanes of an item.
            count: how many elements the tile has.
            per_item: BP_PER_ITEM.
        """
        arrays, carry = _at(self.arrays(), "j"), self._carry()
        tiles = [f"tile_{kind}_{i}" for i, kind in enumerate(self._kinds())]
        shared = [f"shared_{kind}_{i}" for i, kind in enumerate(self._kinds())]
        sums = [f"sum{i}_" for i in range(len(tiles))]
        before = [f"before{i}_" for i in range(len(tiles))]
        is_wide = self.has_chains and per_item >= CHAINS * CHAINS
        mine, previous = _at(shared, "BP_ITEM"), _at(shared, "BP_ITEM - 1")
        return [
            "#if BP_GROUP > 1",
            f"{loop} {_move(_at(tiles, 'BP_AT(j)'), arrays)} }}",
            "BP_BARRIER();",
            "{",
            # An item takes neighbours: what they come to,
            f"  const i32 own_ = BP_ITEM * BP_PER_ITEM, here_ = ({count}) - own_;",
            "  const i32 left_ = here_ < BP_PER_ITEM ? here_ : BP_PER_ITEM;",
            "  if (left_ > 0) {",
            f"    {self._declare(sums, _at(tiles, 'own_'))}",
            f"    for (i32 k = own_ + 1; k < own_ + left_; ++k) {self._join(sums, sums, _at(tiles, 'k'))}",
            f"    {_move(mine, sums)}",
            "  }",
            "  BP_BARRIER();",
            # Then what the items before it have: Hillis, Steele, Data parallel algorithms, 1986.
            "  for (i32 back_ = 1; back_ < BP_GROUP; back_ *= 2) {",
            "    const i32 joins_ = BP_ITEM >= back_ && left_ > 0;",
            f"    {self._declare(sums, ['0'] * len(sums))}",
            f"    if (joins_) {self._join(sums, _at(shared, 'BP_ITEM - back_'), mine)}",
            "    BP_BARRIER();",
            f"    if (joins_) {{ {_move(mine, sums)} }}",
            "    BP_BARRIER();",
            "  }",
            # and with that the neighbours one by one.
            "  if (left_ > 0) {",
            f"    {self._declare(sums, _at(tiles, 'own_'))} {self._declare(before, carry)}",
            f"    if (BP_ITEM > 0 && first_ > 0) {self._join(before, before, previous)}",
            f"    else if (BP_ITEM > 0) {{ {_move(before, previous)} }}",
            f"    if (BP_ITEM > 0 || first_ > 0) {self._join(sums, before, sums)}",
            f"    {_move(_at(tiles, 'own_'), sums)}",
            "    for (i32 k = own_ + 1; k < own_ + left_; ++k) {",
            f"      {self._join(sums, sums, _at(tiles, 'k'))}",
            f"      {_move(_at(tiles, 'k'), sums)}",
            "    }",
            "  }",
            "}",
            "BP_BARRIER();",
            f"{loop} {_move(arrays, _at(tiles, 'BP_AT(j)'))} }}",
            _move(carry, _at(tiles, f"({count}) - 1")),
            "BP_BARRIER();",
            "#else",
            *(self._in_chains(count, per_item) if is_wide else self._one_by_one(count)),
            "#endif",
        ]

    def _one_by_one(self, count: str) -> list[str]:
        arrays, carry = _at(self.arrays(), "j"), self._carry()
        return [
            f"if (first_ == 0) {{ {_move(carry, _at(self.arrays(), '0'))} }}",
            f"for (i32 j = first_ == 0; j < {count}; ++j) {{",
            f"  {self._join(carry, carry, arrays)}",
            f"  {_move(arrays, carry)}",
            "}",
        ]

    def _in_chains(self, count: str, per_item: int) -> list[str]:
        """The tile as CHAINS parts that are walked side by side; then what stands before each joins it."""
        arrays, carry = self.arrays(), self._carry()
        turned = [f"turned{i}_" for i in range(len(arrays))]
        before = [f"before{i}_" for i in range(len(arrays))]
        steps = per_item // CHAINS
        every = f"for (i32 c = 0; c < {CHAINS}; ++c)"
        here, place = f"k * {CHAINS} + c", f"c * {steps} + k"
        earlier = _at(turned, f"(k - 1) * {CHAINS} + c")
        total = _at(turned, f"{(steps - 1) * CHAINS} + c")
        return [
            "{",
            *(
                f"  {kind} {a}[BP_PER_ITEM], {b}[{CHAINS}];"
                for kind, a, b in zip(self._kinds(), turned, before, strict=True)
            ),
            # What is not there is as the last that is: what comes of it is no one's.
            f"  for (i32 j = {count}; j < BP_PER_ITEM; ++j) {{ {_move(_at(arrays, 'j'), _at(arrays, 'j - 1'))} }}",
            f"  for (i32 k = 0; k < {steps}; ++k) {every} {{ {_move(_at(turned, here), _at(arrays, place))} }}",
            f"  for (i32 k = 1; k < {steps}; ++k)",
            f"    BP_IVDEP {every} {self._join(_at(turned, here), earlier, _at(turned, here))}",
            f"  {every} {{",
            "    const i32 begins_ = first_ == 0 && c == 0;",
            f"    {_move(_at(before, 'c'), [f'begins_ ? 0 : {one}' for one in carry])}",
            f"    if (begins_) {{ {_move(carry, total)} }}",
            f"    else {self._join(carry, carry, total)}",
            "  }",
            f"  for (i32 k = 0; k < {steps}; ++k)",
            f"    BP_IVDEP for (i32 c = first_ == 0; c < {CHAINS}; ++c)",
            f"      {self._join(_at(turned, here), _at(before, 'c'), _at(turned, here))}",
            f"  {every} for (i32 k = 0; k < {steps}; ++k) {{ {_move(_at(arrays, place), _at(turned, here))} }}",
            "}",
        ]
