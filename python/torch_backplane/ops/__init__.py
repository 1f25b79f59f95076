"""Define, check and explain a vendor's operators and kernels for PyTorch's operators."""

# ruff: noqa: E402 (a statement must precede the imports)
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch_backplane import _backend

_backend.autoload_later = []  # filled by the first `import torch` below

from torch_backplane.ops import guards
from torch_backplane.ops.custom_op import custom_op, get
from torch_backplane.ops.host import host_kernel
from torch_backplane.ops.kernels import Registration, kernel
from torch_backplane.ops.library import Library
from torch_backplane.ops.loading import load_library
from torch_backplane.ops.op import Op
from torch_backplane.ops.registry import dispatch_key
from torch_backplane.ops.strict import OperatorWarning, strict

if TYPE_CHECKING:
    from torch_backplane.ops.explanation import Explanation, explain
    from torch_backplane.ops.lint_rules import Finding
    from torch_backplane.ops.linting import lint

__all__ = [
    "Explanation",
    "Finding",
    "Library",
    "Op",
    "OperatorWarning",
    "Registration",
    "custom_op",
    "dispatch_key",
    "explain",
    "get",
    "guards",
    "host_kernel",
    "kernel",
    "lint",
    "load_library",
    "strict",
]

# Imported at first use.
_LAZY = {
    "Explanation": "explanation",
    "Finding": "lint_rules",
    "explain": "explanation",
    "lint": "linting",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_later, _backend.autoload_later = _backend.autoload_later, None
if _later:
    from torch_backplane._setup import autoload

    for _package in _later:
        autoload(_package)
