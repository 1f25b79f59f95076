"""Devices: count, the current one, properties, first use, fork."""

from __future__ import annotations

import uuid
from functools import cache
from typing import Any, NamedTuple

import torch

from torch_backplane import _backend
from torch_backplane.device._utils import Device, _get_device_index, constant_in_graphs, current_index

__all__ = [
    "DeviceProperties",
    "DeviceUuid",
    "can_device_access_peer",
    "current_device",
    "device",
    "device_count",
    "device_of",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_sync_debug_mode",
    "init",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "set_device",
    "set_sync_debug_mode",
    "synchronize",
]


@constant_in_graphs
def is_available() -> bool:
    """Whether there is a driver and at least one visible device. Touches no device; safe before a fork."""
    return device_count() > 0


@constant_in_graphs
def device_count() -> int:
    """Number of visible devices; 0 without a driver.

    Touches no device; safe before a fork. ``<DEVICE>_VISIBLE_DEVICES`` is read each time, until a device is used.
    """
    return _backend.C.devices.count()


def current_device() -> int:
    """Index of the calling thread's current device; 0 at first. Touches no device."""
    return current_index()


def set_device(device: Device) -> None:
    """Make ``device`` the calling thread's current device. It counts as a use of the device, as with ``torch.cuda``.

    Prefer the :class:`device` context, or a device argument.

    Args:
        device: the device; a negative index is a no-op.
    """
    index = _get_device_index(device)
    if index >= 0:
        _backend.C.devices.set(index)


def _exchange_device(device: int) -> int:
    """Set the current device and return the previous one; -1 is a no-op that returns -1.

    Torch's compiled code calls it.
    """
    return -1 if device < 0 else _backend.C.devices.exchange(device)


def _maybe_exchange_device(device: int) -> int:
    """As :func:`_exchange_device`, at the same cost."""
    return -1 if device < 0 else _backend.C.devices.maybe_exchange(device)


class device:
    """Context manager that changes the current device.

    Args:
        device: the device within the context; None or a negative index is a no-op.

    Example::

        with torch.mydevice.device(1):
            x = torch.empty(3, device="mydevice")  # on mydevice:1
    """

    def __init__(self, device: Device) -> None:
        self.idx = _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(self, *exc_info: object) -> None:
        self.idx = _maybe_exchange_device(self.prev_idx)


_DeviceGuard = device  # the class of torch.cuda that takes only an index


class device_of(device):
    """Context manager that makes an object's device the current one.

    A no-op for an object that is not on this device type.

    Args:
        obj: a tensor or storage.
    """

    def __init__(self, obj: Any) -> None:
        here = getattr(obj, "device", None)
        super().__init__(here.index if here is not None and here.type == _backend.device else -1)


def synchronize(device: Device = None) -> None:
    """Wait until all work of all streams of a device is complete.

    Releases the GIL; Ctrl-C ends the wait, and the device's work goes on. A no-op before the device's first use.

    Args:
        device: the device; None is the current one.
    """
    index = _get_device_index(device, optional=True)
    if torch.compiler.is_dynamo_compiling():
        torch.accelerator.synchronize(torch.device(_backend.device, index))
    elif is_initialized():
        _backend.C.devices.synchronize(index)


class DeviceUuid(str):
    """A device's uuid: the text ``8-4-4-4-12``, with its 16 bytes as an attribute, as ``torch.cuda``'s."""

    __slots__ = ()

    @property
    def bytes(self) -> list[int]:
        """The 16 bytes, each a number."""
        return list(uuid.UUID(self).bytes)


class DeviceProperties(NamedTuple):
    """What the driver reports of a device. Sizes in bytes; 0 means unknown, or no limit.

    The names are those of ``torch.cuda.get_device_properties`` where it has them.
    """

    name: str
    vendor: str
    driver_version: str
    bus_id: str
    uuid: DeviceUuid
    total_memory: int
    max_allocation: int
    major: int
    minor: int
    multi_processor_count: int
    max_threads_per_multi_processor: int
    warp_size: int
    clock_rate: int
    """kHz"""
    alignment: int
    copy_alignment: int
    stream_limit: int
    priority_least: int
    priority_greatest: int
    dtypes: tuple[torch.dtype, ...]
    """What the device computes in natively; empty if the driver does not report it.

    Storage, copies and the fallback work for every dtype.
    """

    def __repr__(self) -> str:
        return (
            f"DeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory // 2**20}MB, multi_processor_count={self.multi_processor_count}, "
            f"uuid={self.uuid})"
        )


