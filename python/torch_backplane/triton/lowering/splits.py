"""Where masks are true: ends of innermost loops, and loops in two parts.

A mask says most often that an index is less than something, or that a row exists. A store's loop ends where its mask
does. A loop that loads, and computes something where the mask is false too, has a first part in which masks are true:
there the compiler has plain loads of vectors, and what follows them has no conditions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch_backplane.triton.lowering import addresses, moves
from torch_backplane.triton.lowering.forms import Lazy, Scalar
from torch_backplane.triton.ttir import Op, Value

if TYPE_CHECKING:
    from torch_backplane.triton.lowering.nest import Index, Nest

_WIDE = 64
"""Elements, whole vectors, of which a first part has a multiple. A loop of two of them is in one part or the other."""


def bound(nest: Nest, mask: Value, index: Index) -> bool:
    """End the innermost loop where a mask ends that says that an index is less than something; it is true before that.

    Returns whether the mask is true in the whole loop then, so that nothing has to ask it.
    """
    form, last = nest.low.form(mask), nest.index[-1]
    if not isinstance(form, Lazy) or nest.low.uses.is_kept(mask) or last == "0":
        return False
    op = form.op
    if op.name == "arith.andi":
        both = [bound(nest, operand, index) for operand in op.operands]
        if any(both):
            nest.elements[mask, index] = "1" if all(both) else nest.element(op.operands[both.index(False)], index)
        return all(both)
    if op.name in ("tt.broadcast", "tt.expand_dims"):
        done = bound(nest, op.operands[0], moves.source_index(nest, op, index))
    else:
        end = _end(nest, op, index)
        done = end is not None
        if end is not None:
            name = nest.variable("i64", end, nest.outside, "end")
            before = nest.limit or str(nest.shape[-1])
            nest.limit = nest.variable("i32", f"{name} < {before} ? (i32){name} : {before}", nest.outside, "end")
            nest.heads[-1] = f"for (i32 {last} = 0; {last} < {nest.limit}; ++{last})"
    if done:
        nest.elements[mask, index] = "1"
    return done


def _end(nest: Nest, op: Op, index: Index) -> str | None:
    """Before what the walked variable is where a comparison of an index is true: an i64 that is known outside."""
    sign = op.body.split(",")[0].strip() if op.name == "arith.cmpi" else ""
    if sign not in ("slt", "sle", "sgt", "sge") or nest.walked is None:
        return None
    if sign[2] == "e" and op.operands[0].type.bits == 64:  # one more may be too much
        return None
    low, high = (addresses.terms(nest, operand, index) for operand in op.operands)
    if sign[1] == "g":
        low, high = high, low
    last = nest.index[-1]
    walked = [text for _, text in nest.sums.get(last, [(0, f"(i64){nest.walked[0]}")])]
    if [text for level, text in low if level > nest.outside] != walked or any(at > nest.outside for at, _ in high):
        return None
    first = " + ".join(text for level, text in low if level <= nest.outside) or "0"
    return f"{' + '.join(text for _, text in high)} - ({first}){' + 1' if sign[2] == 'e' else ''}"


def assume(nest: Nest, mask: Value, index: Index) -> None:
    """Let the first part of the innermost loop be where the mask of a load is true, or where a part of the mask is."""
    if nest.walked is not None and nest.level(index) == nest.innermost:
        _assume(nest, mask, index)


def _assume(nest: Nest, value: Value, index: Index) -> None:
    form = nest.low.form(value)
    if isinstance(form, Lazy) and not nest.low.uses.is_kept(value):
        op = form.op
        if op.name == "arith.andi":
            for operand in op.operands:
                _assume(nest, operand, index)
            return
        if op.name == "tt.splat" or op.name in moves.ONE_TO_ONE:
            source = () if op.name == "tt.splat" else moves.source_index(nest, op, index)
            _assume(nest, op.operands[0], source)
            return
    name = nest.element(value, index)
    if name in nest.certain or not re.fullmatch(r"[a-zA-Z_]\w*", name):
        return
    if isinstance(form, Scalar) or nest.level(index) <= nest.outside:
        nest.certain[name] = name
    elif isinstance(form, Lazy):
        end = _end(nest, form.op, index)
        if end is not None:
            nest.certain[name] = end


@dataclass(frozen=True)
class Part:
    """Of the innermost loops."""

    guard: str
    """The condition of the part; empty where its loops begin and end as they should."""
    heads: list[str]
    certain: frozenset[str]
    """Names that are true in it."""

    def lines(self, statements: Sequence[str]) -> list[str]:
        """The innermost statements."""
        others = [
            line for line in statements if not any(line.startswith(f"i32 const {name} =") for name in self.certain)
        ]
        return [*(f"i32 const {name} = 1;" for name in sorted(self.certain)), *others]


def parts(nest: Nest) -> list[Part]:
    """The parts of the innermost loops; none unless there are masks to be assumed."""
    if not nest.certain or nest.walked is None:
        return []
    heads = nest.heads[nest.outside :]
    name, length = nest.walked
    end = nest.limit or str(length)
    full, conditions = end, []
    for mask, before in nest.certain.items():
        if before == mask:
            conditions.append(mask)
            continue
        place = nest.variable("i64", before, nest.outside, "end")
        full = nest.variable(
            "i32", f"{place} < {full} ? (i32)({place} < 0 ? 0 : {place}) : {full}", nest.outside, "full"
        )
    certain = frozenset(nest.certain)
    if length <= 2 * _WIDE:
        if full != end:
            conditions.append(f"{full} == {end}")
        return [Part(f"if ({' && '.join(conditions)})", heads, certain), Part("else", heads, frozenset())]
    if full != end:
        full = f"({full} < 0 ? 0 : {full} & -{nest.lanes or _WIDE})"
    full = nest.variable("i32", f"{' && '.join(conditions)} ? {full} : 0" if conditions else full, nest.outside, "full")
    step = f"{name} += {nest.lanes}" if nest.lane else f"++{name}"
    return [
        Part("", [f"for (i32 {name} = {first}; {name} < {last}; {step})", *heads[1:]], truth)
        for first, last, truth in (("0", full, certain), (full, end, frozenset[str]()))
    ]
