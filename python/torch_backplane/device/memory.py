"""Device and pinned memory: statistics, limits, raw allocations. Snapshots and private pools are in separate files."""

from __future__ import annotations

import collections
import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from torch_backplane import _backend
from torch_backplane.device._host_view import host_view
from torch_backplane.device._pluggable import PluggableAllocator, change_current_allocator, functions_of
from torch_backplane.device._pluggable import _get_current_allocator as _get_current_allocator
from torch_backplane.device._pools import MemPool, use_mem_pool
from torch_backplane.device._snapshot import (  # torch.cuda.memory has these, too
    _attach_out_of_memory_observer as _attach_out_of_memory_observer,
)
from torch_backplane.device._snapshot import _dump_snapshot as _dump_snapshot
from torch_backplane.device._snapshot import _record_memory_history as _record_memory_history
from torch_backplane.device._snapshot import _save_memory_usage as _save_memory_usage
from torch_backplane.device._snapshot import _save_segment_usage as _save_segment_usage
from torch_backplane.device._snapshot import _snapshot as _snapshot
from torch_backplane.device._snapshot import memory_snapshot
from torch_backplane.device._utils import Device, _checked, _get_device_index

__all__ = [
    "CUDAPluggableAllocator",
    "MemPool",
    "PluggableAllocator",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "caching_allocator_disabled",
    "caching_allocator_enable",
    "change_current_allocator",
    "device_memory_used",
    "empty_cache",
    "get_allocator_backend",
    "get_per_process_memory_fraction",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "host_view",
    "ipc_collect",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
    "use_mem_pool",
]


CUDAPluggableAllocator = PluggableAllocator
"""The name of :class:`PluggableAllocator` in ``torch.cuda.memory``."""


