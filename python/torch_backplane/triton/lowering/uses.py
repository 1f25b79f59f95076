"""Who needs a value, and whether it is worth an array.

Operations that are expressions of an element (lazy ones) are computed inside the loops of those that are not: the
roots, which store, reduce, multiply, or control. A value that is costly, and needed by two roots or repeatedly in one,
is computed once, into an array.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from torch_backplane.triton.expressions import COSTLY, HANDLERS
from torch_backplane.triton.lowering.forms import Array, Form, Lazy, Scalar, Sum
from torch_backplane.triton.ttir import Op, Value, ancestor
from torch_backplane.triton.words import NARROW

MOVES = frozenset(f"tt.{name}" for name in "expand_dims broadcast trans reshape join split cat gather".split())
"""Operations whose element is another element of an operand."""
LAZY = frozenset({*HANDLERS, *MOVES, "tt.make_range", "tt.splat", "tt.load", "arith.constant"})
CHEAP = 6.0
"""The cost up to which a value is computed again rather than kept."""
_LOAD, _CALL, _GATHER, _ROUNDING, _REAL, _INTEGER = 10.0, 8.0, 4.0, 6.0, 1.0, 0.3

EFFECTS = frozenset(
    "tt.store tt.atomic_rmw tt.atomic_cas tt.call gpu.barrier ttg.barrier ttg.local_barrier tt.assert tt.print".split()
)


def is_lazy(op: Op) -> bool:
    """Whether its results are blocks that are expressions of their operands' elements."""
    return op.name in LAZY and bool(op.results) and op.result.type.is_block


def has_effects(op: Op) -> bool:
    """Whether it, or an operation in it, writes memory."""
    return op.name in EFFECTS or any(has_effects(inner) for block in op.body_blocks for inner in block.ops)


class Uses:
    """Of the values of a kernel, given their present forms."""

    def __init__(self, forms: Mapping[Value, Form]) -> None:
        self._forms = forms
        self._roots: dict[Value, frozenset[int]] = {}
        self._needs: dict[Value, frozenset[int]] = {}
        self._kept: dict[Value, bool] = {}

    def roots(self, value: Value) -> frozenset[int]:
        """The positions, in its block, of the roots that need it; the block's length for those outside the block."""
        return self._positions(value, self._roots, lambda result: False)

    def needs(self, value: Value) -> frozenset[int]:
        """The same, where a value that is kept in an array is a root."""
        return self._positions(value, self._needs, self.is_kept)

    def _positions(
        self, value: Value, known: dict[Value, frozenset[int]], is_root: Callable[[Value], bool]
    ) -> frozenset[int]:
        for one in _later(value, known):
            known[one] = frozenset()  # of a cycle, which only a loop's carried values make
            found: set[int] = set()
            home = one.home
            for user in one.users:
                top = ancestor(user, home)
                if top is None:
                    found.add(len(home.ops))
                elif top is user and is_lazy(user):
                    for result in user.results:
                        found |= {top.position} if is_root(result) else known.get(result, frozenset())
                else:
                    found.add(top.position)
            known[one] = frozenset(found)
        return known[value]

    def cost(self, value: Value, seen: dict[Value, float] | None = None, spent: float = 0.0) -> float:
        """Of computing one element; about that of an addition is 1. Costs above CHEAP are not exact."""
        seen = {} if seen is None else seen
        if value in seen:
            return seen[value]
        form = self._forms.get(value)
        op = form.op if isinstance(form, Lazy) else value.op
        if isinstance(form, Scalar | Array) or op is None or not value.type.is_block:
            return 0.5 if isinstance(form, Sum) else 0.0
        total = 0.0
        if op.name == "tt.load":
            total = _LOAD
        elif op.short in COSTLY:
            total = _CALL
        elif op.name == "tt.gather":
            total = _GATHER
        elif op.dialect in ("arith", "math") and op.short != "constant":
            total = _REAL if value.type.is_float else _INTEGER
            if value.type.elem in NARROW and op.short not in ("extf", "select"):
                total = _ROUNDING
        seen[value] = total
        for operand in op.operands:
            if spent + total <= CHEAP and operand.type.is_block:
                total += self.cost(operand, seen, spent + total)
        seen[value] = total
        return total

    def is_kept(self, value: Value) -> bool:
        """Whether it is computed once, into an array."""
        if value not in self._kept:
            is_costly = not value.type.is_pointer and self.cost(value) > CHEAP
            self._kept[value] = is_costly and (len(self.needs(value)) > 1 or self._is_repeated(value))
        return self._kept[value]

    def _is_repeated(self, value: Value) -> bool:
        """Whether the loops of one root would compute its elements more than once, or in another order."""
        for user in value.users:
            if user.name not in MOVES:
                continue
            shape, result = value.type.lengths, user.result
            if user.name == "tt.broadcast":
                last = max((axis for axis, length in enumerate(shape) if length > 1), default=-1)
                if any(shape[axis] != length for axis, length in enumerate(result.type.lengths) if axis < last):
                    return True
            elif user.name == "tt.expand_dims":
                if user.integer("axis") == 0 and any(next_.name == "tt.broadcast" for next_ in result.users):
                    return True
            elif user.name != "tt.reshape" or long(shape) != long(result.type.lengths):
                return True
        return False


def _later(value: Value, known: Container[Value]) -> list[Value]:
    """It and the lazy values that need it, unless known, the last first: a chain may be longer than calls can nest."""
    order: list[Value] = []
    entered: set[Value] = set()
    stack = [(value, False)]
    while stack:
        one, is_left = stack.pop()
        if is_left:
            order.append(one)
        elif one not in entered and one not in known:
            entered.add(one)
            stack.append((one, True))
            users = [user for user in one.users if is_lazy(user) and ancestor(user, one.home) is user]
            stack += [(result, False) for user in users for result in user.results]
    return order


def long(shape: tuple[int, ...]) -> list[int]:
    """The lengths that are not 1."""
    return [length for length in shape if length > 1]
