"""Private pools of the caching allocator."""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from collections.abc import Iterator
from typing import Any

from torch_backplane import _backend
from torch_backplane.device._pluggable import Allocator, functions_of
from torch_backplane.device._snapshot import memory_snapshot
from torch_backplane.device._utils import Device, _checked

_pool_numbers = itertools.count(1)


def _release(pool: tuple[int, int], devices: list[int]) -> None:
    for index in devices:
        _backend.C.memory.release_pool(index, pool)
    if devices:
        _backend.C.memory.empty_pool(pool)
    _backend.C.memory.forget_pool_options(pool)


class MemPool:
    """A private pool of the caching allocator.

    Allocate from it with :func:`use_mem_pool`, or a graph's ``pool=pool.id``. Deleting it frees its unused memory.

    Args:
        allocator: the source of its segments, a :class:`PluggableAllocator`; None: as for the device.
        use_on_oom: allocations outside of the pool may use its free memory before they fail.
        no_split: segments of the pool are not split.
    """

    def __init__(self, allocator: Allocator | None = None, use_on_oom: bool = False, no_split: bool = False) -> None:
        functions = functions_of(allocator)
        self._allocator = allocator
        self.id = (0, next(_pool_numbers))
        self._devices: list[int] = []
        self._lock = threading.Lock()
        _backend.C.memory.set_pool_options(self.id, bool(use_on_oom), bool(no_split), *functions)
        weakref.finalize(self, _release, self.id, self._devices).atexit = False

    @property
    def allocator(self) -> Allocator | None:
        """The allocator that it was made with."""
        return self._allocator

    def _own(self, index: int) -> None:
        """Take this object's reference on a device, once; it is released with the object."""
        with self._lock:
            if index not in self._devices:
                _backend.C.memory.retain_pool(index, self.id)
                self._devices.append(index)

    def use_count(self) -> int:
        """The references to the pool: this object's, and one for each active :func:`use_mem_pool`."""
        return 1 + sum(_backend.C.memory.pool_references(index, self.id) - 1 for index in self._devices)

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """The pool's segments, as :func:`memory_snapshot` gives them.

        Args:
            include_traces: whether recorded stacks are in ``frames``.
        """
        return memory_snapshot(self.id, include_traces)


@contextlib.contextmanager
def use_mem_pool(pool: MemPool, device: Device = None) -> Iterator[None]:
    """Allocations of this thread on a device come from ``pool``; other threads are not affected.

    Args:
        pool: the pool.
        device: the device; None is the current one.
    """
    index = _checked(device)
    pool._own(index)
    _backend.C.memory.begin_pool(index, pool.id)
    try:
        yield
    finally:
        _backend.C.memory.end_pool(index, pool.id)
        _backend.C.memory.release_pool(index, pool.id)
