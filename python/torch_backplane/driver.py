"""The driver of the loaded backend: its path, what it offers, and how to shut it down."""

from __future__ import annotations

from dataclasses import dataclass

from torch_backplane import _backend

__all__ = ["DriverInfo", "close", "info"]


@dataclass(frozen=True)
class DriverInfo:
    """What was loaded as the driver."""

    path: str
    """The shared object."""
    shims: tuple[str, ...]
    """The shim drivers around it, outermost first; with ``emulate`` if the core had to complete the driver."""
    options: str
    """The option string, as given."""
    capabilities: frozenset[str]
    """What it offers beyond the minimum; ``torch_backplane.testing.known_capabilities()`` explains each."""
    refusal: str
    """Why there is no driver; empty if there is one."""


def info() -> DriverInfo:
    """Describe the driver. Loads it if nothing has yet; touches no device.

    Raises:
        RuntimeError: ``<DEVICE>_DRIVER``, ``_SHIMS`` or ``_OPTIONS`` name what cannot be loaded.
    """
    _backend.C.driver.load()
    answer = _backend.C.driver.info()
    return DriverInfo(
        path=answer["path"],
        shims=tuple(filter(None, answer["shims"].split(","))),
        options=answer["options"],
        capabilities=frozenset(_backend.C.driver.capabilities()),
        refusal=answer["refusal"],
    )


def close() -> None:
    """Shut the driver down: wait for the devices, give their memory back, end the driver's threads.

    For leak checks and embedding programs; a process that ends needs no call. Afterwards every use of a device raises
    in this process. Tensors that are still alive keep addresses that no longer exist: delete them before.
    """
    _backend.C.driver.close()
