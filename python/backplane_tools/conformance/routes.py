"""How a call of the conformance kit ran, and which operators of ATen computed in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from torch_backplane.ops import registry, ways


class Recorder(TorchDispatchMode):
    """The ATen operators that run inside the block, and which of them ran on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: set[str] = set()
        self.watch = ways.Watch()

    def __enter__(self) -> Any:
        self.watch.__enter__()
        return super().__enter__()

    def __exit__(self, *exc_info: Any) -> None:
        super().__exit__(*exc_info)
        self.watch.__exit__()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view:
            self.ops.add(registry.name_of(func))
        return func(*args, **(kwargs or {}))

    @property
    def on_device(self) -> set[str]:
        """Operators that computed on the device."""
        return {op for op in self.ops - self.watch.on_cpu.keys() if op.split(".")[0] not in _NO_COMPUTATION}


# What the SDK itself brings for every device, and computes nothing.
_NO_COMPUTATION = frozenset(
    "aten::" + name
    for name in "empty empty_like empty_strided new_empty new_empty_strided copy_ clone _to_copy resize_ set_ "
    "_local_scalar_dense lift_fresh detach zero_ fill_".split()
)


def route(call: Callable[[], Any]) -> str:
    """One of :data:`torch_backplane.ops.ways.WAYS`: the way of a call, which is made once. Empty if it raises."""
    with Recorder() as recorder:
        try:
            call()
        except Exception:
            return ""
    return ways.worst(recorder.watch.way, "composite" if len(recorder.ops) > 1 else "")
