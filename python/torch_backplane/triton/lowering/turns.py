"""Loops that have one turn, as those over a row that fits into a block: what they sum up needs no array.

A loop that only computes blocks which are then reduced is written twice, together with the reductions (control.py). For
one turn its blocks are expressions, computed in the loops of the reductions; for another number of turns, arrays.
"""

from __future__ import annotations

from torch_backplane.triton.expressions import HANDLERS
from torch_backplane.triton.lowering.state import Lowering
from torch_backplane.triton.lowering.uses import is_lazy
from torch_backplane.triton.ttir import Op

_OPERATIONS, _REDUCTIONS = 64, 4
"""Of a loop that is written twice, and behind it, at most: what is written twice is compiled twice."""


def following(low: Lowering, loop: Op) -> list[Op]:
    """What is written twice with a loop: the operations behind it up to the last reduction of its blocks.

    Empty if the loop is written once: it does more than compute blocks, or they are needed for something else.
    """
    body = loop.regions[0][0].ops
    if low.items > 1 or loop.block is None or len(body) > _OPERATIONS or not all(map(_is_expression, body[:-1])):
        return []
    used = [result for result in loop.results if result.users]
    positions = frozenset[int]().union(*(low.uses.roots(result) for result in used))
    ops = loop.block.ops
    if not positions or not all(result.type.is_block for result in used) or max(positions) >= len(ops):
        return []
    found = ops[loop.position + 1 : max(positions) + 1]
    reductions = [op for op in found if op.name == "tt.reduce"]
    if any(ops[at].name != "tt.reduce" for at in positions) or len(reductions) > _REDUCTIONS:
        return []
    return found if all(op.name == "tt.reduce" or _is_expression(op) for op in found) else []


def _is_expression(op: Op) -> bool:
    return is_lazy(op) or op.name in HANDLERS or op.name == "arith.constant"
