"""Counts calls of the backend's own kernels, which shows that the CPU fallback did not run."""

from __future__ import annotations

from torch_backplane import _backend


def kernel_calls(op: str) -> int:
    """How often the backend's kernel of an operator was called in this process, all its forms together.

    Kernels registered from Python (:func:`torch_backplane.kernel`) count, too.

    Args:
        op: the operator's name without ``aten::``, such as ``"add.Tensor"``.

    Raises:
        RuntimeError: the backend has no kernel of that name.
    """
    from torch_backplane.ops import kernels

    in_python = kernels.calls(op if "::" in op else f"aten::{op}")
    try:
        return _backend.C.kernels.calls(op) + (in_python or 0)
    except RuntimeError:
        if in_python is None:
            raise
        return in_python
