"""Operators that the dialect has no expression for are calls of the device's own, decided when a graph is lowered.

Inductor asks a backend for such operators only when it writes a kernel, which is too late to leave them out. So the
entries of its table of lowerings are wrapped; for tensors of other devices they are as they were.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._inductor import lowering
from torch._inductor.codegen.common import pointwise_overrides_data
from torch._inductor.ops_handler import OpsHandler
from torch._inductor.utils import sympy_product
from torch._inductor.virtualized import V

from torch_backplane import _backend, compiler
from torch_backplane.inductor.ops import SPECIAL, DialectOps

# Where items are many, the operator scans a row of so many elements in parts, unless there are so many rows.
LONG_ROW, MANY_ROWS = 2 * 16384, 256
_PRODUCTS = ("mm", "bmm", "addmm")
SCANS = "cumsum cumprod logcumsumexp cummax cummin".split()

left: set[Any] = set()
"""Operators that a graph of this process had as a call because the dialect has no expression of them."""


def lacking() -> list[str]:
    """Inductor's operators without an expression here."""
    names = (*pointwise_overrides_data, "lgamma", "erfinv")
    return sorted(name for name in names if getattr(DialectOps, name) is getattr(OpsHandler, name))


def _aten(name: str) -> str:
    data = pointwise_overrides_data.get(name)
    return data.name if data is not None else name


def register() -> None:
    """Wrap the lowerings, once."""
    never, not_double = ({_aten(name) for name in names} | set(names) for names in (lacking(), (*SPECIAL, "ndtr")))
    for op, lower in list(lowering.lowerings.items()):
        if not isinstance(op, torch._ops.OpOverload) or op.namespace not in ("aten", "prims"):
            continue
        name = op._schema.name.split("::")[1]
        if name in never:
            lowering.lowerings[op] = _wrapped(op, lower, lambda dtype: True)
        elif name in not_double:
            lowering.lowerings[op] = _wrapped(op, lower, lambda dtype: dtype == torch.float64)
        elif name in SCANS:
            lowering.lowerings[op] = _unless_long(op, lower)
        elif name in _PRODUCTS and op._schema.overload_name == "dtype":  # which torch lowers for CUDA and XPU alone
            lowering.lowerings[op] = _wrapped(op, lower, lambda dtype: True)
        elif name == "lift_fresh_copy":  # the one operator whose lowering the mode of eager_calls.py uses
            lowering.lowerings[op] = _wrapped(op, lower, lambda dtype: bool(compiler.why_none()))


def _wrapped(op: Any, lower: Callable[..., Any], leaves: Callable[[torch.dtype], bool]) -> Callable[..., Any]:
    operator = lowering.fallback_handler(op, add_to_fallback_set=False)

    def choose(*args: Any, **kwargs: Any) -> Any:
        tensors = [one for one in args if hasattr(one, "get_device")]
        ours = any(one.get_device() is not None and one.get_device().type == _backend.device for one in tensors)
        if ours and any(leaves(one.get_dtype()) for one in tensors):
            left.add(op)
            return operator(*args, **kwargs)
        return lower(*args, **kwargs)

    return choose


def _unless_long(op: Any, lower: Callable[..., Any]) -> Callable[..., Any]:
    operator = lowering.fallback_handler(op, add_to_fallback_set=False)

    def choose(x: Any, dim: int, **kwargs: Any) -> Any:
        device, sizes = x.get_device(), x.get_size()
        if device.type != _backend.device or not sizes or compiler.target(device.index or 0).group_size == 1:
            return lower(x, dim, **kwargs)
        size, count = (
            int(V.graph.sizevars.optimization_hint(one, fallback=1)) for one in (sizes[dim], sympy_product(sizes))
        )
        is_long = size >= LONG_ROW and count < MANY_ROWS * size
        return operator(x, dim, **kwargs) if is_long else lower(x, dim, **kwargs)

    return choose
