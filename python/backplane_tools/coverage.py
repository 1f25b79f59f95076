"""Which operators a model runs on the device, and how: what to implement next.

The words are those of :mod:`torch_backplane.ops.ways`: an operator is *refused* where it raised NotImplementedError,
and the operators that a *composite* one calls are listed too. Times are of the operator's whole work: the device is
synchronized after each, so a run under coverage is slower than without.
"""

from __future__ import annotations

import functools
import sys
import sysconfig
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map

import backplane_tools
import torch_backplane
from torch_backplane import __version__, _backend, fallback
from torch_backplane.ops import host, registry, schema, ways

__all__ = ["Coverage", "Operator"]

# A dispatch mode sees what this one does as the operator itself.
_WHOLE = frozenset({"aten::detach"})
_CLI = str(Path(__file__).parent / "cli")
_MODULES = str(Path(torch.__file__).parent / "nn" / "modules") + "/"
_OURS = (str(Path(str(module.__file__)).parent) for module in (torch, torch_backplane, backplane_tools))
_QUIET = (*_OURS, sysconfig.get_path("stdlib"))


@dataclass
class Operator:
    """What one operator, an overload, did in a run."""

    op: str
    """``"aten::add.Tensor"``"""
    way: str
    """One of :data:`~torch_backplane.ops.ways.WAYS`: of its calls, the one that comes first there."""
    calls: int = 0
    time_ns: int = 0
    """Of a composite: its parts' together."""
    bytes: int = 0
    """Of the tensors that it took and gave; of a composite: its parts' together. A view moves nothing."""
    site: str = ""
    """``file:line`` of the first call in Python, or the node of autograd that called it."""
    ways: dict[str, int] = field(default_factory=dict)
    """Calls by way: a kernel may hand a part of its calls to the CPU."""
    parts: dict[str, int] = field(default_factory=dict)
    """Of a composite, the operators that it led to; of another, those that it ran on the CPU. With their calls."""


class Coverage:
    """Counts every operator on the device within its block. Blocks can be repeated, and add up.

    Example::

        with Coverage() as coverage:
            step()
        for row in coverage.operators():
            print(row.op, row.way, row.calls)
    """

    def __init__(self) -> None:
        if not _backend.loaded():
            raise RuntimeError("no backend is loaded: import the vendor's package first, for example `import mydevice`")
        self._rows: dict[str, Operator] = {}
        self._mode = _Mode(self._rows)
        self._policy: fallback.policy | None = None

    def __enter__(self) -> Coverage:
        self._policy = fallback.policy("cpu") if fallback.is_registered() else None
        _backend.C.observer.observe_operators(True)
        self._mode.__enter__()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._mode.__exit__(*exc_info)
        _backend.C.observer.observe_operators(False)
        if self._policy is not None:
            self._policy.__exit__()

    def clear(self) -> None:
        """Forget what was counted."""
        self._rows.clear()

    def operators(self) -> list[Operator]:
        """What was counted: by way, the one that wants a kernel most first, and in it by time and bytes."""
        return sorted(self._rows.values(), key=lambda row: (ways.WAYS.index(row.way), -row.time_ns, -row.bytes, row.op))

    def total_ns(self) -> int:
        """The time of all operators; composites are in it by their parts."""
        return sum(row.time_ns for row in self._rows.values() if row.way != "composite")

    def to_json(self) -> dict[str, Any]:
        """The whole account as plain data."""
        return {
            "device": _backend.device,
            "torch": torch.__version__,
            "torch_backplane": __version__,
            "total_ns": self.total_ns(),
            "operators": [asdict(row) for row in self.operators()],
        }


