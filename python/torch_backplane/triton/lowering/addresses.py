"""Addresses of blocks of pointers, as sums of what each loop contributes.

Triton writes offsets as 32-bit sums, in which a C compiler sees no stride. Here an offset is flattened to its terms, in
64 bits, each with the loop in which it is known: those of the outer loops make one pointer a loop, and the innermost
index has unit stride.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch_backplane.triton import words
from torch_backplane.triton.lowering import moves
from torch_backplane.triton.lowering.forms import Lazy, Scalar, Sum
from torch_backplane.triton.ttir import Op, Value
from torch_backplane.triton.words import register

if TYPE_CHECKING:
    from torch_backplane.triton.lowering.nest import Index, Nest

Term = tuple[int, str]
"""A loop's number, and an i64 expression that is known in it."""


def uniform(nest: Nest, value: Value) -> str | None:
    """The scalar that all elements of a block are; None if they are not known to be equal."""
    form = nest.low.form(value)
    if isinstance(form, Scalar):
        return form.text
    if not isinstance(form, Lazy):
        return None
    op = form.op
    if op.name in ("tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape"):
        return uniform(nest, op.operands[0])
    if op.name == "arith.constant":
        return nest.low.splat_constant(op)
    if op.name in ("arith.extsi", "arith.muli", "arith.addi"):
        operands = [uniform(nest, operand) for operand in op.operands]
        if all(operand is not None for operand in operands):
            return nest.low.expression(op, [operand for operand in operands if operand is not None])
    return None


def terms(nest: Nest, value: Value, index: Index) -> list[Term]:
    """What an element of an offset is the sum of."""
    form = nest.low.form(value)
    if isinstance(form, Sum):
        return [*terms(nest, form.first, index), (0, f"(i64){form.added}")]
    if isinstance(form, Lazy) and not nest.low.uses.is_kept(value):
        found = _terms_of(nest, form.op, index)
        if found is not None:
            return found
    return [(nest.level(index), f"(i64){nest.element(value, index)}")]


def _terms_of(nest: Nest, op: Op, index: Index) -> list[Term] | None:
    if op.name == "tt.make_range":
        start = op.integer("start")
        place = nest.sums.get(index[0]) or [(nest.level(index), f"(i64){index[0]}")]
        return [*place, *([(0, str(start))] if start else [])]
    if op.name in moves.ONE_TO_ONE:
        return terms(nest, op.operands[0], moves.source_index(nest, op, index))
    if op.name == "tt.splat":
        return terms(nest, op.operands[0], ())
    if op.name in ("arith.addi", "arith.subi"):
        first, second = (terms(nest, operand, index) for operand in op.operands)
        return first + (second if op.name == "arith.addi" else [(level, f"-({text})") for level, text in second])
    if op.name == "arith.muli":
        for one, other in (op.operands, op.operands[::-1]):
            factor = uniform(nest, other)
            if factor is not None:
                return [(level, f"({text}) * (i64){factor}") for level, text in terms(nest, one, index)]
    if op.name == "arith.extsi" and op.operands[0].type.elem != "i1":
        return terms(nest, op.operands[0], index)
    return None


def _address(nest: Nest, value: Value, index: Index) -> tuple[str, int, list[Term]]:
    """An element of a block of pointers: a pointer, the loop in which it is known, and what is to be added."""
    form = nest.low.form(value)
    if isinstance(form, Scalar):
        return form.text, 0, []
    if isinstance(form, Sum):
        base, level, rest = _address(nest, form.first, index)
        return base, level, [*rest, (0, f"(i64){form.added}")]
    if isinstance(form, Lazy):
        op = form.op
        if op.name == "tt.splat":
            return _address(nest, op.operands[0], ())
        if op.name in moves.ONE_TO_ONE:
            return _address(nest, op.operands[0], moves.source_index(nest, op, index))
        if op.name == "tt.addptr":
            base, level, rest = _address(nest, op.operands[0], index)
            return base, level, rest + terms(nest, op.operands[1], index)
    return nest.element(value, index), nest.level(index), []


def place(nest: Nest, pointers: Value, index: Index) -> str:
    """The memory that an element of a block of pointers points to: an lvalue."""
    key = ("place", pointers, index)
    if key in nest.elements:
        return nest.elements[key]
    base, level, rest = _address(nest, pointers, index)
    deepest, kind = nest.level(index), register(pointers.type)
    for loop in range(level, deepest):
        here = [text for at, text in rest if at == loop or (loop == level and at < level)]
        if here:
            base = nest.variable(kind, f"{base} + ({' + '.join(here)})", loop, "p")
    inner = [text for at, text in rest if at >= deepest or deepest <= level]
    nest.elements[key] = f"{base}[{' + '.join(inner) or '0'}]"
    return nest.elements[key]


def load(nest: Nest, op: Op, index: Index) -> str:
    """An element of ``tt.load``: pointers, a mask, what is read where that is false."""
    type = op.result.type
    value = words.load(type, place(nest, op.operands[0], index))
    if len(op.operands) > 1:
        mask = nest.element(op.operands[1], index)
        other = nest.element(op.operands[2], index) if len(op.operands) > 2 else f"({register(type)})0"
        if mask != "1":
            nest.assume(op.operands[1], index)
            value = f"{mask} ? {value} : {other}"
    return nest.variable(register(type), value, nest.level(index), op.result.hint)
