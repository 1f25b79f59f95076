"""The device that programs run on: its streams, what it holds, and memory that runs out on request."""

from __future__ import annotations

from typing import Any

import torch

from fuzz.groups import Stream
from torch_backplane import compat, compiler

MOST_PINNED = 32
"""Blocks that the core may keep for its own use, such as staging: what leaks grows beyond that."""


class Machine:
    """The device's streams and what it holds between programs. One a process."""

    def __init__(self, name: str) -> None:
        self.module = torch.get_device_module(name)
        self.compiles = compiler.is_available() and compiler.policy() != "off"
        self.places = {0: f"{name}:0", 1: f"{name}:1", "host": "cpu", "pinned": "pinned"}
        self.streams: dict[Stream, Any] = {}
        for index in (0, 1):
            module = self.module
            made = [module.default_stream(index), module.Stream(index), module.Stream(index, priority=-1)]
            self.streams.update({(index, number): stream for number, stream in enumerate(made)})
        self.settle()
        self.at_rest = self.held()

    def held(self) -> tuple[list[int], int]:
        """Bytes of each device, and blocks of pinned memory, that somebody holds."""
        pinned = self.module.host_memory_stats()["active_requests.current"]
        return [self.module.memory_allocated(0), self.module.memory_allocated(1)], pinned

    def settle(self) -> None:
        """Wait for everything, and take back what other streams had used."""
        for index in (0, 1):
            self.module.synchronize(index)
        self.module.empty_cache()
        compat.empty_host_cache()

    def leaks(self) -> str:
        """What is held between two programs and should not be; empty if nothing is."""
        if self.held() == self.at_rest:
            return ""
        self.settle()
        (device, pinned), (device_before, _) = self.held(), self.at_rest
        if device != device_before:
            return f"bytes of each device before {device_before}, afterwards {device}"
        if pinned > MOST_PINNED:
            return f"{pinned} blocks of pinned memory are held"
        return ""


class Shortage:
    """The allocator holds some small free blocks on the current stream, and cannot get more."""

    def __init__(self, module: Any, place: str, room: int) -> None:
        self.module, self.place, self.room = module, place, room
        self.pool = module.MemPool()

    def __enter__(self) -> None:
        self.inside = self.module.use_mem_pool(self.pool, device=self.place)
        self.inside.__enter__()
        mebi = 1 << 20  # a segment of small blocks has two
        sizes = [mebi, mebi - 512 * self.room]
        self.plugs = [torch.empty(size, dtype=torch.uint8, device=self.place) for size in sizes]
        self.module.set_per_process_memory_fraction(1e-9, device=self.place)

    def __exit__(self, *exc_info: object) -> None:
        self.module.set_per_process_memory_fraction(1.0, device=self.place)
        self.inside.__exit__(*exc_info)
        self.plugs.clear()
