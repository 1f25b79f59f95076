"""Device arguments: int, string, ``torch.device`` or None, as everywhere in torch.

Torch itself calls ``_get_device_index``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from torch_backplane import _backend

Device = torch.device | str | int | None

_Query = TypeVar("_Query", bound=Callable[..., Any])


def constant_in_graphs(query: _Query) -> _Query:
    """Mark a query whose result is constant in a process that uses a device, so that it does not break a graph.

    As ``torch.compiler.assume_constant_result``, which would import the compiler.
    """
    query._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return query


def current_index() -> int:
    """The calling thread's current device. In a graph by torch's own call, which Dynamo supports and guards."""
    if torch.compiler.is_dynamo_compiling():
        return torch.accelerator.current_device_index()
    return _backend.C.devices.current()


def _get_device_index(device: Device, optional: bool = False, allow_cpu: bool = False) -> int:
    """The index of a device argument.

    Args:
        device: an index, ``"mydevice"``, ``"mydevice:1"`` or a ``torch.device``.
        optional: whether None, and a device without an index, mean the current device.
        allow_cpu: whether a CPU device is accepted; it gives -1.

    Returns:
        The index, unchecked: the native code checks it, with the range in its error.
    """
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if allow_cpu and device.type == "cpu":
            return -1
        if device.type != _backend.device:
            raise ValueError(f"expected {_backend.a_device()} device, got {device}")
        if device.index is not None:
            return device.index
    elif device is not None:
        raise TypeError(f"expected torch.device, str, int or None as a device, got {type(device).__name__}")
    if not optional:
        raise ValueError(f"expected a device with an index, such as {_backend.device}:0, got {device}")
    return current_index()


def _checked(device: Device) -> int:
    """The index, checked before torch's own code sees it; the error has the valid range."""
    index = _get_device_index(device, optional=True)
    _backend.C.devices.properties(index)
    return index