def _flatten(nested: dict[str, Any]) -> collections.OrderedDict[str, Any]:
    flat: dict[str, Any] = {}

    def add(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                name = "_".join(map(str, key)) if isinstance(key, tuple) else str(key)
                add(f"{prefix}.{name}" if prefix else name, inner)
        else:
            flat[prefix] = value

    add("", nested)
    return collections.OrderedDict(sorted(flat.items()))


# ---- statistics ------------------------------------------------------------------------------------------------------


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """The allocator's statistics of a device, nested. Touches no device: all are 0 before its first use.

    Args:
        device: the device; None is the current one.
    """
    index = _checked(device)
    stats: dict[str, Any] = torch._C._accelerator_getDeviceStats(index)
    return {**stats, **_backend.C.memory.more_stats(index)}


def memory_stats(device: Device = None) -> collections.OrderedDict[str, Any]:
    """The allocator's statistics of a device, under the keys of ``torch.cuda.memory_stats``.

    Args:
        device: the device; None is the current one.

    Returns:
        ``"<what>.<pool>.<metric>"`` to a number: what is ``allocation``, ``segment``, ``active``, ``inactive_split``
        (counts) and ``allocated_bytes``, ``reserved_bytes``, ``active_bytes``, ``inactive_split_bytes``,
        ``requested_bytes``; pool is ``all``, ``large_pool``, ``small_pool``; metric is ``current``, ``peak``,
        ``allocated``, ``freed``. Besides these ``num_alloc_retries``, ``num_ooms`` and others;
        ``num_oom_rejections`` counts the errors that the memory fraction caused, and
        ``reserved_bytes_by_private_pools.<id>`` is a pool's part of ``reserved_bytes``.
    """
    return _flatten(memory_stats_as_nested_dict(device))


def _stat(name: str, metric: str, device: Device) -> int:
    return int(memory_stats_as_nested_dict(device)[name]["all"][metric])


def memory_allocated(device: Device = None) -> int:
    """Bytes that tensors occupy on a device now. The allocator holds more: see :func:`memory_reserved`."""
    return _stat("allocated_bytes", "current", device)


def ipc_collect() -> None:
    """Free memory that was sent to other processes and is used by neither this process nor them.

    Sending a tensor does so, too.
    """
    _backend.C.ipc.collect()


def max_memory_allocated(device: Device = None) -> int:
    """The most bytes that tensors occupied on a device since the start, or since :func:`reset_peak_memory_stats`."""
    return _stat("allocated_bytes", "peak", device)


def memory_reserved(device: Device = None) -> int:
    """Bytes that the allocator holds of a device now, cached ones included."""
    return _stat("reserved_bytes", "current", device)


def max_memory_reserved(device: Device = None) -> int:
    """The most bytes that the allocator held of a device since the start, or since :func:`reset_peak_memory_stats`."""
    return _stat("reserved_bytes", "peak", device)


def reset_peak_memory_stats(device: Device = None) -> None:
    """Reset the peaks to the current values."""
    torch._C._accelerator_resetPeakStats(_checked(device))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Set the historical sums, ``allocated`` and ``freed``, and the event counts to 0."""
    torch._C._accelerator_resetAccumulatedStats(_checked(device))


def _deprecated(old: str, new: str) -> None:
    warnings.warn(f"torch.{_backend.device}.{old} is an old name of {new}", FutureWarning, stacklevel=3)


def memory_cached(device: Device = None) -> int:
    """Old name of :func:`memory_reserved`."""
    _deprecated("memory_cached", "memory_reserved")
    return memory_reserved(device)


def max_memory_cached(device: Device = None) -> int:
    """Old name of :func:`max_memory_reserved`."""
    _deprecated("max_memory_cached", "max_memory_reserved")
    return max_memory_reserved(device)


def reset_max_memory_allocated(device: Device = None) -> None:
    """Old name of :func:`reset_peak_memory_stats`, which resets all peaks."""
    _deprecated("reset_max_memory_allocated", "reset_peak_memory_stats")
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: Device = None) -> None:
    """Old name of :func:`reset_peak_memory_stats`, which resets all peaks."""
    _deprecated("reset_max_memory_cached", "reset_peak_memory_stats")
    reset_peak_memory_stats(device)


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """The pinned memory's statistics, nested; empty before the driver's first use."""
    if not _backend.C.devices.is_initialized():
        return {}
    return _backend.C.memory.host_stats()


def host_memory_stats() -> collections.OrderedDict[str, Any]:
    """The pinned memory's statistics, under the keys of ``torch.cuda.host_memory_stats``; times in microseconds.

    Returns:
        ``allocations`` and ``allocated_bytes`` (what the allocator holds), ``active_requests`` and
        ``active_bytes`` (what is in use), each with ``current``, ``peak``, ``allocated``, ``freed``;
        ``num_host_alloc``, ``num_host_free``; ``host_alloc_time`` and ``host_free_time``.
    """
    return _flatten(host_memory_stats_as_nested_dict())


def reset_accumulated_host_memory_stats() -> None:
    """Set the historical sums of the pinned memory to 0. A no-op before the driver's first use."""
    if _backend.C.devices.is_initialized():
        _backend.C.memory.reset_accumulated_host_stats()


def reset_peak_host_memory_stats() -> None:
    """Reset the peaks of the pinned memory. A no-op before the driver's first use."""
    if _backend.C.devices.is_initialized():
        _backend.C.memory.reset_peak_host_stats()


_ROWS = (
    ("Allocated memory", "allocated_bytes", True),
    ("Active memory", "active_bytes", True),
    ("Requested memory", "requested_bytes", True),
    ("Reserved memory", "reserved_bytes", True),
    ("Non-releasable memory", "inactive_split_bytes", True),
    ("Allocations", "allocation", False),
    ("Active allocations", "active", False),
    ("Reserved segments", "segment", False),
    ("Non-releasable allocs", "inactive_split", False),
)
_METRICS = ("current", "peak", "allocated", "freed")


def _human(value: int, is_bytes: bool) -> str:
    if not is_bytes:
        return f"{value:,}"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 10_000:
            return f"{value} {unit}"
        value //= 1024
    return f"{value} TiB"


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """A table of the allocator's statistics of a device, for printing.

    Args:
        device: the device; None is the current one.
        abbreviated: leave out the rows of the large and the small pool.
    """
    stats = memory_stats_as_nested_dict(device)
    title = f"{_backend.device}:{_get_device_index(device, optional=True)} memory"
    counts = f"out of memory: {stats['num_ooms']}   retries after freeing the cache: {stats['num_alloc_retries']}"
    lines = [title, counts, "", f"{'':<24}" + "".join(f"{name:>14}" for name in ("current", "peak", "total", "freed"))]
    pools = (
        (("all", ""),) if abbreviated else (("all", ""), ("large_pool", "  large pool"), ("small_pool", "  small pool"))
    )
    for label, key, is_bytes in _ROWS:
        for pool, indented in pools:
            values = "".join(f"{_human(stats[key][pool][metric], is_bytes):>14}" for metric in _METRICS)
            lines.append(f"{indented or label:<24}{values}")
    return "\n".join(lines) + "\n"


# ---- limits and the cache --------------------------------------------------------------------------------------------


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Free and total bytes of a device, by the driver, other processes included; otherwise as counted by this process.

    Args:
        device: the device; None is the current one.
    """
    free, total = torch._C._accelerator_getMemoryInfo(_checked(device))
    return free, total


def device_memory_used(device: Device = None) -> int:
    """Bytes of a device that are in use, as :func:`mem_get_info` counts."""
    free, total = mem_get_info(device)
    return total - free


def empty_cache() -> None:
    """Return cached memory to the driver. Waits for the devices' work, without the GIL; a no-op before first use."""
    if _backend.C.devices.is_initialized():
        _backend.C.memory.empty_cache()


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Limit what this process may reserve of a device; beyond it is ``torch.OutOfMemoryError``.

    Args:
        fraction: of the device's total memory, 0 to 1.
        device: the device; None is the current one.
    """
    if not isinstance(fraction, float):
        raise TypeError(f"the fraction must be a float, got {type(fraction).__name__}")
    if not 0 <= fraction <= 1:
        raise ValueError(f"the fraction must be between 0 and 1, got {fraction}")
    _backend.C.memory.set_fraction(fraction, _checked(device))


def get_per_process_memory_fraction(device: Device = None) -> float:
    """The limit that :func:`set_per_process_memory_fraction` set; 1.0 without one."""
    return _backend.C.memory.fraction(_checked(device))


def get_allocator_backend() -> str:
    """The source of memory: ``"native"``, the driver, or ``"pluggable"``, :func:`change_current_allocator`'s."""
    return "pluggable" if functions_of(_get_current_allocator()) != (0, 0) else "native"


def caching_allocator_enable(value: bool = True) -> None:
    """Cache freed device memory for later allocations, or not: without a cache, use of freed memory is easier to find.

    If off, cached memory is returned to the driver, each allocation is one of the driver's, and a free waits for the
    work of the block's stream and of recorded streams (``record_stream``), without releasing the GIL. During the
    capture of a graph, memory is returned after the capture. Private pools, graphs' and :class:`MemPool`, always cache.
    ``<DEVICE>_NO_MEMORY_CACHING=1`` starts a process with it off. For the whole process; any thread.
    """
    _backend.C.memory.set_caching(bool(value))


@contextlib.contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    """Context manager that disables caching, as :func:`caching_allocator_enable`, and restores the setting."""
    before = _backend.C.memory.caches()
    caching_allocator_enable(False)
    try:
        yield
    finally:
        caching_allocator_enable(before)


def _set_allocator_settings(settings: str) -> None:
    """Replace the allocator's settings: ``"key:value,key:value"``; others are reset to their defaults.

    Raises:
        ValueError: a setting is unknown (the known ones are listed), wrong, or not supported by this device.
    """
    _backend.C.memory.set_allocator_settings(settings)


# ---- raw memory ------------------------------------------------------------------------------------------------------


def caching_allocator_alloc(size: int, device: Device = None, stream: torch.Stream | int | None = None) -> int:
    """Allocate memory of the caching allocator, for use with other libraries.

    Args:
        size: bytes.
        device: the device; None is the current one.
        stream: the stream that owns it: a stream, or a native stream as an integer; None is the device's current
            stream.

    Returns:
        The device address; free it with :func:`caching_allocator_delete`.
    """
    index = _checked(device)
    if stream is None:
        stream_id = _backend.C.streams.current(index)[0]
    elif isinstance(stream, torch.Stream):
        stream_id = stream.stream_id
    elif isinstance(stream, int):
        stream_id = _backend.C.streams.external(stream, index)[0]
    else:
        raise TypeError(f"expected a stream, an int or None, got {type(stream).__name__}")
    return _backend.C.memory.raw_alloc(size, stream_id, index)


def caching_allocator_delete(mem_ptr: int) -> None:
    """Free memory of :func:`caching_allocator_alloc`.

    Args:
        mem_ptr: the address that it returned.
    """
    _backend.C.memory.raw_delete(mem_ptr)
