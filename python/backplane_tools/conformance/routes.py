"""How an operator ran: by a kernel of the device, composed of several, or on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from torch_backplane import fallback

__all__ = ["Recorder", "route"]


class Recorder(TorchDispatchMode):
    """The ATen operators that run inside the block, and which of them ran on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: set[str] = set()
        self.on_cpu: set[str] = set()

    def __enter__(self) -> Any:
        self._before = fallback.calls()
        return super().__enter__()

    def __exit__(self, *exc_info: Any) -> None:
        super().__exit__(*exc_info)
        self.on_cpu = {op for op, count in fallback.calls().items() if count != self._before.get(op, 0)}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view:
            self.ops.add(_name(func))
        return func(*args, **(kwargs or {}))

    @property
    def on_device(self) -> set[str]:
        """Operators that computed on the device."""
        return {op for op in self.ops - self.on_cpu if op.split(".")[0] not in _NO_COMPUTATION}


# What the SDK itself brings for every device, and computes nothing.
_NO_COMPUTATION = frozenset(
    "aten::" + name
    for name in "empty empty_like empty_strided new_empty new_empty_strided copy_ clone _to_copy resize_ set_ "
    "_local_scalar_dense lift_fresh detach zero_ fill_".split()
)


def _name(func: Any) -> str:
    schema = func._schema
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


def route(call: Callable[[], Any]) -> str:
    """``"native"``, ``"composite"`` or ``"fallback"``: the way of a call, which is made once. Empty if it raises."""
    with Recorder() as recorder:
        try:
            call()
        except Exception:
            return ""
    if recorder.on_cpu:
        return "fallback"
    return "native" if len(recorder.ops) <= 1 else "composite"
