"""Autocast rules of operators: a kernel that casts tensors of the device and calls the operator without autocast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def key_of(device: str) -> str:
    """The dispatch key of a device's autocast.

    Raises:
        ValueError: torch has no autocast for that device.
    """
    if not torch.amp.is_autocast_available(device):
        raise ValueError(f"torch has no autocast for the device type '{device}'")
    return "Autocast" + str(torch._C._dispatch_key_for_device(device))


def cast_kernel(op: torch._ops.OpOverload, device: str, dtype: torch.dtype | None) -> Callable[..., Any]:
    """A kernel for that key. It casts keyword arguments as well, which ``torch.library.register_autocast`` refuses.

    Args:
        op: the operator.
        device: the device whose floating-point tensors, except double, are cast.
        dtype: the target; None is the dtype of the region.
    """
    from torch.amp.autocast_mode import _cast

    key = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key_of(device)))

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        target = torch.get_autocast_dtype(device) if dtype is None else dtype
        with torch._C._ExcludeDispatchKeyGuard(key):
            return op(*_cast(args, device, target), **_cast(kwargs, device, target))

    return kernel
