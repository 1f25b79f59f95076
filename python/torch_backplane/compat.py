"""Differences between torch versions, and gaps of torch that the runtime closes.

Each with what makes it unnecessary.
"""

from __future__ import annotations

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
