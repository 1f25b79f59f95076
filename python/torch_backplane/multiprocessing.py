"""Lets processes send each other tensors of the device: their memory is shared, as for ``torch.cuda``.

Torch's own reducers support the CPU and CUDA. Tensors, parameters and typed storages of every device are reduced to an
``UntypedStorage``; this module registers a reducer for that class, which handles the device's storages and passes all
others to torch's. The functions of ``torch.multiprocessing.reductions`` are replaced, too: for programs that call
``reduce_tensor`` and send its result themselves, and for ``init_reductions()``, which then registers ours again.
"""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any, NoReturn

import torch
from torch.multiprocessing import reductions

from torch_backplane import _backend, compat

Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


def install() -> None:
    """Register the reducers; repeating is a no-op."""
    reduce_event = compat.reduce_event_name()
    compat.replaces(reductions, "reduce_storage")(_reduce_storage)
    compat.replaces(reductions, "reduce_tensor")(_reduce_tensor)
    compat.replaces(reductions, reduce_event)(_reduce_event)
    ForkingPickler.register(torch.UntypedStorage, reductions.reduce_storage)
    from torch_backplane.device.streams import InterprocessEvent

    ForkingPickler.register(InterprocessEvent, getattr(reductions, reduce_event))


def _reduce_tensor(torchs: Callable[..., Any], tensor: torch.Tensor) -> Any:
    """With the handle in place of the storage, so that pickling it sends no values."""
    reduced = torchs(tensor)
    if reduced[0] is not reductions.rebuild_tensor or tensor.device.type != _backend.device:
        return reduced
    cls, typed, metadata = reduced[1]
    return _rebuild_tensor, (cls, typed.dtype, *reductions.reduce_storage(typed._untyped_storage), metadata)


def _rebuild_tensor(
    cls: type[Any], dtype: torch.dtype, rebuild: Callable[..., Any], args: tuple[Any, ...], metadata: tuple[Any, ...]
) -> Any:
    typed = torch.storage.TypedStorage(wrap_storage=rebuild(*args), dtype=dtype, _internal=True)
    return reductions.rebuild_tensor(cls, typed, metadata)


def _reduce_storage(torchs: Callable[..., Any], storage: torch.UntypedStorage) -> Any:
    if storage.device.type != _backend.device:
        return torchs(storage)
    whole = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    try:
        parts = _backend.C.ipc.share(whole)
    except RuntimeError as error:
        return _refused(error)
    key = _key(os.getpid(), parts)
    reductions.shared_cache[key] = reductions.StorageWeakRef(storage)
    return _rebuild_storage, (os.getpid(), _uuid(storage.device.index), storage.device.index, parts)


def _refused(error: RuntimeError) -> Reduced:
    """Raise; in a queue's thread, where nobody would see it, let the receiver raise instead of waiting for ever."""
    if threading.current_thread().name != "QueueFeederThread":
        raise error
    traceback.print_exc()
    return _raise_refusal, (str(error),)


def _raise_refusal(reason: str) -> NoReturn:
    raise RuntimeError(f"a tensor that another process has sent could not be shared: {reason}")


def _rebuild_storage(process: int, uuid: str, index: int, parts: tuple[Any, ...]) -> torch.UntypedStorage:
    key = _key(process, parts)
    if parts[2]:  # a storage without bytes is not shared
        known: torch.UntypedStorage | None = reductions.storage_from_cache(torch.UntypedStorage, key)
        if known is not None:
            _backend.C.ipc.release(parts)
            return known
    whole = _backend.C.ipc.open(_index_of(uuid, index), parts)
    storage = whole.untyped_storage()
    reductions.shared_cache[key] = reductions.StorageWeakRef(storage)
    return storage


def _key(process: int, parts: tuple[Any, ...]) -> tuple[str, int, bytes, int]:
    return (_backend.device, process, parts[0], parts[1])


def _reduce_event(torchs: Callable[..., Any], event: Any) -> Any:
    from torch_backplane.device.streams import InterprocessEvent

    if not isinstance(event, InterprocessEvent):
        return torchs(event)
    handle = event.ipc_handle()  # makes the event on a device, if it has none
    index = _backend.C.ipc.event_device(event._shared)
    return _rebuild_event, (_uuid(index), index, handle)


def _rebuild_event(uuid: str, index: int, handle: bytes) -> Any:
    from torch_backplane.device.streams import Event

    return Event.from_ipc_handle(torch.device(_backend.device, _index_of(uuid, index)), handle)


def _uuid(index: int) -> str:
    return str(_backend.C.devices.properties(index)["uuid"])


def _index_of(uuid: str, index: int) -> int:
    """The index that a device of another process has here: its visible devices may be others."""
    count = _backend.C.devices.count()
    if not uuid.strip("0-"):  # the driver has no uuids
        return index
    for here in range(count):
        if _uuid(here) == uuid:
            return here
    raise RuntimeError(
        f"a tensor was received on the device {uuid}, which is not visible in this process: let "
        f"{_backend.env_name('VISIBLE_DEVICES')} name it, or send tensor.cpu()"
    )
