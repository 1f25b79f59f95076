"""Loads that a store of the same loop would overtake.

A block is read whole before one is written. A lazy load is computed in the loop that stores, where elements may be read
behind the store of others. That is right where each element is stored to the place that it was read from, or where the
pointers come from different arguments: those are taken to be different tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch_backplane.triton.lowering.forms import Lazy
from torch_backplane.triton.lowering.reads import reads
from torch_backplane.triton.ttir import Value

if TYPE_CHECKING:
    from torch_backplane.triton.lowering.state import Lowering


def keep_loads(low: Lowering, pointers: Value, *others: Value) -> None:
    """Compute, before a store's loops, the loads that could read what they write.

    Args:
        low: the kernel's lowering.
        pointers: where the store writes.
        others: its other operands.
    """
    for load, is_elsewhere in reads(low, pointers, *others).loads.items():
        form = low.forms[load]
        if not isinstance(form, Lazy):  # computed with another one
            continue
        source = form.op.operands[0]
        if (is_elsewhere or source is not pointers) and low.pointers.may_overlap(source, pointers):
            low.keep(load)
