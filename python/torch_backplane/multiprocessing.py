"""Lets ``torch.multiprocessing`` send tensors of the device: their memory is shared, as for ``torch.cuda``.

Torch's own reducer of storages knows the CPU and CUDA. Tensors, parameters and typed storages of every device come down
to an ``UntypedStorage``; this module registers a reducer for that class alone, which takes the device's storages and
gives all others to torch's.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions

from torch_backplane import _backend

Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


def install() -> None:
    """Register the reducers; repeating is a no-op."""
    ForkingPickler.register(torch.UntypedStorage, _reduce_storage)
    from torch_backplane.device.streams import InterprocessEvent

    ForkingPickler.register(InterprocessEvent, _reduce_event)


def _reduce_storage(storage: torch.UntypedStorage) -> Reduced:
    if storage.device.type != _backend.device:
        reduced: Reduced = reductions.reduce_storage(storage)
        return reduced
    whole = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    parts = _backend.C.ipc_share(whole)
    key = _key(os.getpid(), parts)
    reductions.shared_cache[key] = reductions.StorageWeakRef(storage)
    return _rebuild_storage, (os.getpid(), _uuid(storage.device.index), storage.device.index, parts)


def _rebuild_storage(process: int, uuid: str, index: int, parts: tuple[Any, ...]) -> torch.UntypedStorage:
    key = _key(process, parts)
    if parts[2]:  # a storage without bytes is not shared
        known: torch.UntypedStorage | None = reductions.storage_from_cache(torch.UntypedStorage, key)
        if known is not None:
            _backend.C.ipc_release(parts)
            return known
    whole: torch.Tensor = _backend.C.ipc_open(_index_of(uuid, index), parts)
    storage = whole.untyped_storage()
    reductions.shared_cache[key] = reductions.StorageWeakRef(storage)
    return storage


def _key(process: int, parts: tuple[Any, ...]) -> tuple[str, int, bytes, int]:
    return (_backend.device, process, parts[0], parts[1])


def _reduce_event(event: Any) -> Reduced:
    handle = event.ipc_handle()  # makes the event on a device, if it has none
    index = event.device.index
    return _rebuild_event, (_uuid(index), index, handle)


def _rebuild_event(uuid: str, index: int, handle: bytes) -> Any:
    from torch_backplane.device.streams import Event

    return Event.from_ipc_handle(torch.device(_backend.device, _index_of(uuid, index)), handle)


def _uuid(index: int) -> str:
    return str(_backend.C.device_properties(index)["uuid"])


def _index_of(uuid: str, index: int) -> int:
    """The index that a device of another process has here: its visible devices may be others."""
    count = _backend.C.device_count()
    if not uuid.strip("0-"):  # the driver does not tell
        return index
    for here in range(count):
        if _uuid(here) == uuid:
            return here
    raise RuntimeError(
        f"a tensor was received on the device {uuid}, which is not visible in this process: let "
        f"{_backend.env_name('VISIBLE_DEVICES')} name it, or send tensor.cpu()"
    )
