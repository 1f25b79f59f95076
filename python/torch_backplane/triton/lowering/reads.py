"""What an element is computed from, through lazy operations: elements of arrays, and loads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch_backplane.triton.lowering.forms import Array, Lazy, Sum
from torch_backplane.triton.lowering.uses import MOVES
from torch_backplane.triton.ttir import Value

if TYPE_CHECKING:
    from torch_backplane.triton.lowering.state import Lowering


@dataclass
class Reads:
    """Each with whether it is read at another index than the element's own."""

    arrays: dict[str, bool] = field(default_factory=dict)
    loads: dict[Value, bool] = field(default_factory=dict)


def reads(low: Lowering, *values: Value) -> Reads:
    """What an element of these blocks is computed from."""
    found = Reads()
    seen: set[tuple[Value, bool]] = set()
    stack = [(value, True) for value in values]
    while stack:
        value, is_own = stack.pop()
        if (value, is_own) in seen:
            continue
        seen.add((value, is_own))
        form = low.forms.get(value)
        if isinstance(form, Array):
            found.arrays[form.name] = found.arrays.get(form.name, False) or not is_own
        elif isinstance(form, Sum):
            stack.append((form.first, is_own))
        elif isinstance(form, Lazy):
            if form.op.name == "tt.load":
                found.loads[value] = found.loads.get(value, False) or not is_own
            stack += [(operand, is_own and form.op.name not in MOVES) for operand in form.op.operands]
    return found
