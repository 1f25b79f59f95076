"""Kernels that do not depend on each other as one launch: of lists (``torch._foreach_*``), ``config.combo_kernels``.

Torch's word for it is a combo kernel. Each part is generated as a kernel of its own would be; a group finds by its
number the part that it works for, and its tile there. Parts of the same text share it: what differs, their tensors,
lengths and numbers, is chosen by the number of the part. So an optimizer's step is compiled once for all parameters
whose kernels would read alike, and is launched once for as many as a launch takes the tensors of.

A private class of torch stands behind it, by :class:`GroupKernel`; tried on torch 2.11, 2.13 and 2.15.
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

# Of a kernel, as the launcher counts them (inductor/kernel.cpp): tensors, and words of 8 bytes in all.
MOST_BUFFERS, MOST_WORDS = 60, 126
# An extent that is no factor: the groups of another part follow, and are added (backplane/generated.h).
FURTHER_PART = (0, -2, 0)


class PartKernel(GroupKernel):
    """One that is not launched by itself."""

    prefix = ""  # of its lengths' names

    def extent(self, tree: IterationRangesRoot) -> str:
        """By name, where parts may differ in it and still share their text."""
        if tree.is_reduction and isinstance(tree.numel, sympy.Integer):
            return str(tree.numel)
        return f"{self.prefix}{tree.prefix}numel"

    def lengths(self) -> dict[str, int]:
        """Those that are known, by name."""
        kept = [tree for tree in self.range_trees if not tree.is_reduction]
        return {f"{tree.prefix}numel": int(tree.numel) for tree in kept if isinstance(tree.numel, sympy.Integer)}

    def tiles_of(self, prefix: str) -> str:
        """How many tiles there are, by lengths whose names begin so."""
        self.prefix = prefix
        try:
            return self.tile_count()
        finally:
            self.prefix = ""

    def codegen_kernel(self, name: str | None = None) -> str:
        """Its text, of no use to others."""
        self.codegen_body()
        self.tile = IndentedBuffer()
        self.tile.splice(self.invariant)
        self.write_tile(self.tile, self.body)
        return self.tile.getvalue()

    def call_kernel(self, name: str, node: Any = None, deallocate_ws: bool = True) -> None:
        """Nothing: the kernel that it is a part of is called."""

    def codegen_nan_check(self) -> None:
        """Nothing: what it writes is not there yet."""

    @property
    def alike(self) -> object:
        """Equal of parts that share their text."""
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
        self.per_item = self.parts[0].per_item()  # BP_PER_ITEM, as of the line at hand
        facts: dict[str, Any] = {
            "per_item": self.per_item,
            "extents": list(self._extents()),
            "device": self.parts[0].device.index or 0,
        }
        code = IndentedBuffer()
        write_arrays(code, {name: array for part in self.parts for name, array in part.shared.items()})
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
        """Where each part's tiles end in the row of all: the names of these numbers."""
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
        """A tile of any of the parts that begin there, of which the first has that number."""

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
        """What the number of groups is computed from."""
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
        """Lines of the module behind the call, with ``config.nan_asserts``."""
        for part in self.parts:
            GroupKernel.codegen_nan_check(part)


def launches(parts: Iterable[PartKernel]) -> Iterator[CombinedKernel]:
    """As many parts together as a launch takes the arguments of; a scan alone, whose tile fills local memory."""
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
