"""``torch.nn.attention.flex_attention`` on this device: torch has lists of device types there (docs/upstream.md)."""

from __future__ import annotations

from typing import Any

import torch
from torch._higher_order_ops.flex_attention import flex_attention, sdpa_dense
from torch.nn.attention import flex_attention as module

from torch_backplane import _backend


def install(name: str) -> None:
    """Let the device pass where torch names those that it knows, and its autocast cast the operands as CUDA's does.

    Seen on 2.13; unnecessary once torch asks whether a device has a kernel instead of what it is called.
    """
    _let_pass_validation(name)
    _cast_under_autocast(name)
    _check_kernel_options()


def refuse_other_kernels(options: dict[str, Any]) -> None:
    """An error where a call asks for kernels by name (``kernel_options``), eager or compiled."""
    backend = options.get("BACKEND", "AUTO")
    if backend != "AUTO":
        raise NotImplementedError(
            f'flex_attention was asked for BACKEND="{backend}", which {_backend.device} has not: it computes '
            "flex_attention by its formula. Leave BACKEND out of kernel_options"
        )


def _let_pass_validation(name: str) -> None:
    known = getattr(module, "_validate_device", None)
    if known is None or known.__module__ == __name__:
        return

    def validate_device(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        if query.device.type != name:
            known(query, key, value)

    module._validate_device = validate_device


def _cast_under_autocast(name: str) -> None:
    keys: Any = torch._C.DispatchKey
    key = keys.AutocastPrivateUse1
    if key in flex_attention.py_kernels:
        return

    @flex_attention.py_impl(key)
    def autocast(*args: Any) -> Any:
        dtype = torch.get_autocast_dtype(name)
        operands = [one if one.dtype == torch.float64 else one.to(dtype) for one in args[:3]]
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
            return flex_attention(*operands, *args[3:])


def _check_kernel_options() -> None:
    key = torch._C.DispatchKey.PrivateUse1
    if key in flex_attention.py_kernels:
        return

    @flex_attention.py_impl(key)
    def dense(*args: Any) -> Any:
        refuse_other_kernels(args[6])
        return sdpa_dense(*args)
