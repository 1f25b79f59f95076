"""Backplane's Python runtime: what a backend package built with the SDK needs at run time.

Importing it is cheap and loads no torch. The device module itself is ``torch_backplane.device``; a backend package
registers it as ``torch.<device>``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from backplane_sdk import CORE_PROTOCOL, __version__

if TYPE_CHECKING:
    from torch_backplane.ops.kernels import kernel

__all__ = ["CORE_PROTOCOL", "__version__", "kernel"]


def __getattr__(name: str) -> Any:
    if name == "kernel":  # needs torch
        from torch_backplane.ops.kernels import kernel

        return kernel
    if name == "ops":  # error messages name it
        return importlib.import_module("torch_backplane.ops")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
