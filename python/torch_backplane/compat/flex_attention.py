"""``torch.nn.attention.flex_attention`` on this device: torch checks device types against lists (docs/upstream.md)."""

from __future__ import annotations

from typing import Any

import torch
from torch._higher_order_ops.flex_attention import flex_attention, sdpa_dense

from torch_backplane import _backend
from torch_backplane.compat import replaces
from torch_backplane.imports import after_import


def install(name: str) -> None:
    """Accept the device where torch lists those that it knows, and let its autocast cast the operands as CUDA's does.

    Seen on 2.13; unnecessary once torch asks whether a device has a kernel instead of comparing its name.
    """
    after_import("torch.nn.attention.flex_attention", lambda: _accept(name))
    autocast_key: Any = torch._C.DispatchKey.AutocastPrivateUse1  # type: ignore[attr-defined]
    key = torch._C.DispatchKey.PrivateUse1
    if key in flex_attention.py_kernels:
        return

    @flex_attention.py_impl(autocast_key)
    def autocast(*args: Any) -> Any:
        dtype = torch.get_autocast_dtype(name)
        operands = [one if one.dtype == torch.float64 else one.to(dtype) for one in args[:3]]
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(autocast_key)):
            return flex_attention(*operands, *args[3:])

    @flex_attention.py_impl(key)
    def dense(*args: Any) -> Any:
        refuse_other_kernels(args[6])
        return sdpa_dense(*args)


def _accept(name: str) -> None:
    from torch.nn.attention import flex_attention as module

    @replaces(module, "_validate_device")
    def validate_device(known: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        if query.device.type != name:
            known(query, key, value)


def refuse_other_kernels(options: dict[str, Any]) -> None:
    """Raise NotImplementedError if a call, eager or compiled, asks for kernels by name (``kernel_options``)."""
    backend = options.get("BACKEND", "AUTO")
    if backend != "AUTO":
        raise NotImplementedError(
            f'flex_attention was asked for BACKEND="{backend}", which {_backend.device} does not support: it computes '
            "flex_attention by its formula. Leave BACKEND out of kernel_options"
        )
