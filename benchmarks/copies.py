"""Bandwidth of blocking copies of pageable memory, over that of a plain CPU copy; what takes the place of a copy."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import numpy as np
import torch

from benchmarks.row import ASYNC, DISCRETE, INLINE, Result, Row
from benchmarks.timing import ratio

BYTES = 64 << 20


def _copy(to_device: bool) -> Callable[[str], Result]:
    def measure(device: str) -> Result:
        host, other = (torch.ones(BYTES, dtype=torch.uint8) for _ in range(2))
        there = host.to(device)
        ours = {"target": there, "source": host} if to_device else {"target": other, "source": there}
        theirs = {"target": other, "source": host}
        return ratio("target.copy_(source)", ours, theirs, round_s=0, rounds=81, inverse=True)

    return measure


def _milliseconds(use: Callable[[torch.Tensor], object]) -> Callable[[str], Result]:
    def measure(device: str) -> Result:
        there = torch.ones(BYTES, dtype=torch.uint8, device=device)
        torch.accelerator.synchronize()
        times = []
        for _ in range(21):
            start = time.perf_counter()
            use(there)
            times.append((time.perf_counter() - start) * 1e3)
        return Result(best=min(times), median=median(times), unit="ms", device=min(times) / 1e3)

    return measure


def _numpy(there: torch.Tensor) -> None:
    np.from_dlpack(there, device="cpu")


def _view(there: torch.Tensor) -> None:
    with torch.get_device_module(there.device).host_view(there):
        pass


ROWS = [
    Row("host to device, 64 MiB", _copy(True), budget=0.95, at_least=True, configurations=(INLINE, DISCRETE)),
    Row("device to host, 64 MiB", _copy(False), budget=0.95, at_least=True, configurations=(INLINE, DISCRETE)),
    Row('np.from_dlpack(x, device="cpu"), 64 MiB', _milliseconds(_numpy), budget=1.0, configurations=(INLINE, ASYNC)),
    Row("host_view, 64 MiB", _milliseconds(_view), budget=1.0, configurations=(INLINE, ASYNC)),
]
