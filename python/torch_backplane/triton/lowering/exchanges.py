"""Reductions in groups of several items.

An item combines its own elements first. What it has then goes to others by subgroup shuffles as far as a subgroup
reaches, and from there on by local memory: of one result from item to item until a few are left, of several results
all at once, and the item whose element of the result it is combines them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch_backplane.triton import words
from torch_backplane.triton.lowering.deals import Deal, slot
from torch_backplane.triton.lowering.forms import Array, Scalar
from torch_backplane.triton.lowering.nest import Nest
from torch_backplane.triton.lowering.state import Lowering
from torch_backplane.triton.ttir import Op, Type
from torch_backplane.triton.words import register

_FEW = 8
"""Parts of one result that every item combines by itself."""
Combine = Callable[[Lowering, Op, Sequence[str], Sequence[str], Sequence[str]], None]
"""Writes ``targets = combination(first, second)``."""


def reduce(low: Lowering, op: Op, combine: Combine) -> None:
    """Write ``tt.reduce``."""
    operands, axis = op.operands, op.integer("axis")
    deal = low.deals.of(operands[0].type.lengths)
    kinds = [register(operand.type) for operand in operands]
    low.barrier()
    sums = [low.text.name("sum") for _ in operands]
    is_scalar = not op.result.type.is_block
    if is_scalar:  # declared where all that follows sees it
        for kind, name in zip(kinds, sums, strict=True):
            low.text.line(f"{kind} {name} = 0;")
    nest = Nest(low, deal.shape, reduced=axis)
    elements = [nest.element(operand, nest.index) for operand in operands]
    inside = nest.innermost
    outside = inside - (deal.turns[axis] > 1)
    if not is_scalar:
        nest.statements[outside] += [f"{kind} {name} = 0;" for kind, name in zip(kinds, sums, strict=True)]
    with low.text.captured() as lines:
        _gather_own(low, op, combine, nest, sums, elements)
    nest.statements[inside] += lines
    stride, across = deal.stride(axis), deal.across[axis]
    parts = across
    results: list[str] = []
    with low.text.captured() as lines:
        while parts > 1 and 2 * stride * (across // parts) <= low.subgroup:
            mask = stride * (across // parts)
            others = [f"{_shuffled(operand.type, name, mask)}" for operand, name in zip(operands, sums, strict=True)]
            _combine_pair(low, op, combine, kinds, sums, others, mask)
            parts //= 2
        if not is_scalar:
            turns = {at: head for at, head in nest.turns.items() if at != axis}
            results = _hand_over(low, op, deal, turns, sums) if parts > 1 else _put(low, op, nest, deal, sums)
    if is_scalar:
        nest.close(behind=(0, lines))
        _finish_scalar(low, op, combine, kinds, sums, stride, across, parts)
        low.forms.update(zip(op.results, map(Scalar, sums), strict=True))
        return
    nest.close(behind=(outside, lines))
    low.barrier()
    if parts > 1:
        results = _combine_parts(low, op, combine, deal, kinds, results, parts)
    low.forms.update(zip(op.results, map(Array, results), strict=True))


def _assign(low: Lowering, targets: Sequence[str], values: Sequence[str]) -> None:
    for target, value in zip(targets, values, strict=True):
        low.text.line(f"{target} = {value};")


def _gather_own(
    low: Lowering, op: Op, combine: Combine, nest: Nest, sums: Sequence[str], elements: Sequence[str]
) -> None:
    turn = nest.turns.get(op.integer("axis"))
    if turn is None:
        _assign(low, sums, elements)
        return
    with low.text.scope(f"if ({turn} == 0)"):
        _assign(low, sums, elements)
    with low.text.scope("else"):
        combine(low, op, sums, sums, elements)


def _combine_pair(
    low: Lowering,
    op: Op,
    combine: Combine,
    kinds: Sequence[str],
    sums: Sequence[str],
    others: Sequence[str],
    mask: int,
) -> None:
    """With another item's, the lower item's first: so all items have the same, to the last bit."""
    pairs: list[list[str]] = [[], []]
    for kind, own, other in zip(kinds, sums, others, strict=True):
        name = low.text.name("other")
        low.text.line(f"{kind} const {name} = {other};")
        for first, found in enumerate(pairs):
            found.append(low.text.name("t"))
            either = (own, name) if first == 0 else (name, own)
            low.text.line(f"{kind} const {found[-1]} = (BP_ITEM & {mask}) == 0 ? {either[0]} : {either[1]};")
    combine(low, op, sums, *pairs)


def _put(low: Lowering, op: Op, nest: Nest, deal: Deal, sums: Sequence[str]) -> list[str]:
    """What the items of the axis have in common is a result, which the first of them writes."""
    axis, type = op.integer("axis"), op.result.type
    results = [low.array(value.type) for value in op.results]
    index = tuple(place for at, place in enumerate(nest.index) if at != axis)
    place = nest.linear(type.lengths, index)
    theirs = low.deals.of(type.lengths)
    if deal.across[axis] == 1 and theirs.across == deal.across[:axis] + deal.across[axis + 1 :] and place != "0":
        own = low.text.name("l")
        low.text.line(f"i32 const {own} = {place};")
        turns = {at - (at > axis): name for at, name in nest.turns.items() if at != axis}
        low.dealt[own] = (slot(theirs, turns), theirs.key)
        place = own
    guards = []
    if deal.across[axis] > 1:
        guards.append(f"(BP_ITEM & {deal.stride(axis) * (deal.across[axis] - 1)}) == 0")
    if deal.dealers < deal.items:
        guards.append(f"BP_ITEM < {deal.dealers}")
    with low.text.scope(f"if ({' && '.join(guards)})" if guards else ""):
        _assign(low, [f"{array}[{place}]" for array in results], sums)
    return results


def _hand_over(low: Lowering, op: Op, deal: Deal, turns: dict[int, str], sums: Sequence[str]) -> list[str]:
    """Write the parts of several results, those of a turn side by side."""
    count = deal.items
    for at, length in enumerate(deal.turns):
        count *= length if at != op.integer("axis") else 1
    parts = [low.array(operand.type, count) for operand in op.operands]
    place = f"({_turn_of(deal, op.integer('axis'), turns)}) * {deal.items} + BP_ITEM"
    _assign(low, [f"{array}[{place}]" for array in parts], sums)
    return parts


def _turn_of(deal: Deal, axis: int, turns: dict[int, str]) -> str:
    """The number of a turn of all axes but one."""
    found, stride = [], 1
    for at in reversed(range(len(deal.shape))):
        if at != axis and deal.turns[at] > 1:
            found.append(f"{turns[at]} * {stride}")
            stride *= deal.turns[at]
    return " + ".join(found) or "0"


def _combine_parts(
    low: Lowering, op: Op, combine: Combine, deal: Deal, kinds: Sequence[str], parts: Sequence[str], count: int
) -> list[str]:
    """Each item its elements of the result."""
    axis, lengths = op.integer("axis"), op.result.type.lengths
    nest = Nest(low, lengths)
    index = (*nest.index[:axis], "0", *nest.index[axis:])
    others = [at for at in range(len(deal.shape)) if at != axis]
    turns = {at: f"({index[at]} / {deal.across[at]})" for at in others}
    items = [f"{index[at]} % {deal.across[at]} * {deal.stride(at)}" for at in others if deal.across[at] > 1]
    first = f"({_turn_of(deal, axis, turns)}) * {deal.items} + {' + '.join(items) or '0'}"
    first = nest.variable("i32", first, nest.innermost, "l")
    results = [low.array(value.type) for value in op.results]
    sums = [low.text.name("sum") for _ in parts]
    step = deal.stride(axis) * (deal.across[axis] // count)
    with low.text.captured() as lines:
        for kind, name, array in zip(kinds, sums, parts, strict=True):
            low.text.line(f"{kind} {name} = {array}[{first}];")
        with low.text.scope(f"for (i32 r = 1; r < {count}; ++r)"):
            combine(low, op, sums, sums, [f"{array}[{first} + r * {step}]" for array in parts])
        _assign(low, [f"{array}[{nest.linear(lengths, nest.index)}]" for array in results], sums)
    nest.statements[nest.innermost] += lines
    nest.close()
    low.barrier()
    return results


def _finish_scalar(
    low: Lowering,
    op: Op,
    combine: Combine,
    kinds: Sequence[str],
    sums: Sequence[str],
    stride: int,
    across: int,
    parts: int,
) -> None:
    """From item to item until a few parts are left, which every item combines."""
    while parts > 1:
        arrays = [low.array(operand.type, low.items) for operand in op.operands]
        _assign(low, [f"{array}[BP_ITEM]" for array in arrays], sums)
        low.barrier()
        mask = stride * (across // parts)
        if parts > _FEW:
            _combine_pair(low, op, combine, kinds, sums, [f"{array}[BP_ITEM ^ {mask}]" for array in arrays], mask)
            parts //= 2
            continue
        _assign(low, sums, [f"{array}[0]" for array in arrays])
        with low.text.scope(f"for (i32 r = 1; r < {parts}; ++r)"):
            combine(low, op, sums, sums, [f"{array}[r * {mask}]" for array in arrays])
        parts = 1
    low.barrier()


def _shuffled(type: Type, name: str, mask: int) -> str:
    if type.bits == 64:
        bits = words.to_bits(type, name)
        low_half = f"BP_SHUFFLE_XOR((u32)({bits}), {mask})"
        return words.from_bits(type, f"((u64)BP_SHUFFLE_XOR((u32)({bits} >> 32), {mask}) << 32 | {low_half})")
    if type.elem in words.NARROW:
        return f"bp_as_f32(BP_SHUFFLE_XOR(bp_as_u32({name}), {mask}))"
    return words.from_bits(type, f"BP_SHUFFLE_XOR((u32)({words.to_bits(type, name)}), {mask})")
