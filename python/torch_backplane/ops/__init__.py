"""Operators of a vendor's own, and kernels for PyTorch's: defined, checked, and explained."""

from __future__ import annotations

from torch_backplane.ops.kernels import Registration, kernel

__all__ = ["Registration", "kernel"]
