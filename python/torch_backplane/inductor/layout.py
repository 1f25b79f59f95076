"""Distribution of a kernel's elements over groups and items: the axis of the lanes, and tiles of the other axes.

Lanes lie along the axis on which most operands are contiguous, on a core most of those that are written:

- along the reduced axis, a group computes one result, its items share the row, and folds end in local memory;
- along an axis that is kept, an item computes several results, each over all reduced axes, with states in arrays.

Uses a private class of torch, through :class:`SignedKernel`; tested on torch 2.11, 2.12, 2.13 and 2.15.
"""
# torch types a property of axes, is_reduction, as a function.
# mypy: disable-error-code="misc"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch._inductor.codegen.common import IndentedBuffer
from torch._inductor.codegen.simd import IterationRangesEntry, IterationRangesRoot
from torch._inductor.virtualized import V

from torch_backplane import compiler
from torch_backplane.inductor import dtypes
from torch_backplane.inductor.signature import SignedKernel

# Elements of an item: of a core, whose lanes become vectors; of a thread among many.
CORE_POINTWISE, CORE_COLUMNS, CORE_ROWS = 1024, 256, 64
THREAD_POINTWISE, THREAD_ROWS = 4, 4
# The size of the values of most scans: a number and its place.
SCANNED_BYTES = 16
# Each item reduces whole rows that are shorter than this.
SHORT_ROW = 16
# If operands are contiguous along two axes, a core computes a block of so many lanes by so many elements of the other
# axis: cache lines that are read across the lanes are used again.
BLOCK = 64, 64
# Elements of that axis from which on the block is transposed in registers.
TURNED = 16


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


