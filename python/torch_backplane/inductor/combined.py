"""Independent kernels as one launch: of lists (``torch._foreach_*``), and with ``config.combo_kernels``.

torch calls it a combo kernel. Each part is generated as a separate kernel would be; a group computes from its number
its part, and its tile there. Parts with the same text share it: their tensors, lengths and numbers are selected by the
number of the part. So an optimizer's step is compiled once for all parameters whose kernels have the same text, and is
launched once for as many parameters as the arguments of a launch allow.

Uses a private class of torch, through :class:`GroupKernel`; tested on torch 2.11, 2.13 and 2.15.
"""
# torch types a property of axes, is_reduction, as a function.
# mypy: disable-error-code="misc"

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sympy
from torch._inductor.codegen.common import IndentedBuffer
from torch._inductor.codegen.simd import IterationRangesRoot

from torch_backplane.inductor.kernel import GroupKernel, write_arrays
from torch_backplane.inductor.signature import define, write_call

# Limits of a launch (inductor/kernel.cpp): tensors, and words of 8 bytes for all arguments.
MOST_BUFFERS, MOST_WORDS = 60, 126
# Not an extent: the groups of another part follow, and are added (backplane/generated.h).
FURTHER_PART = (0, -2, 0)


class PartKernel(GroupKernel):
    """A kernel that is not launched by itself."""

    prefix = ""  # of the names of its lengths

    def extent(self, tree: IterationRangesRoot) -> str:
        """The name of a length in which parts may differ and still share their text."""
        if tree.is_reduction and isinstance(tree.numel, sympy.Integer):
            return str(tree.numel)
        return f"{self.prefix}{tree.prefix}numel"

    def lengths(self) -> dict[str, int]:
        """The constant lengths, by name."""
        kept = [tree for tree in self.range_trees if not tree.is_reduction]
        return {f"{tree.prefix}numel": int(tree.numel) for tree in kept if isinstance(tree.numel, sympy.Integer)}

    def tiles_of(self, prefix: str) -> str:
        """The number of tiles, from lengths whose names have this prefix."""
        self.prefix = prefix
        try:
            return self.tile_count()
        finally:
            self.prefix = ""

    def codegen_kernel(self, name: str | None = None) -> str:
        """The text of the part."""
        self.codegen_body()
        self.tile = IndentedBuffer()
        self.tile.splice(self.invariant)
        self.write_tile(self.tile, self.body)
        return self.tile.getvalue()

    def call_kernel(self, name: str, node: Any = None, deallocate_ws: bool = True) -> None:
        """Nothing: the combined kernel is called."""

    def codegen_nan_check(self) -> None:
        """Nothing: its results are not written yet."""

    @property
    def alike(self) -> object:
        """Equal for parts that share their text."""
        names = tuple(self.parameters()), tuple(self.values()), tuple(self.lengths())
        return self.tile.getvalue(), self.per_item(), self.tile_count(), names


