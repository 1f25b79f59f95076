"""The device as an Accelerator of Lightning: a class for Fabric and one for the Trainer, made as they are imported."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from torch_backplane import _backend
from torch_backplane.integrations._library import Patch


def is_current() -> bool:
    """Whether torch's current accelerator is this device, and available."""
    current = torch.accelerator.current_accelerator(check_available=True)
    return current is not None and current.type == _backend.device


def is_ours(accelerator: object) -> bool:
    """Whether an Accelerator of Lightning is this device's."""
    return hasattr(accelerator, "_backplane")


def device_module() -> Any:
    """``torch.<device>``."""
    return getattr(torch, _backend.device)


def register(package: Any, patch: Patch, wrong: type[Exception]) -> None:
    """Derive the device's Accelerator, and register it by the device's name.

    Args:
        package: ``lightning.fabric.accelerators`` or ``lightning.pytorch.accelerators``.
        patch: undoes it: without the rest of the integration Lightning would train on the CPU by that name.
        wrong: what Lightning raises there for an argument that does not fit.
    """
    name = f"{_backend.device.title().replace('_', '')}Accelerator"
    cls = type(name, (package.Accelerator,), _members(package.__name__, wrong))
    registry = _registry(package)
    registry.register(_backend.device, cls, description=name, override=True)
    patch.also(lambda: registry.pop(_backend.device, None))


def _registry(package: Any) -> Any:
    return getattr(package, "ACCELERATOR_REGISTRY", None) or package.AcceleratorRegistry


def _members(package: str, wrong: type[Exception]) -> dict[str, Any]:
    def setup_device(self: Any, device: torch.device) -> None:
        if device.type != _backend.device:
            raise wrong(f"Device should be {_backend.device}, got {device} instead")
        device_module().set_device(device)

    methods: dict[str, Callable[..., Any]] = {
        "setup_device": setup_device,
        "setup": lambda self, trainer: device_module().empty_cache(),
        "teardown": lambda self: device_module().empty_cache(),
        "get_device_stats": lambda self, device: device_module().memory_stats(device),
        "__reduce__": lambda self: (_unpickled, (package,)),  # strategies that spawn processes pickle it
    }
    static: dict[str, Callable[..., Any]] = {
        "parse_devices": lambda devices: parse_devices(devices, wrong),
        "get_parallel_devices": lambda devices: [torch.device(_backend.device, index) for index in devices],
        "auto_device_count": lambda: device_module().device_count(),
        "is_available": lambda: device_module().device_count() > 0,
        "name": lambda: _backend.device,
    }
    text = f"Lightning's Accelerator for {_backend.device}, registered by that name."
    return {
        **methods,
        **{name: staticmethod(function) for name, function in static.items()},
        "_backplane": True,
        "__doc__": text,
        "__module__": __name__,
    }


def _unpickled(package: str) -> Any:
    return _registry(importlib.import_module(package)).get(_backend.device)


def parse_devices(devices: Any, wrong: type[Exception]) -> list[int]:
    """The indices that ``devices=`` of a Trainer means, as for CUDA.

    Args:
        devices: ``2`` or ``"2"``: the first two; ``-1`` or ``"-1"``: all; ``[1]``, ``"0,1"`` or ``"1,"``: those.
        wrong: what is raised where they are not there, or not different.

    Raises:
        TypeError: it is something else.
    """
    count = device_module().device_count()
    asked = devices
    if isinstance(devices, str):
        words = [word.strip() for word in devices.split(",") if word.strip()]
        if not words or not all(word.removeprefix("-").isdecimal() for word in words):
            raise wrong(f"devices={asked!r} is neither a number of {_backend.device} devices nor a list of indices")
        devices = [int(word) for word in words] if "," in devices else int(words[0])
    indices = list(devices) if isinstance(devices, (list, tuple)) else [devices]
    if not all(type(index) is int for index in indices):
        raise TypeError(f"devices must be an int, a string or a list of ints, not {asked!r}")
    if not isinstance(devices, (list, tuple)):
        indices = list(range(count if devices == -1 else devices))
    if len(set(indices)) != len(indices):
        raise wrong(f"devices={asked!r} names a device twice")
    if not indices or not all(0 <= index < count for index in indices):
        raise wrong(f"devices={asked!r}: this process sees {count} {_backend.device} devices, with indices from 0")
    return indices
