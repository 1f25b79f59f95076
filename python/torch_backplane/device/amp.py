"""Automatic mixed precision, with this device filled in. ``torch.amp`` with ``device_type=`` is the same."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from torch_backplane import _backend

__all__ = [
    "GradScaler",
    "amp_definitely_not_available",
    "autocast",
    "custom_bwd",
    "custom_fwd",
    "get_amp_supported_dtype",
]


class autocast(torch.amp.autocast_mode.autocast):
    """``torch.autocast`` for this device.

    Args:
        enabled: whether the region casts.
        dtype: what it casts to; None is ``torch.get_autocast_dtype(device)``.
        cache_enabled: whether casts of weights are cached within the region; None keeps the current setting.
    """

    def __init__(
        self, enabled: bool = True, dtype: torch.dtype | None = None, cache_enabled: bool | None = None
    ) -> None:
        super().__init__(_backend.device, enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """``torch.amp.GradScaler`` for this device.

    Args:
        init_scale: the scale to begin with.
        growth_factor: by which it grows after ``growth_interval`` steps without inf or NaN.
        backoff_factor: by which it shrinks at an inf or NaN.
        growth_interval: steps between growths.
        enabled: False makes every method a no-op.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__(
            _backend.device,
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
            enabled=enabled,
        )


def custom_fwd(fwd: Callable[..., Any] | None = None, *, cast_inputs: torch.dtype | None = None) -> Callable[..., Any]:
    """``torch.amp.custom_fwd`` for this device: decorates the forward of a custom autograd function.

    Args:
        fwd: the function; None when used with arguments.
        cast_inputs: the dtype that floating-point inputs on this device are cast to; autocast is then off inside.
    """
    if fwd is None:
        return functools.partial(custom_fwd, cast_inputs=cast_inputs)
    return torch.amp.custom_fwd(fwd, device_type=_backend.device, cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.amp.custom_bwd`` for this device: the backward runs under the forward's autocast state."""
    return torch.amp.custom_bwd(bwd, device_type=_backend.device)


def amp_definitely_not_available() -> bool:
    """Whether there is no device to autocast on."""
    return _backend.C.devices.count() == 0


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that ``torch.autocast`` takes: both half types.

    It does not depend on the device: where it has no kernel for a half type, the operator runs on the CPU.
    """
    return [torch.float16, torch.bfloat16]
