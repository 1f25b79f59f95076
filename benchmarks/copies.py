"""Bandwidth of blocking copies of pageable memory, over that of a plain CPU copy."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.row import DISCRETE, INLINE, Result, Row
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


ROWS = [
    Row("host to device, 64 MiB", _copy(True), budget=0.95, at_least=True, configurations=(INLINE, DISCRETE)),
    Row("device to host, 64 MiB", _copy(False), budget=0.95, at_least=True, configurations=(INLINE, DISCRETE)),
]
