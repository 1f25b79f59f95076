"""A product of matrices by tiles (dialect/tiles.bpc), and the pointwise operators that follow it, in one kernel.

Inductor calls it a template: a kernel that is not a loop over elements, but whose results Inductor's code can process
further. Uses a private class of torch, ``TemplateBuffer``; tested on torch 2.13 and 2.15.
"""
# torch types a property of axes, is_reduction, as a function.
# mypy: disable-error-code="misc"

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.codegen.common import IndentedBuffer
from torch._inductor.codegen.simd_kernel_features import SIMDKernelFeatures
from torch._inductor.utils import sympy_product
from torch._inductor.virtualized import V, ops
from torch.utils._ordered_set import OrderedSet

from torch_backplane.compiler import Target
from torch_backplane.inductor import dtypes
from torch_backplane.inductor.kernel import GroupKernel

# Sums of all of them are float32.
ELEMENTS = (torch.float32, torch.float16, torch.bfloat16)
_SUM_BYTES = 4


@dataclass(frozen=True)
class Tiles:
    """Rows and columns of an item, in registers; rows, columns and depth of a group, in local memory."""

    micro_m: int
    micro_n: int
    m: int
    n: int
    k: int

    def definitions(self) -> str:
        """The macros that dialect/tiles.bpc requires."""
        sizes = {"MICRO_M": self.micro_m, "MICRO_N": self.micro_n, "TILE_M": self.m, "TILE_N": self.n, "TILE_K": self.k}
        return "#define C f32\n" + "".join(f"#define {name} {size}\n" for name, size in sizes.items())