def _ask_properties(index: int) -> DeviceProperties:
    answers = _backend.C.devices.properties(index)
    answers["uuid"] = DeviceUuid(answers["uuid"])
    answers["dtypes"] = tuple(_backend.C.devices.dtypes(index))
    return DeviceProperties(**{field: answers[field] for field in DeviceProperties._fields})


_properties = cache(_ask_properties)


@constant_in_graphs
def _properties_of(index: int) -> DeviceProperties:
    # Until the driver is opened, what is visible may change.
    return _properties(index) if is_initialized() else _ask_properties(index)


def get_device_properties(device: Device = None) -> DeviceProperties:
    """Properties of a device. Touches no device: the driver needs no context for it.

    Args:
        device: the device; None is the current one.
    """
    return _properties_of(_get_device_index(device, optional=True))


def get_device_name(device: Device = None) -> str:
    """Name of a device, as :func:`get_device_properties` has it."""
    return get_device_properties(device).name


def get_device_capability(device: Device = None) -> tuple[int, int]:
    """The (major, minor) capability of the device, defined by the vendor."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def can_device_access_peer(device: Device, peer_device: Device) -> bool:
    """Whether work on ``device`` can read and write memory of ``peer_device`` directly.

    Copies between devices work in any case.

    Args:
        device: the device that accesses.
        peer_device: the device whose memory is accessed.
    """
    return _can_access_peer(_get_device_index(device, optional=True), _get_device_index(peer_device))


@constant_in_graphs
def _can_access_peer(index: int, peer_index: int) -> bool:
    return _backend.C.devices.can_access_peer(index, peer_index)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 tensors compute on the current device.

    Args:
        including_emulation: count the CPU fallback, which supports every dtype; False: only the hardware.
    """
    if not is_available():
        return False
    return including_emulation or torch.bfloat16 in get_device_properties().dtypes


def init() -> None:
    """Open the driver now; any use of a device does so, too.

    Raises if there is no driver or no device, and in a forked child.
    """
    _backend.C.devices.init()


def _lazy_init() -> None:
    """What torch calls before it uses a device; the same as :func:`init`."""
    init()


def _is_compiled() -> bool:
    """Whether torch has code for this device: it has, since this module is here."""
    return True


def _get_device(device: Device) -> torch.device:
    """A device argument as ``torch.device``; an index is one of this device."""
    return torch.device(_backend.device, device) if isinstance(device, int) else torch.device(device or _backend.device)


def is_initialized() -> bool:
    """Whether this process has used a device. Touches none."""
    return _backend.C.devices.is_initialized()


def _is_in_bad_fork() -> bool:
    """Whether this is a child that was forked after its parent had used a device: using one then raises."""
    return _backend.C.devices.in_bad_fork()


_SYNC_DEBUG_MODES = ("default", "warn", "error")


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Report calls that make the host wait for the device, which keep a program from queuing work ahead.

    Reported, by the operator's name, are values that are read (``.item()``, ``nonzero``), copies that the host waits
    for, operators that run on the CPU (docs/fallback.md) and ``synchronize()`` of a stream. Explicit waits for the
    device or an event are not reported, nor are collectives.

    Args:
        debug_mode: 0 or ``"default"``: nothing; 1 or ``"warn"``: a UserWarning each time; 2 or ``"error"``: a
            RuntimeError before the wait. It holds for all threads.
    """
    if isinstance(debug_mode, str):
        if debug_mode not in _SYNC_DEBUG_MODES:
            raise RuntimeError(f"debug_mode: expected one of {', '.join(_SYNC_DEBUG_MODES)}; got {debug_mode!r}")
        debug_mode = _SYNC_DEBUG_MODES.index(debug_mode)
    if debug_mode not in (0, 1, 2):
        raise RuntimeError(f"debug_mode: expected 0, 1 or 2, got {debug_mode!r}")
    _backend.C.devices.set_sync_debug_mode(int(debug_mode))


def get_sync_debug_mode() -> int:
    """The mode that :func:`set_sync_debug_mode` set, as a number; 0 at first."""
    return _backend.C.devices.sync_debug_mode()
