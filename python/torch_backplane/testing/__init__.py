"""For tests of a backend: a pytest plugin, capabilities of the loaded driver, kernel counters, fresh processes."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from torch_backplane.testing.capabilities import capabilities, known_capabilities
from torch_backplane.testing.kernels import kernel_calls
from torch_backplane.testing.process import run_in_process

if TYPE_CHECKING:
    from torch_backplane.testing.opchecks.check import check_op
    from torch_backplane.testing.opchecks.generate import generate_checks, without_checks

__all__ = [
    "capabilities",
    "check_op",
    "generate_checks",
    "kernel_calls",
    "known_capabilities",
    "run_in_process",
    "without_checks",
]

# These need torch's compiler, which takes seconds to import.
_LAZY = {"check_op": "check", "generate_checks": "generate", "without_checks": "generate"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f"{__name__}.opchecks.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
