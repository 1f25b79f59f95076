"""safetensors: its files are opened for the device by name, by ``safe_open``, ``load_file`` and ``load_model``."""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any

import torch

from torch_backplane import _backend
from torch_backplane.integrations._library import Integration, Patch, Unexpected

integration = Integration("safetensors", "~=0.8.0")

_FRAMEWORKS = ("pt", "torch", "pytorch")


@integration.after("safetensors")
def open_for_the_device(module: Any, patch: Patch) -> str:
    """Put a class in the place of each of the two that read a file, which makes an object of the library's.

    Also where it has been imported from there, by whatever name.
    """
    for name in ("safe_open", "_safe_open_handle"):
        found = getattr(module, name, None)
        if not isinstance(found, type):
            raise Unexpected(f"safetensors.{name} is not a class")
        if not isinstance(found, _Named):
            put = functools.partial(lambda ours, before: ours, _class(found))
            for owner, taken in _holders(found):
                patch.value(owner, taken, put)
    return f"safe_open takes {_backend.device}"


def _holders(found: type) -> list[tuple[ModuleType, str]]:
    modules = [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
    return [(module, name) for module in modules for name, value in list(vars(module).items()) if value is found]


class _Named(type):
    """The type of such a class: the library's objects are its instances."""

    library: type

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.library)


def _class(found: Any) -> type:
    """A class that is called as ``found`` is, and whose instances are those of ``found``.

    The library has a list of devices by name, compiled; an index it passes on to torch, for which that is one of the
    accelerator's. A tensor is a view of the mapped file, moved when it is asked for.
    """

    def new(cls: type, filename: Any, framework: Any, device: Any = "cpu", **kwargs: Any) -> Any:
        if framework in _FRAMEWORKS:
            device = _index(device)
        return found(filename, framework, device, **kwargs)

    members = {"__new__": new, "__doc__": found.__doc__, "__module__": found.__module__, "library": found}
    return _Named(found.__name__, (), members)


def _index(device: Any) -> Any:
    """The index that a device of ours has; any other is the library's to read.

    Raises:
        RuntimeError: there is no such device; the library would say so at the first tensor.
    """
    kind = device.type if isinstance(device, torch.device) else str(device).partition(":")[0]
    if kind != _backend.device:
        return device
    index = torch.device(device).index
    if index is None:
        index = torch.accelerator.current_device_index()
    count = _backend.C.devices.count()
    if index >= count:
        raise RuntimeError(f"{device}: there are {count} {_backend.device} devices, with indices from 0")
    return index
