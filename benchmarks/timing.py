"""Ratios that survive a noisy machine: both sides in one process, in short rounds that alternate."""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from benchmarks.row import Result


def wait() -> None:
    """Until the accelerator, if there is one, has done what was queued."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def ratio(
    statement: str,
    device: dict[str, Any],
    cpu: dict[str, Any],
    *,
    cpu_statement: str = "",
    after: Callable[[], None] = lambda: None,
    round_s: float = 0.02,
    rounds: int = 41,
    inverse: bool = False,
    timer: Callable[[], float] = time.perf_counter,
) -> Result:
    """Time of a statement on the device over its time on the CPU.

    Args:
        statement: Python source; text, because the call of a function would be part of so short a time.
        device: the statement's names, for the device.
        cpu: the statement's names, for the CPU.
        cpu_statement: if the CPU's side is another statement.
        after: runs after each of the device's rounds, not timed: waits for what an asynchronous device has queued.
        round_s: about how long one round of one side takes, in seconds; at least one call.
        rounds: of each side. One round is one call and warms nothing up: for a statement that takes a minute.
        inverse: give CPU over device, as for bandwidths.
        timer: the clock; ``time.process_time`` where others use the processors, and the caller does all of the work.
    """
    ours = timeit.Timer(statement, timer=timer, globals=device)
    theirs = timeit.Timer(cpu_statement or statement, timer=timer, globals=cpu)
    calls = []
    for side in (ours, theirs) if rounds > 1 else ():  # also warms both up
        side.timeit(3)
        after()
        calls.append(max(1, min(2000, int(round_s / max(side.timeit(3) / 3, 1e-8)))))
        after()
    calls = calls or [1, 1]
    device_times, cpu_times = [], []
    for _ in range(rounds):
        cpu_times.append(theirs.timeit(calls[1]) / calls[1])
        device_times.append(ours.timeit(calls[0]) / calls[0])
        after()
    pairs = [(d, c) if not inverse else (c, d) for d, c in zip(device_times, cpu_times, strict=True)]
    best = min(cpu_times) / min(device_times) if inverse else min(device_times) / min(cpu_times)
    return Result(best=best, median=median(a / b for a, b in pairs), device=min(device_times), cpu=min(cpu_times))
