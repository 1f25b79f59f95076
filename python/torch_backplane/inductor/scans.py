"""Inductor's scans: each element of a row combined with those before it, by any associative function.

A value of a scan is a tuple; its elements are names of variables. The values of a tile are in arrays of an item,
``scan<number>_<i>[BP_PER_ITEM]``, before and after its scan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from torch_backplane.inductor import dtypes

States = Sequence[str]

# Parts of a core's tile that are scanned side by side, as lanes of vectors.
CHAINS = 8


def at(arrays: States, place: str) -> list[str]:
    """The elements of arrays at a place."""
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
        before: the text of the section before the scan, which only defines variables.
        values: the names of the scanned values.
    """

    number: int
    states: tuple[torch.dtype, ...]
    combine: tuple[str, ...]
    results: tuple[str, ...]
    before: str
    values: tuple[str, ...]

    @property
    def what(self) -> object:
        """Equal for scans that compute the same."""
        return self.states, self.combine, self.results, self.values

    @property
    def has_chains(self) -> bool:
        """Whether vectors help a core: not if a combination is one operation, or if lanes differ in width."""
        return len(self.combine) > 1 and len({dtypes.MEMORY[dtype][1:] for dtype in self.states}) == 1

    def arrays(self) -> list[str]:
        """An item's arrays: the elements of a tile; if it scans whole rows, the combinations so far."""
        return [f"scan{self.number}_{i}" for i in range(len(self.states))]

    def _carry(self) -> list[str]:
        return [f"carry{self.number}_{i}" for i in range(len(self.states))]

    def _kinds(self) -> list[str]:
        return [dtypes.REGISTER[dtype] for dtype in self.states]

    def local(self) -> dict[str, tuple[str, str]]:
        """Arrays of local memory, by name: type and size. A tile, and a value of each item."""
        found = {}
        for i, kind in enumerate(self._kinds()):
            found[f"tile_{kind}_{i}"] = kind, "BP_TILE"
            found[f"shared_{kind}_{i}"] = kind, "BP_GROUP"
        return found

    def _define(self) -> str:
        """The combination as a macro: the earlier value, the later one, the result."""
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

    # ---- an item scans whole rows

    def begin_alone(self) -> list[str]:
        """The lines before the loop over rows."""
        lines = [self._define()]
        for kind, array in zip(self._kinds(), self.arrays(), strict=True):
            lines += [f"{kind} {array}[BP_PER_ITEM];", f"BP_LANES(j) {array}[j] = 0;"]
        return lines

    def step_alone(self, is_first: str) -> str:
        """Add an element of row j; it is the first one if the condition holds."""
        arrays = at(self.arrays(), "j")
        before = [f"({is_first} ? {value} : {one})" for value, one in zip(self.values, arrays, strict=True)]
        joined = [f"joined{i}_" for i in range(len(arrays))]
        ends = _move(arrays, [f"{is_first} ? {value} : {one}" for value, one in zip(self.values, joined, strict=True)])
        return f"{{ {self._declare(joined, self.values)} {self._join(joined, before, self.values)} {ends} }}"

    # ---- the items of a group share a row

    def begin(self) -> list[str]:
        """The lines before the loop over a row."""
        arrays = [f"{kind} {array}[BP_PER_ITEM];" for kind, array in zip(self._kinds(), self.arrays(), strict=True)]
        return [self._define(), *arrays, self._declare(self._carry(), ["0"] * len(self.states))]

    def tile(self, loop: str, count: str, per_item: int) -> list[str]:
        """The scan of a tile, which begins at ``first_`` of its row.

        Args:
            loop: over the lanes of an item.
            count: how many elements the tile has.
            per_item: BP_PER_ITEM.
        """
        arrays, carry = at(self.arrays(), "j"), self._carry()
        tiles = [f"tile_{kind}_{i}" for i, kind in enumerate(self._kinds())]
        shared = [f"shared_{kind}_{i}" for i, kind in enumerate(self._kinds())]
        sums = [f"sum{i}_" for i in range(len(tiles))]
        before = [f"before{i}_" for i in range(len(tiles))]
        is_wide = self.has_chains and per_item >= CHAINS * CHAINS
        mine, previous = at(shared, "BP_ITEM"), at(shared, "BP_ITEM - 1")
        return [
            "#if BP_GROUP > 1",
            f"{loop} {_move(at(tiles, 'BP_AT(j)'), arrays)} }}",
            "BP_BARRIER();",
            "{",
            # Each item combines neighbours,
            f"  const i32 own_ = BP_ITEM * BP_PER_ITEM, here_ = ({count}) - own_;",
            "  const i32 left_ = here_ < BP_PER_ITEM ? here_ : BP_PER_ITEM;",
            "  if (left_ > 0) {",
            f"    {self._declare(sums, at(tiles, 'own_'))}",
            f"    for (i32 k = own_ + 1; k < own_ + left_; ++k) {self._join(sums, sums, at(tiles, 'k'))}",
            f"    {_move(mine, sums)}",
            "  }",
            "  BP_BARRIER();",
            # then the items combine their values: Hillis, Steele, Data parallel algorithms, 1986,
            "  for (i32 back_ = 1; back_ < BP_GROUP; back_ *= 2) {",
            "    const i32 joins_ = BP_ITEM >= back_ && left_ > 0;",
            f"    {self._declare(sums, ['0'] * len(sums))}",
            f"    if (joins_) {self._join(sums, at(shared, 'BP_ITEM - back_'), mine)}",
            "    BP_BARRIER();",
            f"    if (joins_) {{ {_move(mine, sums)} }}",
            "    BP_BARRIER();",
            "  }",
            # and each item scans its neighbours, beginning with the combination of the items before it.
            "  if (left_ > 0) {",
            f"    {self._declare(sums, at(tiles, 'own_'))} {self._declare(before, carry)}",
            f"    if (BP_ITEM > 0 && first_ > 0) {self._join(before, before, previous)}",
            f"    else if (BP_ITEM > 0) {{ {_move(before, previous)} }}",
            f"    if (BP_ITEM > 0 || first_ > 0) {self._join(sums, before, sums)}",
            f"    {_move(at(tiles, 'own_'), sums)}",
            "    for (i32 k = own_ + 1; k < own_ + left_; ++k) {",
            f"      {self._join(sums, sums, at(tiles, 'k'))}",
            f"      {_move(at(tiles, 'k'), sums)}",
            "    }",
            "  }",
            "}",
            "BP_BARRIER();",
            f"{loop} {_move(arrays, at(tiles, 'BP_AT(j)'))} }}",
            _move(carry, at(tiles, f"({count}) - 1")),
            "BP_BARRIER();",
            "#else",
            *(self._in_chains(count, per_item) if is_wide else self._one_by_one(count)),
            "#endif",
        ]

    def _one_by_one(self, count: str) -> list[str]:
        arrays, carry = at(self.arrays(), "j"), self._carry()
        return [
            f"if (first_ == 0) {{ {_move(carry, at(self.arrays(), '0'))} }}",
            f"for (i32 j = first_ == 0; j < {count}; ++j) {{",
            f"  {self._join(carry, carry, arrays)}",
            f"  {_move(arrays, carry)}",
            "}",
        ]

    def _in_chains(self, count: str, per_item: int) -> list[str]:
        """Scan CHAINS parts of the tile side by side; then combine each with all that precede it."""
        arrays, carry = self.arrays(), self._carry()
        turned = [f"turned{i}_" for i in range(len(arrays))]
        before = [f"before{i}_" for i in range(len(arrays))]
        steps = per_item // CHAINS
        every = f"for (i32 c = 0; c < {CHAINS}; ++c)"
        here, place = f"k * {CHAINS} + c", f"c * {steps} + k"
        earlier = at(turned, f"(k - 1) * {CHAINS} + c")
        total = at(turned, f"{(steps - 1) * CHAINS} + c")
        return [
            "{",
            *(
                f"  {kind} {a}[BP_PER_ITEM], {b}[{CHAINS}];"
                for kind, a, b in zip(self._kinds(), turned, before, strict=True)
            ),
            # Missing elements repeat the last one: their results are not used.
            f"  for (i32 j = {count}; j < BP_PER_ITEM; ++j) {{ {_move(at(arrays, 'j'), at(arrays, 'j - 1'))} }}",
            f"  for (i32 k = 0; k < {steps}; ++k) {every} {{ {_move(at(turned, here), at(arrays, place))} }}",
            f"  for (i32 k = 1; k < {steps}; ++k)",
            f"    BP_IVDEP {every} {self._join(at(turned, here), earlier, at(turned, here))}",
            f"  {every} {{",
            "    const i32 begins_ = first_ == 0 && c == 0;",
            f"    {_move(at(before, 'c'), [f'begins_ ? 0 : {one}' for one in carry])}",
            f"    if (begins_) {{ {_move(carry, total)} }}",
            f"    else {self._join(carry, carry, total)}",
            "  }",
            f"  for (i32 k = 0; k < {steps}; ++k)",
            f"    BP_IVDEP for (i32 c = first_ == 0; c < {CHAINS}; ++c)",
            f"      {self._join(at(turned, here), at(before, 'c'), at(turned, here))}",
            f"  {every} for (i32 k = 0; k < {steps}; ++k) {{ {_move(at(arrays, place), at(turned, here))} }}",
            "}",
        ]