def tilings(target: Target) -> list[Tiles]:
    """Sizes to measure: on a core blocks for caches of several sizes, otherwise two micro tiles."""
    found = []
    if target.group_size == 1:
        lanes = max(target.vector_bytes // _SUM_BYTES, 1)
        vectors = target.registers * 4 // max(target.vector_bytes, 4)
        micro_m, micro_n = 8 if vectors >= 32 else 6 if vectors >= 16 else 2, 2 * lanes
        for size in (256, 128, 64, 32):
            m, n = max(size * 15 // 16 // micro_m, 1) * micro_m, max(size // micro_n, 1) * micro_n
            line = max(size, m, n) + micro_m + micro_n
            if (m * size + size * n + m * n + 16 * line) * _SUM_BYTES <= target.local_bytes:
                found.append(Tiles(micro_m, micro_n, m, n, size))
        return found[:3]
    wide = 1
    while wide * wide < target.group_size:
        wide *= 2
    for micro in (8, 4) if target.registers >= 128 else (4,):
        m, n = micro * target.group_size // wide, micro * wide
        depths = (k for k in (16, 8, 4, 2, 1) if (m + n + 8) * k * _SUM_BYTES <= target.local_bytes)
        depth = next(depths, None)
        if depth is not None:
            found.append(Tiles(micro, micro, m, n, depth))
    return found


def _quotient(n: int, by: int) -> int:
    """The quotient, rounded up."""
    return -(-n // by)


@dataclass(frozen=True)
class Product:
    """alpha a b + beta added, of matrices or of batches of them; ``added`` is None, or broadcasts to the result."""

    a: Any  # nodes of Inductor's
    b: Any
    added: Any
    alpha: float
    beta: float

    def inputs(self) -> list[Any]:
        """All operands, in the order of the operator's arguments."""
        return [one for one in (self.added, self.a, self.b) if one is not None]


class ProductBuffer(ir.TemplateBuffer):
    """The result of a product, into whose kernel the following operators can be fused."""


class ProductKernel(GroupKernel):
    """A kernel whose axes z, y and x are the batch, the rows and the columns of the result."""

    def __init__(self, product: Product, output: Any, tiles: Tiles) -> None:
        sizes = output.get_size()
        tiling = dict(zip("zyx"[-len(sizes) :], sizes, strict=True))
        super().__init__({**tiling, "r0_": sympy.S.One}, features=SIMDKernelFeatures([], sympy_product(sizes)))
        self.product, self.output, self.tiles = product, output, tiles
        self.prologue_fused_inputs: OrderedSet[str] = OrderedSet()  # none: operands are read from memory
        *_, self.rows_tree, self.columns_tree = [tree for tree in self.range_trees if not tree.is_reduction]

    @property
    def index_dtype(self) -> str:
        """64 bits: fused operators may read tensors that are larger than the product."""
        return "i64"

    def codegen_template_body(
        self,
        scheduling: Any,
        template_node: Any,
        epilogue_nodes: Sequence[Any],
        prologue_nodes: Sequence[Any],
        *ignored: Any,
    ) -> str:
        """The expression in the module that creates the kernel."""
        if prologue_nodes:
            raise AssertionError("a product reads its operands from memory")
        with self:
            multiply = self._multiply()
            self._finish(rounds=bool(epilogue_nodes))
            for node in epilogue_nodes:
                node.codegen(self.split_and_set_ranges(node.get_ranges()))
        with V.set_kernel_handler(self):
            code = IndentedBuffer()
            code.writelines(
                [
                    f"#if BP_GROUP != {self.group_size}",  # a package may be loaded on another target
                    f'#error "tiles that max_autotune chose for groups of {self.group_size}, not of this target\'s"',
                    "#endif",
                    "TILE_ARRAYS",
                ]
            )
            code.splice(self.invariant)
            self._each_tile(code, multiply)
            takes = [(tree, self._tile(tree)) for tree in self.range_trees if not tree.is_reduction]
            return self.definition(code, takes, 1, self.tiles.definitions())

    # ---- an element of the result

    def _finish(self, rounds: bool) -> None:
        """Write alpha times the sum plus beta times the addend, and the store; round it if operators follow."""
        sizes, dtype = self.output.get_size(), self.output.get_dtype()
        (places,) = self.split_and_set_ranges([sizes])
        value: Any = self.cse.namedvar("sum_", dtype=torch.float32, shape=())
        product = self.product
        if product.alpha != 1:
            value = ops.mul(value, ops.constant(product.alpha, torch.float32))
        if product.added is not None and product.beta != 0:
            shape = product.added.get_size()
            inner = zip(shape, places[len(places) - len(shape) :], strict=True)
            added = product.added.make_loader()([sympy.S.Zero if size == 1 else at for size, at in inner])
            added = ops.to_dtype(added, torch.float32)
            if product.beta != 1:
                added = ops.mul(added, ops.constant(product.beta, torch.float32))
            value = ops.add(value, added)
        if rounds and dtype in dtypes.HALVES:
            value = ops.to_dtype(value, dtype, src_dtype=torch.float32, use_compute_types=False)
        ops.store(self.output.get_name(), self.output.get_layout().make_indexer()(places), value)

    # ---- text

    def _expr(self, expr: Any) -> str:
        return f"({self.index_to_str(self.rename_indexing(sympy.sympify(expr)))})"

    def _tile(self, tree: Any) -> int:
        """How much of an axis a group computes: on a core, the same number of rows or columns in each tile."""
        if tree.prefix == "z":
            return 1
        rows = tree is self.rows_tree
        most, micro = (self.tiles.m, self.tiles.micro_m) if rows else (self.tiles.n, self.tiles.micro_n)
        if self.group_size > 1 or not isinstance(tree.numel, sympy.Integer):
            return most
        extent = int(tree.numel)
        even = _quotient(extent, _quotient(extent, most))
        return min(_quotient(even, micro) * micro, most)

    def _multiply(self) -> list[str]:
        """The sums of a tile, over all of k."""
        depth = self._expr(self.product.a.get_size()[-1])
        begin_a, step_a = self._operand("a", self.product.a)
        begin_b, step_b = self._operand("b", self.product.b)
        return [
            begin_a,
            begin_b,
            "TILE_CLEAR(rows_, columns_);",
            f"for (i64 first_k_ = 0; first_k_ < {depth}; first_k_ += TILE_K) {{",
            f"const i32 depth_ = (i32)bp_min_int({depth} - first_k_, TILE_K);",
            *step_a,
            *step_b,
            "BP_BARRIER();",
            "TILE_MULTIPLY(rows_, columns_, depth_)",
            "BP_BARRIER();",
            "}",
        ]

    def _operand(self, name: str, matrix: Any) -> tuple[str, list[str]]:
        """Where an operand's part begins, and the copy of its next columns (of a) or rows (of b) into local memory."""
        layout, element = matrix.get_layout(), matrix.get_dtype()
        is_a = name == "a"
        across, along = layout.stride[-2:] if is_a else layout.stride[:-3:-1]
        first, count, width = ("row_", "rows_", "MICRO_M") if is_a else ("column_", "columns_", "MICRO_N")
        pitch, size = f"TILE_PITCH_{name.upper()}", "TILE_M" if is_a else "TILE_N"
        most = self.tiles.m if is_a else self.tiles.n
        pointer = f"BP_GLOBAL const {dtypes.MEMORY[element]}* const"
        place = f"{self._expr(layout.offset)} + {first} * {self._expr(across)}"
        if len(layout.size) == 3:
            place += f" + zindex * {self._expr(layout.stride[0])}"
        begin = f"{pointer} begin_{name}_ = {self.args.input(matrix.get_name())} + ({place});"
        step = f"{pointer} from_{name}_ = begin_{name}_ + first_k_ * {self._expr(along)};"

        def value(i: str, k: str) -> str:
            there = f"{self._distance(i, across, most)} + {self._distance(k, along, self.tiles.k)}"
            return f"(C)bp_load_{dtypes.name_of(element)}(from_{name}_, {there})"

        # neighbours are neighbours in memory
        if (across == 1 and along != 1) if is_a else (across == 1 or along != 1):
            order, line, many = "ACROSS", value("i_", "k"), count
            packs = f"TILE_PACK_ACROSS(tile_{name}, {width}, {count}, depth_, k, "
        else:
            order, line, many = "ALONG", value("i", "i_"), "depth_"
            packs = f"TILE_PACK_ALONG(tile_{name}, {width}, {count}, depth_, i, "
        if self.group_size == 1:
            return begin, [step, f"{packs}BP_IVDEP for (i32 i_ = 0; i_ < {many}; ++i_) tile_line[i_] = {line})"]
        inside = f"(i < {count} && k < depth_ ? {value('i', 'k')} : (C)0)"
        return begin, [step, f"TILE_PACK_{order}(tile_{name}, {pitch}, {size}, i, k, {inside})"]

    def _distance(self, number: str, stride: sympy.Expr, most: int) -> str:
        """The distance of so many steps, in 32 bits if that is known to be enough."""
        near = isinstance(stride, (int, sympy.Integer)) and abs(int(stride)) * most < 2**30
        return f"{number} * {int(stride)}" if near else f"(i64){number} * {self._expr(stride)}"

    def _each_tile(self, code: IndentedBuffer, multiply: list[str]) -> None:
        rows, columns = self.extent(self.rows_tree), self.extent(self.columns_tree)
        tile_m, tile_n = self._tile(self.rows_tree), self._tile(self.columns_tree)
        code.writeline(f"const i64 tiles_m_ = ((i64){rows} + {tile_m - 1}) / {tile_m};")
        code.writeline(f"const i64 tiles_n_ = ((i64){columns} + {tile_n - 1}) / {tile_n};")
        batch = [tree for tree in self.range_trees if tree.prefix == "z"]
        count = f"(i64){self.extent(batch[0])} * " if batch else ""
        code.writeline(f"const i64 all_ = {count}tiles_m_ * tiles_n_;")
        code.writeline("for (i64 at_ = BP_GROUP_ID(0); at_ < all_; at_ += BP_GROUPS(0)) {")
        with code.indent():
            code.writeline(f"const i64 column_ = at_ % tiles_n_ * {tile_n};")
            code.writeline(f"const i64 row_ = at_ / tiles_n_ % tiles_m_ * {tile_m};")
            if batch:
                code.writeline("const i64 zindex = at_ / tiles_n_ / tiles_m_;")
            code.writeline(f"const i32 rows_ = (i32)bp_min_int((i64){rows} - row_, {tile_m});")
            code.writeline(f"const i32 columns_ = (i32)bp_min_int((i64){columns} - column_, {tile_n});")
            code.writelines(multiply)
            self._each_element(code)
        code.writeline("}")

    def _each_element(self, code: IndentedBuffer) -> None:
        if self.group_size == 1:
            code.writeline("for (i32 r_ = 0; r_ < rows_; ++r_) {")
            code.writeline("BP_LOCAL const C* const sums_ = tile_c + r_ * TILE_N;")
            code.writeline("BP_IVDEP for (i32 c_ = 0; c_ < columns_; ++c_) {")
            code.writeline("const i64 yindex = row_ + r_;")
            code.writeline("const i64 xindex = column_ + c_;")
            code.writeline("const f32 sum_ = sums_[c_];")
        else:
            code.writeline("BP_UNROLL for (i32 r_ = 0; r_ < MICRO_M; ++r_) {")
            code.writeline("BP_UNROLL for (i32 c_ = 0; c_ < MICRO_N; ++c_) {")
            code.writeline("if (tile_row + r_ < rows_ && tile_column + c_ < columns_) {")
            code.writeline("const i64 yindex = row_ + tile_row + r_;")
            code.writeline("const i64 xindex = column_ + tile_column + c_;")
            code.writeline("const f32 sum_ = tile_sums[r_][c_];")
        with code.indent():
            code.writelines([line for _, line in self.entries.values()])
            code.splice(self.compute)
            code.splice(self.stores)
        code.writelines(["}"] * (2 if self.group_size == 1 else 3))