class _Mode(TorchDispatchMode):
    """Sees each operator below autograd, and the composites that it came from by the core's observer."""

    supports_higher_order_operators = True

    def __init__(self, rows: dict[str, Operator]) -> None:
        super().__init__()
        self._rows = rows
        self._last_serial: dict[str, int] = {}
        self._composite_key = functools.cache(_composite_key)
        self._synchronize = torch.get_device_module(_backend.device).synchronize

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors, wanted = _on_device((args, kwargs))
        if not wanted or not isinstance(func, torch._ops.OpOverload):
            return func(*args, **kwargs)
        name = registry.name_of(func)
        keys = tuple(sorted({_key(tensor) for tensor in tensors})) or ("PrivateUse1",)
        if key := self._composite_key(name, keys):
            with self:  # its parts come here
                return func._op_dk(key, *args, **kwargs)
        refused = False
        with ways.Watch() as watch:
            began = time.perf_counter_ns()
            try:
                result = func(*args, **kwargs)
                self._synchronize()
            except NotImplementedError as error:
                try:
                    result = _on_the_host(func, args, kwargs)
                except Exception:
                    self._note(name, "refused", 0, 0, {})
                    raise error from None
                refused = True
            elapsed = time.perf_counter_ns() - began
        way = "refused" if refused else watch.way
        moved = 0 if func.is_view else _bytes([*tensors, *_on_device(result)[0]])
        self._note(name, way, elapsed, moved, watch.on_cpu)
        return result

    def _note(self, name: str, way: str, elapsed: int, moved: int, fell: dict[str, int]) -> None:
        enclosing = [
            (op, serial) for op, serial in _backend.C.observer.enclosing_operators() if op != "PythonDispatchMode"
        ]
        site = _site([op for op, _ in enclosing])
        row = self._rows.setdefault(name, Operator(name, way, site=site))
        row.calls += 1
        row.ways[way] = row.ways.get(way, 0) + 1
        row.way = ways.worst(row.way, way)
        for op, calls in fell.items():
            if op != name:
                row.parts[op] = row.parts.get(op, 0) + calls
        around = {op: serial for op, serial in enclosing if op != name and self._is_composite(op)}
        for op, serial in around.items():
            whole = self._rows.setdefault(op, Operator(op, "composite", site=site))
            if serial > self._last_serial.get(op, 0):
                self._last_serial[op] = serial
                whole.calls += 1
                whole.ways["composite"] = whole.calls
            whole.parts[name] = whole.parts.get(name, 0) + 1
        for each in (row, *(self._rows[op] for op in around)):
            each.time_ns += elapsed
            each.bytes += moved

    def _is_composite(self, op: str) -> bool:
        return op.startswith("aten::") and self._composite_key(op) is not None


def _composite_key(op: str, keys: tuple[str, ...] = ("PrivateUse1",)) -> Any:
    """The key of the kernel that calls the operators that an operator is made of; None if it does not run so."""
    found = next((key for key in registry.COMPOSITE if registry.has_kernel(op, key)), None)
    is_made = found and op not in _WHOLE and ways.way_of(op, keys) == "composite"
    return getattr(torch._C.DispatchKey, found) if found and is_made else None


def _on_device(tree: Any) -> tuple[list[torch.Tensor], bool]:
    """The tree's tensors on the device, and whether it names the device at all."""
    tensors, named = {}, False
    for leaf in tree_iter(tree):
        if isinstance(leaf, torch.Tensor) and leaf.device.type == _backend.device:
            tensors[id(leaf)] = leaf
        elif isinstance(leaf, torch.device) and leaf.type == _backend.device:
            named = True
    return list(tensors.values()), bool(tensors) or named


def _key(tensor: torch.Tensor) -> str:
    """The dispatch key that the tensor's kernels are registered for."""
    if tensor.is_quantized:
        return "QuantizedPrivateUse1"
    if tensor.is_nested:
        return "NestedTensorPrivateUse1"
    if tensor.layout == torch.sparse_coo:
        return "SparsePrivateUse1"
    return "PrivateUse1" if tensor.layout == torch.strided else "SparseCsrPrivateUse1"


def _bytes(tensors: list[torch.Tensor]) -> int:
    distinct = {id(tensor): tensor for tensor in tensors if tensor.layout == torch.strided and not tensor.is_nested}
    return sum(tensor.numel() * tensor.element_size() for tensor in distinct.values())


def _site(enclosing: list[str]) -> str:
    """Where a call comes from: a node of autograd, the innermost line of the user's, or a line of ``torch.nn``."""
    nodes = [name for name in enclosing if "::" not in name or name.startswith("torch::autograd::")]
    if nodes:
        return nodes[-1]
    module = ""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file, line = frame.f_code.co_filename, frame.f_lineno
        if file.startswith(_CLI):
            break
        if not file.startswith((*_QUIET, "<")) and "site-packages" not in file:
            return f"{file}:{line}"
        if not module and file.startswith(_MODULES):
            module = f"{file[len(_MODULES) - len('torch/nn/modules/') :]}:{line}"
        frame = frame.f_back
    return module


def _on_the_host(func: Any, args: Any, kwargs: Any) -> Any:
    """Runs on the CPU what the device refused, so that the run goes on and shows what else is missing."""
    args, kwargs = tree_map(lambda leaf: None if isinstance(leaf, torch.Generator) else leaf, (args, kwargs))
    names = [argument.name for argument in func._schema.arguments]
    return host.staged(func, schema.mutated(func._schema), names)(*args, **kwargs)
