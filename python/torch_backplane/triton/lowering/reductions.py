"""Reductions and scans with the user's combination, and histograms.

With one item, rows are reduced by 64 lanes and then by halves, other axes row by row. With several, see exchanges.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch_backplane.triton import words
from torch_backplane.triton.lowering import exchanges
from torch_backplane.triton.lowering.forms import Array, Scalar
from torch_backplane.triton.lowering.nest import Nest
from torch_backplane.triton.lowering.state import Lowering, lowers
from torch_backplane.triton.ttir import Op
from torch_backplane.triton.words import register

_LANES = 64
Put = Callable[[int, str], str]
"""The place of a result: of which operand, and at which place."""


def _walk(op: Op) -> tuple[int, int, int]:
    """The elements before the axis, along it, and behind it."""
    shape, axis = op.operands[0].type.lengths, op.integer("axis")
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def _kinds(op: Op) -> list[str]:
    return [register(operand.type) for operand in op.operands]


def _combine(low: Lowering, op: Op, targets: Sequence[str], first: Sequence[str], second: Sequence[str]) -> None:
    """``targets = combination(first, second)``; the operands are lvalues or names."""
    block = op.regions[0][0]
    with low.region(), low.apart():
        for argument, text in zip(block.arguments, [*first, *second], strict=True):
            name = low.text.name("t")
            low.text.line(f"{register(argument.type)} const {name} = {text};")
            low.forms[argument] = Scalar(name)
        low.block(block, lambda end: _assign(low, targets, [low.scalar(value) for value in end.operands]))


def _assign(low: Lowering, targets: Sequence[str], values: Sequence[str]) -> None:
    for target, value in zip(targets, values, strict=True):
        low.text.line(f"{target} = {value};")


@lowers("tt.reduce")
def _reduce(low: Lowering, op: Op) -> None:
    if low.items > 1:
        exchanges.reduce(low, op, _combine)
        return
    outer, length, inner = _walk(op)
    neutral = _neutral(op)
    if inner == 1 and length >= 16 and neutral is not None:
        _reduce_by_lanes(low, op, neutral)
        return
    arrays = [low.keep(operand) for operand in op.operands]
    is_scalar = not op.result.type.is_block
    results = [low.text.name("s") if is_scalar else low.array(value.type) for value in op.results]
    if is_scalar:
        for kind, name in zip(_kinds(op), results, strict=True):
            low.text.line(f"{kind} {name};")

    def put(operand: int, at: str) -> str:
        return results[operand] if is_scalar else f"{results[operand]}[{at}]"

    if inner == 1:
        with low.text.scope(f"for (i32 o = 0; o < {outer}; ++o)"):
            if length < 16:
                _serial(low, op, arrays, f"o * {length}", length, 1, put, "o")
            else:
                _by_lanes(low, op, arrays, length, put)
    else:
        _row_by_row(low, op, arrays, outer, length, inner, put)
    low.forms.update(zip(op.results, [Scalar(name) if is_scalar else Array(name) for name in results], strict=True))


_NEUTRAL = {
    "addf": "-0.0",
    "mulf": "1",
    "maxnumf": "nan",
    "minnumf": "nan",
    "maximumf": "-inf",
    "minimumf": "inf",
    "addi": "0",
    "ori": "0",
    "xori": "0",
    "maxui": "0",
    "andi": "-1",
    "minui": "-1",
}
"""What a combination of one operation leaves the other operand with, to the last bit."""


def _neutral(op: Op) -> str | None:
    """That of an operation, as a literal; None if it is not known."""
    block = op.regions[0][0]
    if len(block.ops) != 2 or block.ops[0].dialect != "arith" or block.ops[1].operands != [block.ops[0].result]:
        return None
    if set(block.ops[0].operands) != set(block.arguments):
        return None
    type, name = op.operands[0].type, block.ops[0].short
    if name in ("maxsi", "minsi") and type.elem != "i1":
        return words.literal(type.scalar, str(-(1 << type.bits - 1) if name == "maxsi" else (1 << type.bits - 1) - 1))
    return words.literal(type.scalar, _NEUTRAL[name]) if name in _NEUTRAL else None


def _reduce_by_lanes(low: Lowering, op: Op, neutral: str) -> None:
    """Along the last axes, of one operand, whose elements are computed in the same loop."""
    _, length, _ = _walk(op)
    operand, lanes = op.operands[0], min(length, _LANES)
    shape, kind = (*operand.type.lengths[: op.integer("axis")], length), register(operand.type)
    is_scalar = not op.result.type.is_block
    result = low.text.name("s") if is_scalar else low.array(op.result.type)
    if is_scalar:
        low.text.line(f"{kind} {result};")
    nest = Nest(low, shape, lanes=lanes)
    sums, outside = low.text.name("sums"), nest.innermost - 2
    ones = ("0",) * (len(operand.type.lengths) - len(shape))
    element = nest.element(operand, (*nest.index, *ones))
    nest.statements[outside] += [
        f"{kind} {sums}[{lanes}] BT_ALIGNED;",
        f"for (i32 l = 0; l < {lanes}; ++l) {sums}[l] = {neutral};",
    ]
    own = f"{sums}[{nest.lane}]"
    with low.text.captured() as lines:
        _combine(low, op, [own], [own], [element])
    nest.statements[nest.innermost] += lines
    with low.text.captured() as lines:
        half = lanes // 2
        while half:
            low.text.line("BP_IVDEP")
            with low.text.scope(f"{'BT_ROLLED ' if half > 2 else ''}for (i32 l = 0; l < {half}; ++l)"):
                _combine(low, op, [f"{sums}[l]"], [f"{sums}[l]"], [f"{sums}[l + {half}]"])
            half //= 2
        target = result if is_scalar else f"{result}[{nest.linear(op.result.type.lengths, nest.index[:-1] + ones)}]"
        low.text.line(f"{target} = {sums}[0];")
    nest.close(behind=(outside, lines))
    low.forms[op.result] = Scalar(result) if is_scalar else Array(result)


def _serial(
    low: Lowering, op: Op, arrays: Sequence[str], first: str, length: int, stride: int, put: Put, at: str
) -> None:
    sums = [low.text.name("sum") for _ in arrays]
    for kind, name, array in zip(_kinds(op), sums, arrays, strict=True):
        low.text.line(f"{kind} {name} = {array}[{first}];")
    if length > 1:
        with low.text.scope(f"for (i32 r = 1; r < {length}; ++r)"):
            _combine(low, op, sums, sums, [f"{array}[{first} + r * {stride}]" for array in arrays])
    _assign(low, [put(i, at) for i in range(len(arrays))], sums)


def _by_lanes(low: Lowering, op: Op, arrays: Sequence[str], length: int, put: Put) -> None:
    lanes = min(length, _LANES)
    sums = [low.array(operand.type, size=lanes) for operand in op.operands]
    low.text.line(f"for (i32 l = 0; l < {lanes}; ++l) {{")
    for name, array in zip(sums, arrays, strict=True):
        low.text.line(f"  {name}[l] = {array}[o * {length} + l];")
    low.text.line("}")
    own = [f"{name}[l]" for name in sums]
    if length > lanes:
        with low.text.scope(f"for (i32 c = {lanes}; c < {length}; c += {lanes})"):
            low.text.line("BP_IVDEP")
            with low.text.scope(f"for (i32 l = 0; l < {lanes}; ++l)"):
                _combine(low, op, own, own, [f"{array}[o * {length} + c + l]" for array in arrays])
    half = lanes // 2
    while half:
        low.text.line("BP_IVDEP")
        with low.text.scope(f"for (i32 l = 0; l < {half}; ++l)"):
            _combine(low, op, own, own, [f"{name}[l + {half}]" for name in sums])
        half //= 2
    _assign(low, [put(i, "o") for i in range(len(sums))], [f"{name}[0]" for name in sums])


def _row_by_row(low: Lowering, op: Op, arrays: Sequence[str], outer: int, length: int, inner: int, put: Put) -> None:
    own = [put(i, f"o * {inner} + n") for i in range(len(arrays))]
    with low.text.scope(f"for (i32 o = 0; o < {outer}; ++o)"):
        with low.text.scope(f"for (i32 n = 0; n < {inner}; ++n)"):
            _assign(low, own, [f"{array}[o * {length * inner} + n]" for array in arrays])
        with low.text.scope(f"for (i32 r = 1; r < {length}; ++r)"):
            low.text.line("BP_IVDEP")
            with low.text.scope(f"for (i32 n = 0; n < {inner}; ++n)"):
                _combine(low, op, own, own, [f"{array}[(o * {length} + r) * {inner} + n]" for array in arrays])


@lowers("tt.scan")
def _scan(low: Lowering, op: Op) -> None:
    outer, length, inner = _walk(op)
    arrays = [low.keep(operand) for operand in op.operands]
    results = [low.array(value.type) for value in op.results]
    is_reverse = op.attributes.get("reverse") == "true"

    def at(place: str) -> str:
        return f"(o * {length} + {f'{length - 1} - ({place})' if is_reverse else place}) * {inner} + n"

    low.barrier()
    if low.items == 1 and inner > 1:
        with low.text.scope(f"for (i32 o = 0; o < {outer}; ++o)"):
            with low.text.scope(f"for (i32 n = 0; n < {inner}; ++n)"):
                _assign(low, [f"{to}[{at('0')}]" for to in results], [f"{array}[{at('0')}]" for array in arrays])
            with low.text.scope(f"for (i32 r = 1; r < {length}; ++r)"):
                low.text.line("BP_IVDEP")
                with low.text.scope(f"for (i32 n = 0; n < {inner}; ++n)"):
                    before = [f"{to}[{at('r - 1')}]" for to in results]
                    _combine(
                        low, op, [f"{to}[{at('r')}]" for to in results], before, [f"{a}[{at('r')}]" for a in arrays]
                    )
    else:
        first, step = ("BP_ITEM", "BP_GROUP") if low.items > 1 else ("0", "1")
        with low.text.scope(f"for (i32 q = {first}; q < {outer * inner}; q += {step})"):
            low.text.line(f"i32 const o = q / {inner};")
            low.text.line(f"i32 const n = q % {inner};")
            sums = [low.text.name("sum") for _ in arrays]
            for kind, name, array in zip(_kinds(op), sums, arrays, strict=True):
                low.text.line(f"{kind} {name} = {array}[{at('0')}];")
            _assign(low, [f"{to}[{at('0')}]" for to in results], sums)
            with low.text.scope(f"for (i32 r = 1; r < {length}; ++r)"):
                _combine(low, op, sums, sums, [f"{array}[{at('r')}]" for array in arrays])
                _assign(low, [f"{to}[{at('r')}]" for to in results], sums)
    low.barrier()
    low.forms.update(zip(op.results, map(Array, results), strict=True))


@lowers("tt.histogram")
def _histogram(low: Lowering, op: Op) -> None:
    source, *masks = (low.keep(operand) for operand in op.operands)
    result, size = op.result, op.operands[0].type.size
    bins = low.array(result.type)
    guard = f"if ({masks[0]}[l]) " if masks else ""
    low.barrier()
    if low.items == 1:
        low.text.line(f"for (i32 b = 0; b < {result.type.size}; ++b) {bins}[b] = 0;")
        count = f"if ((u64){source}[l] < {result.type.size}u) {bins}[{source}[l]] += 1;"
        low.text.line(f"for (i32 l = 0; l < {size}; ++l) {guard}{count}")
    else:
        with low.text.scope(f"for (i32 b = BP_ITEM; b < {result.type.size}; b += BP_GROUP)"):
            low.text.line(f"{register(result.type)} count = 0;")
            low.text.line(f"for (i32 l = 0; l < {size}; ++l) {guard}count += {source}[l] == b;")
            low.text.line(f"{bins}[b] = count;")
    low.keep_as(result, bins)
