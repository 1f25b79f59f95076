"""One fused kernel in the dialect, as work of a group: its elements, its loops, its folds and scans.

Overrides what a backend is expected to override of a private class of torch, ``SIMDKernel``; tested on torch 2.11,
2.12, 2.13 and 2.15. A reduction is a sequence of sections: loops over the reduced axis, in which elements are computed
and folded, and between them code that runs once for each result. Inductor ends a section by
:meth:`GroupKernel.codegen_body`.
"""
# torch types a property of axes, is_reduction, as a function.
# mypy: disable-error-code="misc"

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch._inductor.codegen.common import CSEVariable, DeferredLine, IndentedBuffer
from torch._inductor.codegen.simd import IterationRangesEntry
from torch._inductor.utils import sympy_index_symbol
from torch._inductor.virtualized import OpsWrapper, V
from torch.utils._ordered_set import OrderedSet
from torch.utils._sympy.value_ranges import ValueRanges

from torch_backplane.inductor import dtypes
from torch_backplane.inductor.dtypes import computed
from torch_backplane.inductor.folds import Fold, fold_of
from torch_backplane.inductor.host_numbers import is_host_number
from torch_backplane.inductor.layout import BLOCK, LaidOutKernel
from torch_backplane.inductor.ops import DialectOps
from torch_backplane.inductor.scans import Scan, at
from torch_backplane.inductor.variables import SAME_EVERYWHERE, IndexProxy, TypedCSE, names_in