class LaidOutKernel(SignedKernel):
    """The choice of axes, and a group's work for a tile."""

    def __init__(self, tiling: dict[str, sympy.Expr], **kwargs: Any) -> None:
        super().__init__(tiling, **kwargs)
        target = compiler.target(self.device.index or 0)
        self.group_size, self.local_bytes = target.group_size, target.local_bytes
        self.lane_tree = self.range_trees[0]
        self.across: Any = None  # the second axis of a block
        self.staged: dict[str, tuple[str, torch.dtype]] = {}  # by the text of a load: the array that transposes a block
        self.block_entries: list[str] = []
        self.row_entries = IndentedBuffer()

    @property
    def index_dtype(self) -> str:
        """64 bits on a core: sums of 32 bits may wrap, so a compiler could not see that places are neighbours."""
        return "i64" if self.group_size == 1 else super().index_dtype

    @property
    def rows(self) -> bool:
        """Whether lanes lie along the reduced axis."""
        return self.lane_tree.is_reduction

    def finalize_indexing(self, indices: Sequence[sympy.Expr]) -> None:
        """Choose the axis of the lanes; Inductor calls this when it knows all places that are read and written."""
        reduced = [tree for tree in self.range_trees if tree.is_reduction and self.features.is_reduction()]
        kept = [tree for tree in self.range_trees if not tree.is_reduction]
        if not reduced:  # the places of all elements count, and not those that all elements along another axis share
            long = [tree for tree in kept if self.hint(tree) > 1]
            whole = [index for index in indices if all(self._steps(tree, index) != 0 for tree in long)]
            indices = whole or indices
        scores: dict[str, int] = {}
        for tree in self.range_trees:
            scores[tree.name] = sum(self._steps(tree, index) == 1 for index in indices)
        stores = self._stores() if self.group_size == 1 and not reduced else []
        written = {tree.name: sum(self._steps(tree, index) == 1 for index in stores) for tree in kept}

        def merit(tree: IterationRangesRoot) -> tuple[int, int, bool]:
            return written[tree.name], scores[tree.name], self.hint(tree) > 1

        best = max(kept, key=merit) if kept else reduced[-1]
        if reduced:
            row = max(reduced, key=lambda tree: (scores[tree.name], self.hint(tree)))
            few = all(self.hint(tree) < SHORT_ROW for tree in reduced)
            # The indices along the row, which some scans read, count as well.
            more = int(self.features.contains_op("scan"))
            if scores[row.name] >= scores[best.name] + more and not (few and kept):
                best = row
        self.lane_tree = best
        if self.group_size == 1 and not reduced:
            others = [tree for tree in kept if tree is not best and scores[tree.name]]
            self.across = max(others, key=lambda tree: scores[tree.name], default=None)

    def _stores(self) -> list[sympy.Expr]:
        """The places that are written. A core transposes loads across the lanes, and scatters what it writes."""
        found = []
        for node in self.features.scheduler_nodes():
            places = node._body.indexing_from_args(self.split_and_set_ranges(node.get_ranges()))
            for usage, entries in node._body.memory_usage.items():
                found += [places[entry.index_name] for entry in entries if usage.name == "STORE"]
        return found

    def hint(self, tree: IterationRangesRoot) -> int:
        """An estimate of the length of an axis."""
        return int(V.graph.sizevars.optimization_hint(tree.numel, fallback=1024))

    def per_item(self) -> int:
        """BP_PER_ITEM."""
        here = power_of_two(-(-self.hint(self.lane_tree) // self.group_size))
        if self.group_size == 1:
            pointwise = BLOCK[0] if self.across is not None else CORE_POINTWISE
            most = CORE_ROWS if self.rows else CORE_COLUMNS if self.features.is_reduction() else pointwise
        else:
            most = THREAD_ROWS if self.rows else 1 if self.features.is_reduction() else THREAD_POINTWISE
            scans = self.rows and self.features.contains_op("scan")  # their tile is in local memory
            while scans and most > 1 and 2 * SCANNED_BYTES * self.group_size * most > self.local_bytes:
                most //= 2
        return min(most, here)

    def index_of_lanes(self, entry: IterationRangesEntry) -> str:
        """The text of a part of an axis. A core's lanes are neighbours in it, or share it, where a tile divides it."""
        axis, first = entry.root.index_sym(), sympy.Symbol("first_", integer=True, nonnegative=True)
        if self.group_size == 1 and not self.rows and entry.root is self.lane_tree and entry.expr != axis:
            of_tile = self.index_to_str(entry.expr.subs({axis: first}))
            if entry.divisor != 1 and self._is_divided(entry.divisor):
                return of_tile
            if entry.divisor == 1 and self._is_divided(entry.length):
                return f"{of_tile} + BP_AT(j)"
        return self.index_to_str(entry.expr)

    def _is_divided(self, size: sympy.Expr) -> bool:
        return isinstance(size, (int, sympy.Integer)) and size % self.per_item() == 0

    def lies_across(self, index: sympy.Expr) -> bool:
        """Whether a place depends only on a block's axes, and is contiguous along the one that is not the lanes'."""
        if self.across is None or not index.free_symbols <= set(self.range_tree_nodes):
            return False
        return self._steps(self.across, index) == 1 and self._steps(self.lane_tree, index) not in (0, 1)

    @staticmethod
    def _steps(tree: Any, index: sympy.Expr) -> sympy.Expr:
        """The distance to the next element along an axis; 0 if the place does not depend on the axis."""
        inner = [node.symbol() for node in tree.nodes.values() if node.divisor == 1]
        return next(
            (sympy.expand(index.subs({s: s + 1}) - index) for s in inner if s in index.free_symbols), sympy.S.Zero
        )

    def takes(self) -> list[tuple[IterationRangesRoot, int]]:
        """The kept axes, with the number of elements that a group computes of each; 0: a tile of its lanes."""
        kept = [tree for tree in self.range_trees if not tree.is_reduction]
        return [(tree, 0 if tree is self.lane_tree else 1) for tree in kept]

    def _axes(self) -> list[tuple[IterationRangesRoot, str]]:
        """The axes over which tiles are numbered, the fastest first, with the number of tiles along each."""
        found = []
        if not self.rows:
            found.append((self.lane_tree, f"(((i64){self.extent(self.lane_tree)} + BP_TILE - 1) / BP_TILE)"))
        if self.across is not None:
            found.append((self.across, f"(((i64){self.extent(self.across)} + {BLOCK[1] - 1}) / {BLOCK[1]})"))
        kept = [tree for tree in self.range_trees if not tree.is_reduction]
        rest = [tree for tree in kept if tree is not self.lane_tree and tree is not self.across]
        return [*found, *((tree, f"(i64){self.extent(tree)}") for tree in rest)]

    def tile_count(self) -> str:
        """The number of tiles."""
        return " * ".join(count for _, count in self._axes()) or "1"

    def write_tile(self, code: IndentedBuffer, body: IndentedBuffer) -> None:
        """Write the work for tile number at_: its places, then the body."""
        index, rest = self.index_dtype, "at_"
        axes = self._axes()
        for tree, count in axes:
            value = f"({rest})" if tree is axes[-1][0] else f"({rest}) % {count}"
            rest = f"({rest}) / {count}"
            if tree is self.lane_tree:
                code.writeline(f"const i64 first_ = {value} * BP_TILE;")
                code.writeline(f"const i32 lanes_ = BP_LANES_FROM(first_, (i64){self.extent(tree)});")
            elif tree is self.across:
                code.writeline(f"const i64 strip_ = {value} * {BLOCK[1]};")
            else:
                code.writeline(f"const {index} {tree.name} = ({index})({value});")
        if self.across is not None:
            name, end, extent = self.across.name, f"strip_ + {BLOCK[1]}", self.extent(self.across)
            if not extent.isdigit() or int(extent) % BLOCK[1]:
                end = f"bp_min_int({end}, (i64){extent})"
            loop = f"for ({index} {name} = ({index})strip_; {name} < {end}; ++{name}) {{"
            self._stage(code, loop)
            code.writeline(loop)
        code.splice(self.row_entries)
        code.splice(body)
        if self.across is not None:
            code.writeline("}")

    def _stage(self, code: IndentedBuffer, loop: str) -> None:
        lanes, strip = BLOCK
        arrays = self.arrays_of_blocks()
        for text, (array, dtype) in self.staged.items():
            kind, number = dtypes.REGISTER[dtype], f"({self.across.name} - strip_)"
            is_turned = array in arrays
            to = f"lines_{kind}[j * {strip} + {number}]" if is_turned else f"{array}[{number} * {lanes} + j]"
            if not is_turned:
                code.writeline(f"{kind} {array}[{lanes * strip}];")
            code.writeline("for (i32 j = 0; j < lanes_; ++j) {")
            with code.indent():
                code.writeline(
                    f"const {self.index_dtype} {self.lane_tree.name} = ({self.index_dtype})(first_ + BP_AT(j));"
                )
                code.writeline(loop)
                with code.indent():
                    code.writelines(self.block_entries)
                    code.writeline(f"{to} = {text};")
                code.writeline("}")
            code.writeline("}")
            if is_turned:  # whole vectors; what is behind the end is not read
                rest = f"((i64){self.extent(self.across)} - strip_ + {TURNED - 1}) / {TURNED} * {TURNED}"
                depth = f"bp_min_int({strip}, {rest})"
                code.writeline(f"BP_TRANSPOSE({array}, {lanes}, lines_{kind}, {strip}, BP_PER_ITEM, (i32){depth});")

    def arrays_of_blocks(self) -> dict[str, tuple[str, str]]:
        """Local arrays for what BP_TRANSPOSE takes, as many as have room, by name: type and size."""
        found: dict[str, tuple[str, str]] = {}
        if self.across is None or (isinstance(self.across.numel, sympy.Integer) and self.across.numel < TURNED):
            return found
        room, size = self.local_bytes // 4, BLOCK[0] * BLOCK[1]
        for array, dtype in self.staged.values():
            kind = dtypes.REGISTER[dtype]
            more = {array, f"lines_{kind}"} - set(found)
            needed = dtypes.WORDS.get(kind, 0) * size * len(more)
            if 0 < needed <= room:
                room -= needed
                found.update(dict.fromkeys(sorted(more), (kind, str(size))))
        return found
