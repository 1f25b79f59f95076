"""Which item of a group has which elements of a block, in groups of several items.

Along each axis the low bits of an element's index are the item's, the high bits a turn's: neighbours read neighbours,
and an item's elements have numbers that a compiler knows when it unrolls the turns. A block of a shape is dealt in one
way in the whole kernel, so that what an item has written at an element's own place it reads there itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch_backplane.triton.ttir import Block, Module

if TYPE_CHECKING:
    from torch_backplane.triton.lowering.nest import Index, Nest

Shape = tuple[int, ...]
_UNROLLED = {True: 64, False: 32}
"""Turns of a nest that are unrolled, at most, with and without subgroups: a GPU needs numbers for its registers, and a
compiler that runs items one after another makes faster code of an array than of many variables."""


@dataclass(frozen=True)
class Deal:
    """Of a shape. Lengths and items are powers of two."""

    shape: Shape
    across: Shape
    """Items along each axis."""
    items: int

    @property
    def turns(self) -> Shape:
        """Elements of an item along each axis."""
        return tuple(length // across for length, across in zip(self.shape, self.across, strict=True))

    @property
    def dealers(self) -> int:
        """Items that have elements."""
        return math.prod(self.across)

    @property
    def key(self) -> tuple[Shape, Shape] | None:
        """Of what is dealt alike. None: element l of the block in order is item ``l % items``'s, whatever the shape."""
        return None if self == in_order(self.shape, self.items) else (self.shape, self.across)

    def stride(self, axis: int) -> int:
        """Between items that are neighbours along an axis."""
        return math.prod(self.across[axis + 1 :])

    def item(self, axis: int) -> str:
        """The item's place along an axis."""
        shifted = f"BP_ITEM >> {self.stride(axis).bit_length() - 1}" if self.stride(axis) > 1 else "BP_ITEM"
        return (
            shifted if self.stride(axis) * self.across[axis] == self.items else f"({shifted}) & {self.across[axis] - 1}"
        )


def in_order(shape: Shape, items: int) -> Deal:
    """Neighbours in the block's order are neighbours."""
    across, rest = [], items
    for length in reversed(shape):
        across.append(min(length, rest))
        rest //= across[-1]
    return Deal(shape, tuple(reversed(across)), items)


def in_tiles(shape: Shape, items: int) -> Deal:
    """An item's elements of a product make a square: it needs few rows and columns of the factors."""
    m, n = shape[-2:]
    each = max(1, m * n // items)
    wide = min(n, 1 << (each.bit_length() // 2))
    high = min(m, each // wide) or 1
    wide = min(n, max(1, each // high))
    lead = in_order(shape[:-2], max(1, items // (m * n)))
    return Deal(shape, (*lead.across, m // high, n // wide), items)


class Deals:
    """Of the shapes of a kernel: those of products in tiles, all others in order."""

    def __init__(self, module: Module, items: int) -> None:
        self.items = items
        self._tiles: set[Shape] = set()
        for function in module.functions.values():
            self._find_products(function.blocks)

    def _find_products(self, blocks: list[Block]) -> None:
        for block in blocks:
            for op in block.ops:
                if op.name in ("tt.dot", "tt.dot_scaled"):
                    self._tiles.add(op.result.type.lengths)
                self._find_products(list(op.body_blocks))

    def of(self, shape: Shape) -> Deal:
        """How blocks of a shape are dealt."""
        return in_tiles(shape, self.items) if shape in self._tiles else in_order(shape, self.items)


def open_loops(nest: Nest, reduced: int | None) -> Index:
    """The loops of an item over its elements of the nest's shape: an axis' turns each, those of ``reduced`` innermost.

    With ``reduced`` items beyond the last element take part, with elements that others have as well.
    """
    deal, low = nest.low.deals.of(nest.shape), nest.low
    if reduced is None and deal.dealers < deal.items:
        nest.open(f"if (BP_ITEM < {deal.dealers})", "")
    outside = nest.innermost
    axes = [axis for axis, turns in enumerate(deal.turns) if turns > 1 and axis != reduced]
    axes += [reduced] if reduced is not None and deal.turns[reduced] > 1 else []
    turns = nest.turns
    unroll = "BP_UNROLL " if math.prod(deal.turns) <= _UNROLLED[low.subgroup > 0] else ""
    for axis in axes:
        turn = turns[axis] = low.text.name("e")
        nest.open(f"{unroll}for (i32 {turn} = 0; {turn} < {deal.turns[axis]}; ++{turn})", turn)
    index = tuple(_place(nest, deal, axis, turns.get(axis), outside) for axis in range(len(nest.shape)))
    if reduced is None or deal.dealers == deal.items:
        place = nest.linear(nest.shape, index)
        if place == "0" and index:  # of a single element, which is read where its one item is
            index = (nest.variable("i32", place, nest.innermost, "l"), *index[1:])
            place = index[0]
        if place not in nest.levels or place in turns.values():
            place = nest.variable("i32", place, nest.innermost, "l")
        nest.own[nest.shape, index] = place
        low.dealt[place] = (slot(deal, turns), deal.key)
    else:
        nest.is_repeated = True
    return index


def _place(nest: Nest, deal: Deal, axis: int, turn: str | None, outside: int) -> str:
    across = deal.across[axis]
    if across == 1:
        return turn or "0"
    key = ("item", axis)
    nest.elements[key] = item = nest.variable("i32", deal.item(axis), outside, "t")
    if turn is None:
        return item
    level = nest.levels[turn]
    place = nest.variable("i32", f"{turn} * {across} + {item}", level, "i")
    nest.sums[place] = [(level, f"(i64){turn} * {across}"), (outside, f"(i64){item}")]
    return place


def slot(deal: Deal, turns: dict[int, str]) -> str:
    """The number of an element among its item's, by the turns of the axes that have several."""
    parts, stride = [], 1
    for axis in reversed(range(len(deal.shape))):
        if axis in turns:
            parts.append(turns[axis] if stride == 1 else f"{turns[axis]} * {stride}")
        stride *= deal.turns[axis]
    return " + ".join(reversed(parts)) or "0"