class GroupKernel(LaidOutKernel):
    """Text and call of one kernel."""

    overrides = DialectOps
    suffix = ";"
    sexpr = kexpr = staticmethod(dtypes.sizes)

    def __init__(self, tiling: dict[str, sympy.Expr], **kwargs: Any) -> None:
        super().__init__(tiling, **kwargs)
        self.cse: Any = TypedCSE(self.newvar_prefix, self.suffix)
        self.cse.kernel = self
        self.ids = itertools.count()
        # Of the current section.
        self.entries: dict[str, tuple[IterationRangesEntry, str]] = {}
        self.folds: list[tuple[Fold, list[str], list[str]]] = []  # with the names of its states and of its results
        self.scans: dict[Any, Scan] = {}  # by Scan.what
        self.after = IndentedBuffer()  # code that uses results of the section's folds
        # Of the kernel.
        self.row_vars: OrderedSet[CSEVariable] = OrderedSet()  # in scope for the whole row, or arrays of a tile
        self.shared: dict[str, tuple[str, str]] = {}  # arrays of local memory, by name: type and size
        self.invariant = IndentedBuffer()  # code that is the same for all elements
        self.invariant_names = set(SAME_EVERYWHERE)
        self.zeros: dict[str, str] = {}  # by variable: the zero of the places that it gives
        self.wraps = False  # whether the size was added to the current index, if negative

    def __enter__(self) -> GroupKernel:
        super().__enter__()
        self.exit_stack.enter_context(V.set_ops_handler(IndexProxy(self, self.overrides())))
        return self

    def dtype_to_str(self, dtype: torch.dtype) -> str:
        return dtypes.REGISTER[dtype]

    # ---- elements

    def load(self, name: str, index: sympy.Expr) -> CSEVariable:
        dtype = V.graph.get_dtype(name)
        if is_host_number(name):
            number = self.args.input(name)
            self.invariant_names.add(number)
            return self.generate(dtypes.from_bits(number, dtype), computed(dtype))
        index = self.prepare_indexing(index)
        text = f"bp_load_{dtypes.name_of(dtype)}({self.args.input(name)}, {self.index_to_str(index)})"
        loaded = computed(dtype)
        if index.is_number and not self._load_mask and name not in self.store_buffer_names:
            self.invariant_names.add(self.args.input(name))
        if not self._load_mask and self.lies_across(index):
            block = f"block_{dtypes.REGISTER[loaded]}_{len(self.staged)}"
            array, _ = self.staged.setdefault(text, (block, loaded))
            text = f"{array}[({self.across.name} - strip_) * {BLOCK[0]} + j]"
        elif self._load_mask:
            other = self._load_other if self._load_other is not None else 0
            text = f"({self._load_mask} ? {text} : {dtypes.literal(other, loaded)})"
        return self.generate(text, loaded)

    def store(self, name: str, index: sympy.Expr, value: CSEVariable, mode: Any = None) -> None:
        line = self._store(name, index, value, mode)
        self.stores.writeline(DeferredLine(name, self._once(line) if not self._in_loop() else line))

    def store_reduction(self, name: str, index: sympy.Expr, value: CSEVariable) -> None:
        inside, self.inside_reduction = self.inside_reduction, False
        try:
            line = self._store(name, index, value, None)
        finally:
            self.inside_reduction = inside
        self.after.writeline(DeferredLine(name, self._once(line)))

    def _store(self, name: str, index: sympy.Expr, value: CSEVariable, mode: Any) -> str:
        dtype = V.graph.get_dtype(name)
        to = self.args.output(name)
        place = self.index_to_str(self.prepare_indexing(index))
        if mode is None:
            return f"bp_store_{dtypes.name_of(dtype)}({to}, {place}, {value});"
        if mode != "atomic_add":
            raise NotImplementedError(f"a store with mode {mode} in a kernel")
        if dtype not in dtypes.ATOMICS:
            raise NotImplementedError(f"sums of {dtype} into repeated places in a kernel")
        if dtype in (torch.int32, torch.int64, torch.float32):
            return f"BP_ATOMIC_ADD_{dtypes.name_of(dtype).upper()}({to} + ({place}), {value});"
        return f"bp_atomic_add_{dtypes.name_of(dtype)}({to} + ({place}), {value});"

    def _once(self, line: str) -> str:
        return f"if (BP_ITEM == 0) {line}" if self.rows else line

    def _in_loop(self) -> bool:
        return self.inside_reduction or not self.rows

    def is_invariant(self, expr: Any) -> bool:
        """Whether an expression only uses numbers that do not depend on an axis."""
        if not isinstance(expr, str):
            return False
        self.invariant_names.update(self.args.sizevars.values())
        return self.invariant_names.issuperset(names_in(expr))

    def generate(self, text: str, dtype: torch.dtype) -> CSEVariable:
        """A new variable of the section."""
        return self.cse.generate(self.compute, text, dtype=dtype, shape=())

    def check_bounds(self, expr: sympy.Expr, size: sympy.Expr, lower: bool, upper: bool) -> None:
        """Nothing: a place from data is checked by :meth:`checked_place`."""

    def checked_place(self, var: CSEVariable, size: sympy.Expr, check: bool) -> sympy.Symbol:
        """A place from data: one that is out of range is reported as by the portable kernels, and becomes 0."""
        known = var.bounds.lower >= 0 and isinstance(size, sympy.Integer) and var.bounds.upper < size
        text = f"(i64){var}"
        if check and not known:
            self.reports = True
            used = self._load_mask if self._load_mask else "1"
            text = f"bp_place(report_, bp_arg.site_, {text}, {self.index_to_str(size)}, {used}, {int(self.wraps)})"
        place = self.generate(f"{text} ^ {self._opaque_zero(var)}", torch.int64)
        place.bounds = ValueRanges(sympy.S.Zero, sympy.oo)
        return sympy_index_symbol(str(place))

    def _opaque_zero(self, var: CSEVariable) -> str:
        """An opaque zero for the places of a variable; a condition on a place can reveal its zero to the compiler."""
        if str(var) not in self.zeros:
            zero = self.cse.newvar(dtype=torch.int64, shape=())
            self.invariant.writeline(f"const i64 {zero} = BP_OPAQUE_ZERO;")
            self.invariant_names.add(str(zero))
            self.zeros[str(var)] = str(zero)
        return self.zeros[str(var)]

    def check_divisor(self, divisor: CSEVariable) -> None:
        """Report a divisor of 0, as eager's ZeroDivisionError, unless a mask hides the quotient."""
        if divisor.bounds.lower > 0 or divisor.bounds.upper < 0:
            return
        self.reports = True
        used = f" && {self._load_mask}" if self._load_mask else ""
        self.compute.writeline(f"if ({divisor} == 0{used}) bp_report(report_, bp_arg.site_, 0, BP_BY_ZERO);")

    def random_block(self, seed: CSEVariable, offset: CSEVariable) -> str:
        """The names of the four 32-bit numbers of the block with this place of the sequence."""
        keys = [f"philox({seed}, {offset})[{i}]" for i in range(4)]
        if not self.cse.contains(keys[0]):
            numbers = [self.cse.newvar(dtype=torch.uint32, shape=()) for _ in keys]
            names = ", ".join(map(str, numbers))
            self.compute.writelines([f"u32 {names};", f"BP_PHILOX((u64){seed}, (u64)({offset}) >> 2, {names})"])
            for key, number in zip(keys, numbers, strict=True):
                self.cse.put(key, number)
        return ", ".join(str(self.cse.get(key)) for key in keys)

    def random_normal(self, seed: CSEVariable, offset: CSEVariable) -> str:
        """The normal number at this place, one of a pair."""
        cosine, sine = (self.cse.newvar(dtype=torch.float32, shape=()) for _ in range(2))
        numbers = self.random_block(seed, offset)
        self.compute.writeline(f"f32 {cosine}, {sine};")
        self.compute.writeline(f"BP_PHILOX_NORMALS({offset}, {numbers}, {cosine}, {sine})")
        return f"(({offset}) & 1) != 0 ? {sine} : {cosine}"

    # ---- folds

    def reduction(self, dtype: torch.dtype, src_dtype: torch.dtype, reduction_type: Any, value: Any) -> Any:
        key = (src_dtype, reduction_type, value)
        if key not in self.cse.reduction_cache:
            self.cse.reduction_cache[key] = self._reduction(reduction_type, value)
        return self.cse.reduction_cache[key]

    def _reduction(self, reduction_type: str, value: Any) -> Any:
        if self._load_mask:
            raise AssertionError("a reduction within a mask")
        values = value if isinstance(value, tuple) else (value,)
        fold = fold_of(reduction_type, values[0].dtype)
        number = next(self.ids)
        states = [f"fold{number}_{i}" for i in range(len(fold.states))]
        place = " + ".join(f"(i64){tree.name}" for tree in self.range_trees if tree.is_reduction)
        self.stores.writeline(fold.step(at(states, "j"), [str(one) for one in values], place))
        names = [f"result{number}_{i}" if self.rows else f"{states[i]}[j]" for i in fold.result]
        self.folds.append((fold, states, names))
        results = []
        for name, i in zip(names, fold.result, strict=True):
            results.append(self.create_cse_var(name, ValueRanges.unknown(), fold.states[i], ()))
        self.row_vars.update(results)
        return results[0] if len(results) == 1 else tuple(results)

    # ---- scans

    def scan(self, dtypes: Any, combine_fn: Callable[..., Any], values: tuple[CSEVariable, ...]) -> Any:
        if self._load_mask:
            raise AssertionError("a scan within a mask")
        states = tuple(computed(dtype) for dtype in dtypes)
        combine, results = self._combination(combine_fn, states)
        names = tuple(str(value) for value in values)
        scan = Scan(next(self.ids), states, combine, results, self.compute.getvalue(), names)
        known = self.scans.setdefault(scan.what, scan)
        if known is scan and not self.rows:
            axes = [f"{tree.name} == 0" for tree in self.range_trees if tree.is_reduction]
            self.compute.writeline(scan.step_alone(f"({' && '.join(axes)})"))
        pairs = zip(known.arrays(), states, strict=True)
        return tuple(self.create_cse_var(f"{array}[j]", ValueRanges.unknown(), dtype, ()) for array, dtype in pairs)

    def _combination(
        self, combine_fn: Callable[..., Any], states: Sequence[torch.dtype]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Statements that combine two values of a scan, left0_ ... and right0_ ..., and the names of the results."""

        def variables(word: str) -> tuple[CSEVariable, ...]:
            pairs = enumerate(states)
            return tuple(self.create_cse_var(f"{word}{i}_", ValueRanges.unknown(), dtype, ()) for i, dtype in pairs)

        text = IndentedBuffer()
        with self.swap_buffers(text):
            self.cse = TypedCSE(self.newvar_prefix, self.suffix, name_prefix="both")
            results = [str(OpsWrapper._unwrap(one)) for one in combine_fn(variables("left"), variables("right"))]
        lines = [line for line in text.getvalue().splitlines() if not line.startswith("#")]  # of comment_origin
        return tuple(lines), tuple(results)

    def _begin_folds(self) -> None:
        for fold, states, _ in self.folds:
            for dtype, state, begin in zip(fold.states, states, fold.begin, strict=True):
                self.body.writeline(f"{dtypes.REGISTER[dtype]} {state}[BP_PER_ITEM];")
                self.body.writeline(f"BP_LANES(j) {state}[j] = {begin};")

    def _end_folds(self) -> None:
        """Join, for a row, the lanes of an item, then the items of the group."""
        for fold, states, names in self.folds:
            lanes = fold.join(at(states, "j"), at(states, "j + half_"))
            half = self.per_item() // 2
            while half:
                joined = lanes.replace("half_", str(half))
                self.body.writeline(f"BP_IVDEP for (i32 j = 0; j < {half}; ++j) {{ {joined} }}")
                half //= 2
            kinds = [dtypes.REGISTER[dtype] for dtype in fold.states]
            shared = [f"shared_{kind}_{i}" for i, kind in enumerate(kinds)]
            self.shared.update({array: (kind, "BP_GROUP") for array, kind in zip(shared, kinds, strict=True)})
            results = list(zip(names, fold.result, strict=True))
            lines = [
                "#if BP_GROUP > 1",
                *(f"{one}[BP_ITEM] = {state}[0];" for one, state in zip(shared, states, strict=True)),
                "BP_BARRIER();",
                "for (i32 half_ = BP_GROUP / 2; half_ > 0; half_ /= 2) {",
                f"  if (BP_ITEM < half_) {{ {fold.join(at(shared, 'BP_ITEM'), at(shared, 'BP_ITEM + half_'))} }}",
                "  BP_BARRIER();",
                "}",
                *(f"const {kinds[i]} {name} = {shared[i]}[0];" for name, i in results),
                "BP_BARRIER();",
                "#else",
                *(f"const {kinds[i]} {name} = {states[i]}[0];" for name, i in results),
                "#endif",
            ]
            self.body.writelines(lines)

    # ---- sections

    def codegen_iteration_ranges_entry(self, entry: IterationRangesEntry) -> None:
        line = f"const {self.index_dtype} {entry.name} = {self.index_of_lanes(entry)};"
        if self.rows and not entry.is_reduction:
            self.row_entries.writeline(line)
        else:
            self.entries[entry.name] = (entry, line)

    def codegen_body(self) -> None:
        """End a section: write its loops, and forget the variables that are only in their scope."""
        if not any(buffer.getvalue() for buffer in (self.compute, self.stores, self.after)):
            return
        if self.inside_reduction:
            self._loop_section()
        elif self.rows:
            self.body.splice(self.compute)
            self.body.splice(self.stores)
            self.row_vars.update(self.cse.varname_map.values())  # in scope for the row
        else:
            self._lanes([self.compute, self.stores, self._keep()])
        self.cse.invalidate(self.row_vars)
        self.block_entries = [line for _, line in self.entries.values()]  # a block has one section
        for entry, _ in self.entries.values():
            entry.cache_clear()
        self.entries.clear()
        self.folds.clear()
        self.scans.clear()
        for buffer in (self.loads, self.compute, self.stores, self.after):
            buffer.clear()

    def _loop_section(self) -> None:
        self._begin_folds()
        serial = [tree for tree in self.range_trees if tree.is_reduction and tree is not self.lane_tree]
        loop = IndentedBuffer()
        for tree in serial:
            name = tree.name
            loop.writeline(f"for ({self.index_dtype} {name} = 0; {name} < {self.extent(tree)}; ++{name})")
        if self.rows:
            length = self.extent(self.lane_tree)
            self.body.splice(loop)
            self.body.writelines(["{", "i64 first_ = 0;"])
            for scan in self.scans.values():
                self.body.writelines(scan.begin())
                self.shared.update(scan.local())
            whole = f"first_ + BP_TILE <= {length}"  # a separate loop: the states stay in registers
            rest, count = f"if (first_ < {length}) {{", f"(i32)({length} - first_)"
            if self.scans:  # Barriers only in the second loop: with two, PoCL loses stores to local memory.
                whole = f"BP_GROUP == 1 && {whole}"
                rest = f"for (; first_ < {length}; first_ += BP_TILE) {{"
                count = f"(i32)({length} - first_ < BP_TILE ? {length} - first_ : BP_TILE)"
            begins = f"for (; {whole}; first_ += BP_TILE) {{"
            lanes = f"const i32 lanes_ = BP_LANES_FROM(first_, {length});"
            self._lanes([self.compute, self.stores], ([begins], [rest, lanes]), counts=("BP_TILE", count))
            self.body.writeline("}")
            self._end_folds()
            self.body.splice(self.after)
        else:
            for scan in self.scans.values():
                self.body.writelines(scan.begin_alone())
            self._lanes([self.compute, self.stores], around=loop)
            if self.after.getvalue():
                self._lanes([self.after], reduced=False)

    def _lanes(
        self,
        what: Sequence[IndentedBuffer],
        tiles: tuple[list[str], list[str]] = (["if (lanes_ == BP_PER_ITEM) {"], ["else {"]),
        *,
        around: IndentedBuffer | None = None,
        reduced: bool = True,
        counts: Sequence[str] = (),
    ) -> None:
        """Write the lanes of a tile: a full tile, which compilers vectorize, or the lanes that exist.

        With ``counts``, the number of a tile's elements along a row, its scans come first. Their operands are computed
        for them, and again for what follows; a compiler removes what is not used.
        """
        head = [f"const {self.index_dtype} {self.lane_tree.name} = ({self.index_dtype})(first_ + BP_AT(j));"]
        head += [line for entry, line in self.entries.values() if reduced or not entry.is_reduction]
        for i, (tile, loop) in enumerate(zip(tiles, ("BP_LANES(j) {", "BP_EACH_LANE(j, lanes_) {"), strict=True)):
            self.body.writelines(tile)
            with self.body.indent():
                for scan in self.scans.values() if counts else ():
                    puts = [f"{a}[j] = {value};" for a, value in zip(scan.arrays(), scan.values, strict=True)]
                    self._lane_loop(loop, [*head, *scan.before.split("\n"), *puts])
                    self.body.writelines(scan.tile(loop, counts[i], self.per_item()))
                if around is not None:
                    self.body.splice(around)
                self._lane_loop(loop, [*head, *what])
            self.body.writeline("}")

    def _lane_loop(self, loop: str, what: Sequence[str | IndentedBuffer]) -> None:
        self.body.writeline(loop)
        with self.body.indent():
            for one in what:
                self.body.writeline(one) if isinstance(one, str) else self.body.splice(one)
        self.body.writeline("}")

    def _keep(self) -> IndentedBuffer:
        """Keep values that later sections read instead of a removed buffer: each in an array of the tile."""
        lines = IndentedBuffer()
        if not self.features.is_reduction():
            return lines
        for buffer, value in list(self.cse.store_cache.items()):
            if value in self.row_vars:
                continue
            name = f"kept{next(self.ids)}"
            kept = self.create_cse_var(f"{name}[j]", value.bounds, value.dtype, ())
            self.body.writeline(f"{dtypes.REGISTER[value.dtype]} {name}[BP_PER_ITEM];")
            lines.writeline(f"{name}[j] = {value};")
            self.cse.store_cache[buffer] = kept
            self.row_vars.add(kept)
        return lines

    # ---- the whole

    def codegen_kernel(self, name: str | None = None) -> str:
        """The expression in the wrapper that creates the kernel."""
        self.codegen_body()
        code = IndentedBuffer()
        write_arrays(code, self.shared, self.arrays_of_blocks())
        code.splice(self.invariant)
        code.writeline(f"const i64 all_ = {self.tile_count()};")
        code.writeline("for (i64 at_ = BP_GROUP_ID(0); at_ < all_; at_ += BP_GROUPS(0)) {")
        with code.indent():
            self.write_tile(code, self.body)
        code.writeline("}")
        return self.definition(code, self.takes(), self.per_item())


def write_arrays(code: IndentedBuffer, shared: dict[str, tuple[str, str]], blocks: dict[str, tuple[str, str]]) -> None:
    """Declare arrays of local memory, by name: type and size. Those of blocks are a core's, the others a group's."""
    code.writelines([f"BP_LOCAL_ARRAY({kind}, {one}, {size});" for one, (kind, size) in blocks.items()])
    if shared:
        code.writeline("#if BP_GROUP > 1")
        code.writelines([f"BP_LOCAL_ARRAY({kind}, {one}, {size});" for one, (kind, size) in shared.items()])
        code.writeline("#endif")
