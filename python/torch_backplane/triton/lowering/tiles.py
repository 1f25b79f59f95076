"""Products of blocks in groups of several items: an item has a tile of the product, whose sums are in registers."""

from __future__ import annotations

import math

from torch_backplane.triton import words
from torch_backplane.triton.lowering.deals import slot
from torch_backplane.triton.lowering.state import Lowering
from torch_backplane.triton.ttir import Type
from torch_backplane.triton.words import register

_SIDE = 8
"""Of the part of a tile whose sums are in registers at once, at most."""


def multiply(low: Lowering, type: Type, sums: str, a: str, b: str, k: int) -> None:
    """Add the product of two arrays, k deep, to an array of a block's type: each item to its own elements."""
    deal, lengths, text, kind = low.deals.of(type.lengths), type.lengths, low.text, register(type)
    last = len(lengths) - 1
    m, n = lengths[-2:]
    rows, columns = deal.turns[-2:]
    high, wide = min(rows, _SIDE), min(columns, _SIDE)
    turns = {axis: text.name("e") for axis in range(last - 1) if deal.turns[axis] > 1}
    heads = [f"if (BP_ITEM < {deal.dealers})"] if deal.dealers < deal.items else []
    heads += [f"for (i32 {name} = 0; {name} < {deal.turns[axis]}; ++{name})" for axis, name in turns.items()]
    heads.append(f"BP_UNROLL for (i32 r = 0; r < {rows}; r += {high})")
    heads.append(f"BP_UNROLL for (i32 q = 0; q < {columns}; q += {wide})")
    low.barrier()
    for head in heads:
        text.line(f"{head} {{")
        text.depth += 1
    lead = []
    for axis, size in enumerate(lengths[:-2]):
        place = f"{turns.get(axis, '0')} * {deal.across[axis]} + ({deal.item(axis)})"
        lead.append(f"({place}) * {math.prod(lengths[axis + 1 : -2])}" if size > 1 else "0")
    text.line(f"i32 const g = {' + '.join(lead) or '0'};")
    text.line(f"i32 const row = r * {deal.across[-2]} + ({deal.item(last - 1)});")
    text.line(f"i32 const column = q * {deal.across[-1]} + ({deal.item(last)});")
    text.line(f"{kind} sums[{high}][{wide}];")
    each = f"BP_UNROLL for (i32 i = 0; i < {high}; ++i) BP_UNROLL for (i32 j = 0; j < {wide}; ++j)"
    own = text.name("l")
    low.dealt[own] = (slot(deal, {**turns, last - 1: "(r + i)", last: "(q + j)"}), deal.key)
    place = f"i32 const {own} = (g * {m} + row + i * {deal.across[-2]}) * {n} + column + j * {deal.across[-1]};"
    with text.scope(each):
        text.line(place)
        text.line(f"sums[i][j] = {sums}[{own}];")
    with text.scope(f"for (i32 k = 0; k < {k}; ++k)"):
        text.line(f"{kind} factors[{wide}];")
        text.line(
            f"BP_UNROLL for (i32 j = 0; j < {wide}; ++j) "
            f"factors[j] = ({kind}){b}[(g * {k} + k) * {n} + column + j * {deal.across[-1]}];"
        )
        with text.scope(f"BP_UNROLL for (i32 i = 0; i < {high}; ++i)"):
            text.line(f"{kind} const x = ({kind}){a}[(g * {m} + row + i * {deal.across[-2]}) * {k} + k];")
            text.line(f"BP_UNROLL for (i32 j = 0; j < {wide}; ++j) sums[i][j] += x * factors[j];")
    with text.scope(each):
        text.line(place)
        text.line(f"{sums}[{own}] = {words.rounded(type, 'sums[i][j]')};")
    for _ in heads:
        text.depth -= 1
        text.line("}")
    low.barrier()
