"""``tt.dot`` and ``tt.dot_scaled``: products of blocks, added to a third."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torch_backplane.triton import words
from torch_backplane.triton.lowering import tiles
from torch_backplane.triton.lowering.forms import Array
from torch_backplane.triton.lowering.state import Lowering, lowers
from torch_backplane.triton.lowering.uses import MOVES, is_lazy
from torch_backplane.triton.ttir import Op, Type, Value
from torch_backplane.triton.words import NARROW, register

_ROWS = 8
"""Of a micro tile, whose sums stay in registers."""
_VECTOR = """BP_VECTOR(f32, bt_vector);
#define BT_LANES ((i32)(sizeof(bt_vector) / sizeof(f32)))
"""


@lowers("tt.dot")
def _dot(low: Lowering, op: Op) -> None:
    a, b, c = op.operands[:3]
    _multiply(low, op, (low.keep(a), low.keep(b)), c, register(a.type), a.type.lengths[-1])


def _multiply(low: Lowering, op: Op, factors: tuple[str, str], c: Value, kind_of_factors: str, k: int) -> None:
    """The arrays of two factors, k deep, multiplied and added to a block."""
    result = op.result
    batches = result.type.lengths[0] if len(result.type.lengths) == 3 else 1
    m, n = result.type.lengths[-2:]
    x, y = factors
    sums = _sums_of_loop(low, op) or low.array(result.type)
    low.write(sums, c)
    kind = register(result.type)
    low.barrier()
    if low.items > 1:
        tiles.multiply(low, result.type, sums, x, y, k)
        low.keep_as(result, sums)
        return
    with low.text.scope(f"for (i32 g = 0; g < {batches}; ++g)" if batches > 1 else ""):
        if batches == 1:
            low.text.line("const i32 g = 0;")
        places = f"{sums} + g * {m * n}", f"{x} + g * {m * k}", f"{y} + g * {k * n}"
        if kind == kind_of_factors == "f32":
            _by_vectors(low, *places, m, n, k)
        else:
            _by_rows(low, kind, *places, m, n, k)
    if result.type.elem in NARROW:
        rounded = words.rounded(result.type, f"{sums}[l]")
        low.text.line(f"for (i32 l = 0; l < {result.type.size}; ++l) {sums}[l] = {rounded};")
    low.keep_as(result, sums)


@dataclass(frozen=True)
class _Factor:
    """An operand of ``tt.dot_scaled``."""

    value: Value
    scale: Value | None
    format: str
    is_left: bool
    packs_depth: bool
    """Of e2m1, two to a byte: whether they are neighbours along the depth."""


@lowers("tt.dot_scaled")
def _dot_scaled(low: Lowering, op: Op) -> None:
    """The factors become f32, times their scales; the product is that of f32."""
    found = re.match(r"\s*%\S+?( scale %\S+?)?, %\S+?( scale %\S+?)?, %\S+ lhs = (\w+) rhs = (\w+)", op.body)
    assert found is not None
    values = iter(op.operands)
    factors = []
    for side in range(2):
        value = next(values)
        scale = next(values) if found.group(1 + side) else None
        packs_depth = op.attributes.get(("lhs_k_pack", "rhs_k_pack")[side]) != "false"
        factors.append(_Factor(value, scale, found.group(3 + side), side == 0, packs_depth))
    depth = factors[0].value.type.lengths[-1] * (2 if factors[0].format == "e2m1" and factors[0].packs_depth else 1)
    arrays = [_scaled(low, factor, op.result.type, depth) for factor in factors]
    _multiply(low, op, (arrays[0], arrays[1]), next(values), "f32", depth)


def _scaled(low: Lowering, factor: _Factor, product: Type, depth: int) -> str:
    """A factor as an array of f32, of all rows or columns of the product and the whole depth."""
    batches = product.lengths[:-2]
    wide = product.lengths[-2 if factor.is_left else -1]
    shape = Type("f32", (*batches, *((wide, depth) if factor.is_left else (depth, wide))))
    data, array = low.keep(factor.value), low.array(shape)
    scales = low.keep(factor.scale) if factor.scale is not None else ""
    rows, columns = shape.lengths[-2:]
    first, step = ("BP_ITEM", "BP_GROUP") if low.items > 1 else ("0", "1")
    low.barrier()
    with low.text.scope(f"for (i32 l = {first}; l < {shape.size}; l += {step})"):
        low.text.line(f"i32 const r = l / {columns};")  # with the batch's number
        low.text.line(f"i32 const q = l % {columns};")
        if factor.format != "e2m1":
            value = f"{data}[l]"
        else:
            low.text.functions.setdefault("bt_e2m1", _E2M1)
            along_columns = factor.packs_depth == factor.is_left
            place = f"r * {columns // 2} + q / 2" if along_columns else f"r / 2 * {columns} + q"
            value = f"bt_e2m1((u32){data}[{place}] >> ({'q' if along_columns else 'r'} % 2 * 4))"
        if factor.scale is not None:
            groups = factor.scale.type.lengths[-1]
            own, k = ("r", "q") if factor.is_left else (f"(r / {rows} * {columns} + q)", f"r % {rows}")
            value += f" * bp_f8e8m0_to_f32((u8){scales}[{own} * {groups} + {k} / {depth // groups}])"
        low.text.line(f"{array}[l] = {value};")
    low.barrier()
    return array


_E2M1 = """/* A float of 4 bits: a sign, two bits of exponent, one of mantissa. */
BP_FN f32 bt_e2m1(u32 bits) {
  const u32 m = bits & 7u;
  const f32 value = m < 2u ? 0.5f * (f32)m : bp_as_f32(((m >> 1) + 126u) << 23 | (m & 1u) << 22);
  return (bits & 8u) != 0 ? -value : value;
}
"""


def _by_rows(low: Lowering, kind: str, c: str, a: str, b: str, m: int, n: int, k: int) -> None:
    with low.text.scope(f"for (i32 r = 0; r < {m}; ++r) for (i32 k = 0; k < {k}; ++k)"):
        low.text.line(f"{kind} const x = ({kind})({a})[r * {k} + k];")
        low.text.line("BP_IVDEP")
        low.text.line(f"for (i32 q = 0; q < {n}; ++q) ({c})[r * {n} + q] += x * ({kind})({b})[k * {n} + q];")


def _by_vectors(low: Lowering, c: str, a: str, b: str, m: int, n: int, k: int) -> None:
    low.text.functions.setdefault("bt_vector", _VECTOR)
    rows, wide = min(m, _ROWS), low.text.name("wide")
    text = low.text
    text.line(f"#if BP_VECTOR_BYTES > 4 && {n} % (BP_VECTOR_BYTES / 4) == 0")
    text.line(f"enum {{ {wide} = {n} >= 2 * BT_LANES ? 2 : 1 }};")
    each = f"BP_UNROLL for (i32 i = 0; i < {rows}; ++i) BP_UNROLL for (i32 v = 0; v < {wide}; ++v)"
    place = f"((bt_vector*)({c} + (r + i) * {n} + q))[v]"
    with text.scope(f"for (i32 q = 0; q < {n}; q += {wide} * BT_LANES) for (i32 r = 0; r < {m}; r += {rows})"):
        text.line(f"bt_vector sums[{rows}][{wide}];")
        text.line(f"{each} sums[i][v] = {place};")
        with text.scope(f"for (i32 k = 0; k < {k}; ++k)"):
            text.line(f"const bt_vector* const row = (const bt_vector*)({b} + k * {n} + q);")
            with text.scope(f"BP_UNROLL for (i32 i = 0; i < {rows}; ++i)"):
                text.line(f"f32 const x = ({a})[(r + i) * {k} + k];")
                text.line(
                    f"BP_UNROLL for (i32 v = 0; v < {wide}; ++v) sums[i][v] = BP_VECTOR_FMA(x, row[v], sums[i][v]);"
                )
        text.line(f"{each} {place} = sums[i][v];")
    text.line("#else")
    _by_rows(low, "f32", c, a, b, m, n, k)
    text.line("#endif")


def _sums_of_loop(low: Lowering, op: Op) -> str | None:
    """The array that the loop around carries, if the product is its next value and nothing else reads it meanwhile."""
    result = op.result
    if len(result.users) != 1:
        return None
    end = result.users[0]
    if end.name != "scf.yield" or end.block is not op.block:
        return None
    argument = low.carried[-1].get(end.operands.index(result))
    if argument is None:
        return None
    value = argument  # followed to the product, through expressions of its own elements
    while len(value.users) == 1:
        user = value.users[0]
        if user is op:
            form = low.forms[argument]
            return form.name if value is op.operands[2] and isinstance(form, Array) else None
        if not is_lazy(user) or user.name in MOVES or user.block is not op.block:
            return None
        value = user.result
    return None
