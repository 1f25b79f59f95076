"""Loops, conditions, calls and branches.

What a loop carries is a variable, an array, or the sum of a block and a scalar that grows (forms.Sum), for blocks to
which one number is added each turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch_backplane.triton.lowering import addresses, turns, uses
from torch_backplane.triton.lowering.forms import Array, Form, Scalar, Sum
from torch_backplane.triton.lowering.nest import Nest
from torch_backplane.triton.lowering.reads import reads
from torch_backplane.triton.lowering.state import Lowering, lowers
from torch_backplane.triton.ttir import Block, Function, Op, Value
from torch_backplane.triton.words import Unsupported, register


@dataclass
class Holder:
    """What holds a value from one turn to the next, or behind the branches of a condition."""

    form: Form
    step: Value | None = None
    """Of a sum: what is added each turn."""


def _variable(low: Lowering, value: Value, first: str) -> Scalar:
    name = low.text.name(value.hint or "c")
    low.text.line(f"{register(value.type)} {name} = {first};")
    return Scalar(name)


def _holders(low: Lowering, results: Sequence[Value]) -> list[Holder]:
    return [
        Holder(
            Array(low.array(value.type)) if value.type.is_block else _variable(low, value, f"({register(value.type)})0")
        )
        for value in results
    ]


def _fill(low: Lowering, holders: Sequence[Holder], values: Sequence[Value]) -> None:
    for holder, value in zip(holders, values, strict=True):
        if isinstance(holder.form, Scalar):
            low.text.line(f"{holder.form.text} = {low.scalar(value)};")
        elif isinstance(holder.form, Array):
            low.write(holder.form.name, value)


def _set(low: Lowering, values: Sequence[Value], holders: Sequence[Holder]) -> None:
    low.forms.update(zip(values, (holder.form for holder in holders), strict=True))


# ---- loops ----


def _step(argument: Value, following: Value) -> Value | None:
    """What a loop adds to a carried block each turn, if that is one number for all elements."""
    op = following.op
    if op is None or op.name not in ("tt.addptr", "arith.addi") or op.operands[0] is not argument:
        return None
    source = op.operands[1]
    while source.op is not None and source.op.name in ("tt.broadcast", "tt.expand_dims"):
        source = source.op.operands[0]
    is_splat = source.op is not None and (
        source.op.name == "tt.splat" or (source.op.name == "arith.constant" and "[" not in source.op.body)
    )
    return op.operands[1] if is_splat and argument.type.is_block else None


def _carry(
    low: Lowering, arguments: Sequence[Value], firsts: Sequence[Value], following: Sequence[Value | None]
) -> list[Holder]:
    holders = []
    for argument, first, next_ in zip(arguments, firsts, following, strict=True):
        step = None if next_ is None else _step(argument, next_)
        if not argument.type.is_block:
            holders.append(Holder(_variable(low, argument, low.scalar(first))))
        elif step is not None:
            low.settle(first)
            name = low.text.name("sum")
            low.text.line(f"{'i64' if argument.type.is_pointer else register(argument.type)} {name} = 0;")
            holders.append(Holder(Sum(first, name), step))
        else:
            array = low.array(argument.type)
            low.write(array, first)
            holders.append(Holder(Array(array)))
    _set(low, arguments, holders)
    return holders


def _advance(low: Lowering, holders: Sequence[Holder], values: Sequence[Value]) -> None:
    """The next turn's values. An array is written in place unless another value, or element, needs what it was."""
    assignments, copies = [], []
    blocks: list[tuple[str, Value]] = []
    for holder, value in zip(holders, values, strict=True):
        if isinstance(holder.form, Array):
            blocks.append((holder.form.name, value))
        elif isinstance(holder.form, Sum) and holder.step is not None:
            step = addresses.uniform(Nest(low, ()), holder.step)
            assignments.append(f"{holder.form.added} += {step};")
        elif isinstance(holder.form, Scalar):
            name = low.text.name("next")
            low.text.line(f"{register(value.type)} const {name} = {low.scalar(value)};")
            assignments.append(f"{holder.form.text} = {name};")
    read = [reads(low, value).arrays for _, value in blocks]
    for at, (array, value) in enumerate(blocks):
        if low.forms[value] == Array(array):
            continue
        if read[at].get(array) or any(array in others for others in read[at + 1 :]):
            other = low.array(value.type)
            low.write(other, value)
            copies.append((array, other, value.type.lengths))
        else:
            low.write(array, value)
    low.barrier()
    for array, other, shape in copies:
        nest = Nest(low, shape)
        place = nest.linear(shape, nest.index)
        nest.statements[nest.innermost].append(f"{array}[{place}] = {other}[{place}];")
        nest.close()
    low.barrier()
    for assignment in assignments:
        low.text.line(assignment)


@lowers("scf.for")
def _for(low: Lowering, op: Op) -> None:
    following = turns.following(low, op)
    if following:
        _for_one_turn_or_more(low, op, following)
    else:
        _loop(low, op)


