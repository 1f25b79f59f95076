"""Checks of device types for which kernels are registered; the renamed device is one of the valid types."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

import torch

from torch_backplane import _backend
from torch_backplane.ops import registry

DEFAULT = "default"
"""Instead of a device type: every device without a kernel for that device."""

DeviceTypes = str | torch.device | Iterable[str | torch.device] | None


def own() -> str:
    """The vendor's device type.

    Raises:
        RuntimeError: no backend is loaded.
    """
    if not _backend.loaded():
        raise RuntimeError("no backend is loaded: import the vendor's package first, for example `import mydevice`")
    return _backend.device


def device_types(given: DeviceTypes) -> list[str]:
    """Device types, each once, in the given order.

    Args:
        given: one or several; None is the vendor's device, ``"default"`` every device.

    Raises:
        ValueError: there is no such device type, or it has an index.
    """
    if given is None:
        return [own()]
    if isinstance(given, str | torch.device):
        given = [given]
    return list(dict.fromkeys(device_type(one) for one in given))


def device_type(given: str | torch.device) -> str:
    """One device type. ``"privateuseone"`` is the vendor's device.

    Raises:
        ValueError: there is no such device type, or it has an index.
    """
    if given == DEFAULT:
        return DEFAULT
    try:
        device = torch.device(given)
    except RuntimeError:
        raise ValueError(_unknown(str(given))) from None
    if device.index is not None:
        raise ValueError(f"a kernel serves every device of its type, and '{given}' has an index: write '{device.type}'")
    return device.type


def key_of(device: str) -> str:
    """The dispatch key under which a device's kernels are registered; ``"default"`` has an alias key."""
    return "CompositeExplicitAutograd" if device == DEFAULT else registry.dispatch_key(device)


def _unknown(given: str) -> str:
    valid = [*_valid(), DEFAULT]
    by_key = {key_of(name).lower(): name for name in ("cpu", "meta", "cuda", *filter(None, [_backend.device]))}
    near = [by_key[given.lower()]] if given.lower() in by_key else difflib.get_close_matches(given, valid, n=2)
    hint = f"did you mean {' or '.join(repr(name) for name in near)}? " if near else ""
    return f"there is no device type '{given}': {hint}Valid are {', '.join(valid)}"


def _valid() -> list[str]:
    """As torch lists them in its own error, but this device first and by its name."""
    try:
        torch.device("nosuchdevice")
    except RuntimeError as error:
        found = re.search(r"Expected one of (.+?) device type", str(error))
    names = found[1].split(", ") if found else ["cpu", "meta"]
    return [_backend.device or "privateuseone", *(name for name in names if name != "privateuseone")]
