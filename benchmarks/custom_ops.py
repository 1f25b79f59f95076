"""A custom operator through torch_backplane.ops, against the same through torch.library: both on the device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from benchmarks.row import Result, Row
from benchmarks.timing import ratio

DEFINED: dict[str, tuple[Any, Any]] = {}


def same(x: Tensor) -> Tensor:
    """Nearly nothing, so that the way to it is what is measured."""
    return torch.empty_like(x)


def _operators(device: str) -> tuple[Any, Any]:
    """Ours and torch's, with a formula each."""
    if device not in DEFINED:
        from torch_backplane import ops

        ours = ops.custom_op("bp_bench::ours", same, mutates_args=(), device_types=device)
        stock = torch.library.custom_op("bp_bench::stock", same, mutates_args=(), device_types=device)
        for op in (ours, stock):
            op.register_autograd(lambda ctx, gradient: gradient)
        DEFINED[device] = ours, stock
    return DEFINED[device]


def _call(requires_grad: bool) -> Any:
    def measure(device: str) -> Result:
        ours, stock = _operators(device)
        x = torch.ones(8, device=device, requires_grad=requires_grad)
        return ratio("op(x)", {"op": ours, "x": x}, {"op": stock, "x": x}, round_s=0.001, rounds=801)

    return measure


ROWS = [
    Row("custom operator, over torch.library's", _call(requires_grad=False), budget=1.05),
    Row("custom operator with a gradient, over torch.library's", _call(requires_grad=True), budget=1.05),
]