def _for_one_turn_or_more(low: Lowering, op: Op, following: Sequence[Op]) -> None:
    """A loop and what reduces its blocks (turns.py)."""
    low.written.update(following)
    rest = []
    for one in following:
        if uses.is_lazy(one) or (one.name != "tt.reduce" and all(operand in low.forms for operand in one.operands)):
            low.write_operation(one)
        else:
            rest.append(one)
    results = [value for one in rest for value in one.results if value.users]
    holders = _holders(low, results)
    start, end, step = (low.scalar(operand) for operand in op.operands[:3])
    unsigned = f"(u{op.operands[0].type.bits})"
    compared = unsigned if op.attributes["unsigned"] == "true" else ""
    is_one = (
        f"{compared}{start} < {compared}{end} && {unsigned}({unsigned}{end} - {unsigned}{start}) <= {unsigned}{step}"
    )
    for head, write in ((f"if ({is_one})", _turn), ("else", _loop)):
        with low.region(head):
            write(low, op)
            for one in rest:
                low.write_operation(one)
            _fill(low, holders, results)
    _set(low, results, holders)


def _turn(low: Lowering, op: Op) -> None:
    """The one turn of a loop, whose blocks stay expressions."""
    block = op.regions[0][0]
    low.forms.update(
        zip(block.arguments, [low.forms[value] for value in (op.operands[0], *op.operands[3:])], strict=True)
    )
    low.block(
        block,
        lambda last: low.forms.update(
            (one, low.forms[value]) for one, value in zip(op.results, last.operands, strict=True)
        ),
    )


def _loop(low: Lowering, op: Op) -> None:
    block = op.regions[0][0]
    variable, *arguments = block.arguments
    low.settle_region(op)
    start, end, step = (low.scalar(operand) for operand in op.operands[:3])
    firsts = op.operands[3:]
    holders = _carry(low, arguments, firsts, block.ops[-1].operands)
    kind, name = register(variable.type), low.text.name(variable.hint or "k")
    compared = f"(u{variable.type.bits})" if op.attributes["unsigned"] == "true" else ""
    with low.region(f"for ({kind} {name} = {start}; {compared}{name} < {compared}{end}; {name} += {step})"):
        low.forms[variable] = Scalar(name)
        low.carried.append({i: one for i, one in enumerate(arguments) if isinstance(holders[i].form, Array)})
        low.barrier()
        low.block(block, lambda last: _advance(low, holders, last.operands))
        low.carried.pop()
    _set(low, op.results, holders)


@lowers("scf.while")
def _while(low: Lowering, op: Op) -> None:
    (before, *_), (after, *_) = op.regions
    low.settle_region(op)
    holders = _carry(low, before.arguments, op.operands, [None] * len(before.arguments))
    results = _holders(low, op.results)
    low.carried.append({})
    with low.region("for (;;)"):
        low.barrier()

        def decide(last: Op) -> None:
            _fill(low, results, last.operands[1:])
            low.text.line(f"if (!({low.scalar(last.operands[0])})) break;")

        low.block(before, decide)
        _set(low, after.arguments, results)
        low.block(after, lambda last: _advance(low, holders, last.operands))
    low.carried.pop()
    _set(low, op.results, results)


# ---- conditions, calls, branches ----


@lowers("scf.if")
def _if(low: Lowering, op: Op) -> None:
    low.settle_region(op)
    condition = low.scalar(op.operands[0])
    holders = _holders(low, op.results)
    low.carried.append({})
    for head, region in zip((f"if ({condition})", "else"), op.regions, strict=False):
        with low.region(head):
            low.block(region[0], lambda last: _fill(low, holders, last.operands))
    low.carried.pop()
    _set(low, op.results, holders)


@lowers("tt.call")
def _call(low: Lowering, op: Op) -> None:
    """The function's body, in the place of the call."""
    function = low.module.called(op)
    if function.name in low.calls:
        raise Unsupported(f"{function.name} calls itself; kernels have no recursion: write a loop")
    holders = _holders(low, op.results)
    for operand in op.operands:
        low.settle(operand)
    low.carried.append({})
    low.calls.append(function.name)
    with low.region():
        low.forms.update(
            (one, low.forms[operand]) for one, operand in zip(function.arguments, op.operands, strict=True)
        )
        branch(low, function, function.blocks[0], holders)
    low.calls.pop()
    low.carried.pop()
    _set(low, op.results, holders)


def branch(low: Lowering, function: Function, block: Block, holders: Sequence[Holder]) -> None:
    """A block of a function, and what follows it, into the holders of the function's results.

    Branches join nowhere: what follows a join is written in both.
    """

    def follow(target: tuple[str, list[Value]]) -> None:
        label, values = target
        following = next(one for one in function.blocks if one.label == label)
        for value in values:
            low.settle(value)
        low.forms.update(list(zip(following.arguments, [low.forms[value] for value in values], strict=True)))
        branch(low, function, following, holders)

    def end(last: Op) -> None:
        if last.name == "cf.cond_br":
            for head, target in zip((f"if ({low.scalar(last.operands[0])})", "else"), last.targets, strict=True):
                with low.region(head):
                    follow(target)
        elif last.name == "cf.br":
            follow(last.targets[0])
        else:
            _fill(low, holders, last.operands)

    low.block(block, end)
