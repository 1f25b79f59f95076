"""Loops over the elements of a block, and the expressions that are computed in them.

Each value is computed at the outermost loop on whose variables its index depends. With one item a group there is a loop
an axis, the innermost of unit stride, for the compiler to make vectors of. With several, an item has loops over its own
elements (:mod:`deals`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

from torch_backplane.triton import words
from torch_backplane.triton.lowering import addresses, deals, moves, splits
from torch_backplane.triton.lowering.forms import Array, Lazy, Scalar, Sum
from torch_backplane.triton.ttir import Op, Type, Value
from torch_backplane.triton.words import register

if TYPE_CHECKING:
    from torch_backplane.triton.lowering.state import Lowering

Index = tuple[str, ...]
"""The place of an element along each axis: a variable, or a number."""


class Nest:
    """Loops over a shape. Statements are collected by level, and written by :meth:`close`."""

    def __init__(
        self,
        low: Lowering,
        shape: tuple[int, ...],
        *,
        parallel: bool = True,
        reduced: int | None = None,
        lanes: int = 0,
    ) -> None:
        """Open the loops.

        Args:
            low: where the text goes.
            shape: of the blocks whose elements are computed.
            parallel: the innermost iterations are independent.
            reduced: with several items, the axis whose loop is the innermost; see :func:`deals.open_loops`.
            lanes: the last axis is walked by so many elements at once, in two loops; ``lane`` is the inner variable.
        """
        self.low, self.shape = low, shape
        self.parallel = parallel and low.items == 1
        """Whether its innermost iterations are independent, as the compiler is told."""
        self.heads: list[str] = []
        self.statements: list[list[str]] = [[]]
        self.levels: dict[str, int] = {}
        self.elements: dict[object, str] = {}
        self.limit: str | None = None
        """Where the innermost loop ends early, because a mask is false from there on."""
        self.after: list[Callable[[], None]] = []
        self.lanes, self.lane = lanes, ""
        self.walked: tuple[str, int] | None = None
        """What the innermost loop of an axis, perhaps that of the first of its lanes, walks, and the length."""
        self.certain: dict[str, str] = {}
        """Masks that are true in a first part of it, and their ends there, or themselves (splits.py)."""
        self.own: dict[tuple[tuple[int, ...], Index], str] = {}
        """With several items: the places, in an array of a shape, that are the item's own."""
        self.turns: dict[int, str] = {}
        """And the loop variables of the axes along which an item has several elements."""
        self.is_repeated = False
        """Whether several items compute the same elements."""
        self.sums: dict[str, list[tuple[int, str]]] = {}
        """Of variables that are sums: what each loop adds, as terms of addresses."""
        if lanes:
            outer = self._loop_an_axis(shape[:-1])
            first, self.lane = (low.text.name(name) for name in "cl")
            self.open(f"for (i32 {first} = 0; {first} < {shape[-1]}; {first} += {lanes})", first)
            self.walked = (first, shape[-1])
            self.open(f"for (i32 {self.lane} = 0; {self.lane} < {lanes}; ++{self.lane})", self.lane)
            last = self.variable("i32", f"{first} + {self.lane}", self.innermost, "i")
            self.sums[last] = [(self.innermost - 1, f"(i64){first}"), (self.innermost, f"(i64){self.lane}")]
            self.index: Index = (*outer, last)
        else:
            self.index = self._loop_an_axis(shape) if low.items == 1 else deals.open_loops(self, reduced)

    def _loop_an_axis(self, shape: tuple[int, ...]) -> Index:
        index = []
        for length in shape:
            name = "0" if length == 1 else self.low.text.name("i")
            if length > 1:
                self.open(f"for (i32 {name} = 0; {name} < {length}; ++{name})", name)
                self.walked = (name, length)
            index.append(name)
        return tuple(index)

    def open(self, head: str, variable: str) -> None:
        """Open a loop, or a condition."""
        self.heads.append(head)
        self.statements.append([])
        self.levels[variable] = len(self.heads)

    @property
    def innermost(self) -> int:
        """The number of the innermost loop."""
        return len(self.heads)

    @property
    def outside(self) -> int:
        """The number of the loop around that of an axis which is innermost."""
        return self.innermost - (2 if self.lane else 1)

    def level(self, index: Index) -> int:
        """The loop in which an index is known, 0 outside all."""
        return max((self.levels.get(place, 0) for place in index), default=0)

    def variable(self, kind: str, text: str, level: int, hint: str = "x") -> str:
        """A constant of a C type."""
        name = self.low.text.name(hint or "x")
        self.statements[level].append(f"{kind} const {name} = {text};")
        self.levels[name] = level
        return name

    def linear(self, shape: tuple[int, ...], index: Index) -> str:
        """The place of an element in an array of a shape."""
        if (shape, index) in self.own:
            return self.own[shape, index]
        parts, stride = [], 1
        for length, place in zip(reversed(shape), reversed(index), strict=True):
            if length > 1 and place != "0":
                parts.append(place if stride == 1 else f"{place} * {stride}")
            stride *= length
        return " + ".join(reversed(parts)) or "0"

    def unravel(self, linear: str, shape: tuple[int, ...]) -> Index:
        """The index of the element at a place of an array of a shape."""
        index, rest, size = [], Type("i32", shape).size, Type("i32", shape).size
        level = self.levels[linear]
        for length in shape:
            rest //= length
            if length == 1:
                index.append("0")
            elif length == size:
                index.append(linear)
            else:
                text = f"{linear} / {rest}" if rest > 1 else linear
                index.append(self.variable("i32", text if rest * length == size else f"{text} % {length}", level, "i"))
        if linear in self.own.values():
            self.own[shape, tuple(index)] = linear
        return tuple(index)

    def element(self, value: Value, index: Index) -> str:
        """An element of a value: a name, or a literal."""
        form = self.low.form(value)
        if isinstance(form, Scalar):
            return form.text
        key = (value, index)
        if key not in self.elements:
            self.elements[key] = self._element(value, form, index)
        return self.elements[key]

    def _element(self, value: Value, form: Array | Sum | Lazy, index: Index) -> str:
        if isinstance(form, Array):
            return self.read(form.name, value.type, index, value.hint)
        if isinstance(form, Sum):
            text = f"{self.element(form.first, index)} + {form.added}"
            return self.variable(register(value.type), text, self.level(index), value.hint)
        if not self.low.uses.is_kept(value):
            return self.compute(form, index)
        if value.type.shape != self.shape or index != self.index or self.limit is not None or self.is_repeated:
            self.low.keep(value)
            return self.element(value, index)
        name = self.low.array(value.type)  # written on the way
        text = self.compute(form, index)
        kept = words.keep(value.type, text)
        self.statements[self.innermost].append(f"{name}[{self.linear(self.shape, index)}] = {kept};")
        self.after.append(lambda: self.low.keep_as(value, name))
        return text

    def read(self, array: str, type: Type, index: Index, hint: str = "") -> str:
        """An element of an array."""
        place = f"{array}[{self.linear(type.lengths, index)}]"
        return self.variable(register(type), words.take(type, place), self.level(index), hint)

    def compute(self, form: Lazy, index: Index) -> str:
        """An element of a lazy operation's result."""
        op, value = form.op, form.value
        level, kind = self.level(index), register(value.type)
        if op.name == "tt.make_range":
            start = op.integer("start")
            return index[0] if start == 0 else self.variable("i32", f"{index[0]} + {start}", level)
        if op.name == "arith.constant":
            return self.low.splat_constant(op)
        if op.name == "tt.splat":
            return self.element(op.operands[0], ())
        if op.name in moves.ELEMENTS:
            return moves.ELEMENTS[op.name](self, op, value, index)
        if op.name == "tt.load":
            return addresses.load(self, op, index)
        if op.name == "arith.divf" and kind == "f32" and self.low.is_uniform(op.operands[1]):
            return self._quotient(op, value, index)
        operands = [self.element(operand, index if operand.type.is_block else ()) for operand in op.operands]
        return self.variable(kind, self.low.expression(op, operands), level, value.hint)

    def _quotient(self, op: Op, value: Value, index: Index) -> str:
        """By a number that all elements share: a product with its inverse, to 2 ulp, as ``/`` is on Triton's devices.

        The scale keeps the inverse of a very large or small number within the range.
        """
        dividend, divisor = op.operands
        by = self.element(divisor, index if divisor.type.is_block else ())
        key = ("inverse", by)
        if key not in self.elements:
            small, large = (f"bp_fabs({by}) {bound}" for bound in ("< 7.88860905e-31f", "> 1.26765060e30f"))
            scale = f"{small} ? 1.84467441e19f : {large} ? 5.42101086e-20f : 1.0f"
            level = self.levels.get(by, 0)
            factor = self.variable("f32", scale, level, "scale")
            self.elements[key] = self.variable("f32", f"1.0f / ({by} * {factor})", level, "inverse")
            self.elements[key, "scale"] = factor
        text = f"{self.element(dividend, index)} * {self.elements[key, 'scale']} * {self.elements[key]}"
        return self.variable("f32", words.rounded(value.type, f"({text})"), self.level(index), value.hint)

    def assume(self, mask: Value, index: Index) -> None:
        """A load that has a mask is an element of the nest."""
        splits.assume(self, mask, index)

    def close(self, behind: tuple[int, list[str]] = (0, [])) -> None:
        """Write the loops. ``behind``: statements of a loop, by its number, that follow the loop in it."""
        text, parts = self.low.text, splits.parts(self)
        outside = self.outside if parts else self.innermost
        assert not behind[1] or behind[0] <= outside
        with text.scope():
            for statement in self.statements[0]:
                text.line(statement)
            for depth in range(outside):
                self._write_head(depth, self.heads[depth])
                for statement in self.statements[depth + 1]:
                    text.line(statement)
            for part in parts:
                with text.scope(part.guard) if part.guard else nullcontext():
                    self._write_part(part, outside)
            for depth in range(outside, -1, -1):
                for statement in behind[1] if behind[0] == depth else []:
                    text.line(statement)
                if depth:
                    text.depth -= 1
                    text.line("}")
        for action in self.after:
            action()

    def _write_part(self, part: splits.Part, outside: int) -> None:
        text = self.low.text
        for depth, head in enumerate(part.heads, outside):
            self._write_head(depth, head)
            for statement in (
                self.statements[depth + 1] if depth + 1 < self.innermost else part.lines(self.statements[-1])
            ):
                text.line(statement)
        for _ in part.heads:
            text.depth -= 1
            text.line("}")

    def _write_head(self, depth: int, head: str) -> None:
        if self.parallel and depth == self.innermost - 1:
            self.low.text.line("BP_IVDEP")
        self.low.text.line(f"{head} {{")
        self.low.text.depth += 1
