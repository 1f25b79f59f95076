"""Operations whose elements are elements of their operands at another index."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch_backplane.triton.lowering.uses import long
from torch_backplane.triton.ttir import Op, Value
from torch_backplane.triton.words import register

if TYPE_CHECKING:
    from torch_backplane.triton.lowering.nest import Index, Nest

ONE_TO_ONE = ("tt.expand_dims", "tt.broadcast", "tt.trans")
"""Those for which :func:`source_index` needs no statement."""


def source_index(nest: Nest, op: Op, index: Index) -> Index:
    """The operand's index of the element at an index of the result."""
    before = op.operands[0].type.lengths
    if op.name == "tt.expand_dims":
        axis = op.integer("axis")
        return index[:axis] + index[axis + 1 :]
    if op.name == "tt.broadcast":
        return tuple("0" if length == 1 else place for length, place in zip(before, index, strict=True))
    if op.name == "tt.trans":
        source = [""] * len(index)
        for axis, place in zip(op.integers("order"), index, strict=True):
            source[axis] = place
        return tuple(source)
    after = op.result.type.lengths  # tt.reshape
    if long(before) == long(after):
        rest = [place for length, place in zip(after, index, strict=True) if length > 1]
        return tuple("0" if length == 1 else rest.pop(0) for length in before)
    linear = nest.linear(after, index)
    if linear not in nest.levels:
        linear = nest.variable("i32", linear, nest.level(index), "l")
    return nest.unravel(linear, before)


def _moved(nest: Nest, op: Op, value: Value, index: Index) -> str:
    return nest.element(op.operands[0], source_index(nest, op, index))


def _join(nest: Nest, op: Op, value: Value, index: Index) -> str:
    first, second = (nest.element(operand, index[:-1]) for operand in op.operands)
    return nest.variable(register(value.type), f"{index[-1]} ? {second} : {first}", nest.level(index))


def _split(nest: Nest, op: Op, value: Value, index: Index) -> str:
    return nest.element(op.operands[0], (*index, "0" if value is op.result else "1"))


def _concatenate(nest: Nest, op: Op, value: Value, index: Index) -> str:
    first, second = (nest.low.keep(operand) for operand in op.operands)
    place, length = index[0], op.operands[0].type.lengths[0]
    text = f"{place} < {length} ? {first}[{place}] : {second}[{place} - {length}]"
    return nest.variable(register(value.type), text, nest.level(index))


def _gather(nest: Nest, op: Op, value: Value, index: Index) -> str:
    source, places = op.operands
    array, axis = nest.low.keep(source), op.integer("axis")
    place = nest.variable("i32", f"(i32){nest.element(places, index)}", nest.level(index))
    return nest.read(array, source.type, (*index[:axis], place, *index[axis + 1 :]))


ELEMENTS: dict[str, Callable[[Nest, Op, Value, Index], str]] = {
    **dict.fromkeys((*ONE_TO_ONE, "tt.reshape"), _moved),
    "tt.join": _join,
    "tt.split": _split,
    "tt.cat": _concatenate,
    "tt.gather": _gather,
}
"""How each writes an element of its result."""
