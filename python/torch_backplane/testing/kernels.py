"""Proof that the backend's own kernel ran, and not the CPU fallback."""

from __future__ import annotations

from torch_backplane import _backend


def kernel_calls(op: str) -> int:
    """How often the backend's kernel of an operator was called in this process, all its forms together.

    Args:
        op: the operator's name without ``aten::``, such as ``"add.Tensor"``.

    Raises:
        RuntimeError: the backend has no kernel of that name.
    """
    return int(_backend.C.kernel_calls(op))
