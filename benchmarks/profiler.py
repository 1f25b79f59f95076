"""What a profile of the device adds to an operator, beside one of the CPU alone; and what there is without one."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.row import ASYNC, INLINE, Result, Row
from benchmarks.timing import wait

CALLS = 2000


def _operator(device: str) -> Callable[[], object]:
    x = torch.ones(8, device=device)
    return lambda: x.fill_(1)


def _on(device: str) -> Result:
    """The difference of two times, in rounds that alternate: of the program alone, not of the work at the end."""
    call = _operator(device)
    activities = {True: [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1], False: [ProfilerActivity.CPU]}
    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(21):
        for on, found in times.items():
            with profile(activities=activities[on], acc_events=False):
                for _ in range(50):
                    call()
                begin = time.perf_counter()
                for _ in range(CALLS):
                    call()
                found.append((time.perf_counter() - begin) / CALLS * 1e6)
                wait()
    differences = [with_it - without for with_it, without in zip(times[True], times[False], strict=True)]
    return Result(best=min(times[True]) - min(times[False]), median=median(differences), unit="us")


def _off(device: str) -> Result:
    module: Any = importlib.import_module(f"torch.{device}.profiler")
    call = _operator(device)
    before = module.activity_records()
    for _ in range(CALLS):
        call()
    wait()
    made = module.activity_records() - before
    return Result(best=made, median=made, unit="records")


ROWS = [
    Row("profile, on, over that of the CPU, an operator", _on, budget=5.0, configurations=(INLINE, ASYNC)),
    Row("profile, off, records of 2000 operators", _off, budget=0.0, configurations=(INLINE,)),
]
