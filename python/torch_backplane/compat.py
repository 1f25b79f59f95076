"""Differences between torch versions, and gaps of torch that the runtime closes.

Each with what makes it unnecessary.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch


def let_higher_order_ops_pass_autocast() -> None:
    """Let ``torch.cond`` and its kin run under ``torch.autocast`` of this device.

    torch gives higher-order operators a fallthrough for the autocast keys of CPU, CUDA and XPU alone. Needed on 2.11 to
    2.15; unnecessary once ``AutocastPrivateUse1`` is in torch's own list.
    """
    key = torch._C.DispatchKey.AutocastPrivateUse1  # type: ignore[attr-defined]
    ops: Any = torch._ops
    defaults = ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS
    if key in defaults:
        return
    defaults.append(key)  # operators made from now on
    for op in list(ops._higher_order_ops.values()):
        op.fallthrough(key)


def override_kernel(library: torch.library.Library, name: str, function: Callable[..., Any], key: str) -> None:
    """Register a Python kernel without torch's warning that it goes before another: the caller has decided that."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(?s).*Overriding a previously registered kernel")
        library.impl(name, function, key)


def autograd_kernel(
    op: torch._ops.OpOverload, backward: Callable[..., Any], setup_context: Callable[..., Any] | None
) -> Callable[..., Any]:
    """An autograd kernel from a formula, for one device: ``torch.library.register_autograd`` makes one for all.

    Unnecessary once ``register_autograd`` takes a device.
    """
    from torch._library.autograd import Info, make_autograd_impl

    return make_autograd_impl(op, Info(_backward_fn=backward, _setup_context_fn=setup_context))