class CombinedKernel:
    """Text and call of one launch for several parts."""

    def __init__(self, parts: Sequence[PartKernel]) -> None:
        classes: dict[object, list[PartKernel]] = {}
        for part in parts:
            classes.setdefault(part.alike, []).append(part)
        self.classes = list(classes.values())
        self.parts = [part for alike in self.classes for part in alike]

    def codegen_kernel(self) -> str:
        """The line of the module that makes the kernel, behind its name."""
        self.per_item = self.parts[0].per_item()  # BP_PER_ITEM of the current line
        facts: dict[str, Any] = {
            "per_item": self.per_item,
            "extents": list(self._extents()),
            "device": self.parts[0].device.index or 0,
        }
        code = IndentedBuffer()
        write_arrays(
            code,
            {name: array for part in self.parts for name, array in part.shared.items()},
            {name: array for part in self.parts for name, array in part.arrays_of_blocks().items()},
        )
        for i, part in enumerate(self.parts):
            code.writelines([f"const i64 p{i}_{name} = {value};" for name, value in part.lengths().items()])
        ends = self._write_ends(code)
        code.writeline(f"for (i64 tile_ = BP_GROUP_ID(0); tile_ < {ends[-1]}; tile_ += BP_GROUPS(0)) {{")
        first = 0
        with code.indent():
            for alike in self.classes:
                last = first + len(alike)
                code.writeline(f"{'else ' if first else ''}if (tile_ < {ends[last - 1]}) {{")
                with code.indent():
                    self._write_class(code, first, alike[0], ["0", *ends][first:last])
                code.writeline("}")
                first = last
        code.writeline("}")
        parameters = [(t, f"p{i}_{name}", w) for i, part in enumerate(self.parts) for t, name, w in part.parameters()]
        values = [f"p{i}_{name}" for i, part in enumerate(self.parts) for name in part.values()]
        reports = any(part.reports for part in self.parts)
        self.text, self.facts, line = define(code, parameters, values, reports, facts)
        return line

    def _write_ends(self, code: IndentedBuffer) -> list[str]:
        """Write where each part's tiles end among all tiles; return the names of these numbers."""
        names: list[str] = []
        for i, part in enumerate(self.parts):
            self._write_per_item(code, part)
            begin = f"{names[-1]} + " if names else ""
            names.append(f"end{i}_")
            code.writeline(f"const i64 {names[-1]} = {begin}{part.tiles_of(f'p{i}_')};")
        return names

    def _write_per_item(self, code: IndentedBuffer, part: PartKernel) -> None:
        if self.per_item != part.per_item():
            self.per_item = part.per_item()
            code.writelines(["#undef BP_PER_ITEM", f"#define BP_PER_ITEM {self.per_item}"])

    def _write_class(self, code: IndentedBuffer, first: int, one: PartKernel, begins: Sequence[str]) -> None:
        """Write a tile of any part of a class: parts from number ``first`` on, whose tiles begin at ``begins``."""

        def chosen(texts: Iterable[str]) -> str:
            *others, last = texts
            return "".join(f"part_ == {i} ? {text} : " for i, text in enumerate(others)) + last

        numbers = range(first, first + len(begins))
        if len(begins) > 1:
            code.writeline(f"const i32 part_ = {' + '.join(f'(tile_ >= {begin})' for begin in begins[1:])};")
        code.writeline(f"const i64 at_ = tile_ - ({chosen(begins)});")
        for kind, name, written in one.parameters():
            const = "" if written else "const "
            pointer = f"BP_GLOBAL {const}{kind}* BP_RESTRICT {name}"
            code.writeline(f"{pointer} = {chosen(f'p{i}_{name}' for i in numbers)};")
        for name in [*one.values(), *one.lengths()]:
            code.writeline(f"const i64 {name} = {chosen(f'p{i}_{name}' for i in numbers)};")
        self._write_per_item(code, one)
        code.splice(one.tile)

    def _extents(self) -> Iterator[tuple[int, int, int]]:
        """The extents from which the number of groups is computed."""
        before = 0
        for part in self.parts:
            if part is not self.parts[0]:
                yield FURTHER_PART
            for tree, elements in part.takes():
                yield part.factor(tree, elements or -part.per_item(), before)
            before += len(part.values())

    def call_kernel(self, name: str) -> None:
        """The call: all tensors, then all numbers."""
        tensors, numbers = [], []
        for part in self.parts:
            part.compute_sizes()
            of_part = part.call_arguments()
            tensors += of_part[0]
            numbers += of_part[1]
        write_call(name, tensors, numbers, self.parts[0].device)

    def codegen_nan_check(self) -> None:
        """Write the checks after the call, with ``config.nan_asserts``."""
        for part in self.parts:
            GroupKernel.codegen_nan_check(part)


def launches(parts: Iterable[PartKernel]) -> Iterator[CombinedKernel]:
    """Combine parts within the limits of a launch; a scan, whose tile fills local memory, gets its own launch."""
    together: list[PartKernel] = []
    tensors = words = 0
    for part in parts:
        if part.features.contains_op("scan"):
            yield CombinedKernel([part])
            continue
        own_tensors, own_numbers = len(part.parameters()), len(part.values())
        full = tensors + own_tensors > MOST_BUFFERS or words + own_tensors + own_numbers > MOST_WORDS
        if together and full:
            yield CombinedKernel(together)
            together, tensors, words = [], 0, 0
        together.append(part)
        tensors += own_tensors
        words += own_tensors + own_numbers
    if together:
        yield CombinedKernel(together)
