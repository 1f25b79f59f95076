"""For tests of a backend: a pytest plugin, capabilities of the loaded driver, kernel counters, fresh processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch_backplane.testing.capabilities import capabilities, known_capabilities
from torch_backplane.testing.kernels import kernel_calls
from torch_backplane.testing.process import run_in_process

if TYPE_CHECKING:
    from torch_backplane.testing.check_op import check_op
    from torch_backplane.testing.generate_checks import generate_checks

__all__ = ["capabilities", "check_op", "generate_checks", "kernel_calls", "known_capabilities", "run_in_process"]


def __getattr__(name: str) -> Any:
    if name in ("check_op", "generate_checks"):  # they need torch's compiler, which takes seconds to import
        from importlib import import_module

        function = getattr(import_module(f"torch_backplane.testing.{name}"), name)
        globals()[name] = function  # else the module, which has the same name
        return function
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
