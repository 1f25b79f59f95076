"""An operator without a kernel: the CPU's, on the device's memory."""

from __future__ import annotations

import timeit
from collections.abc import Callable
from statistics import median

import torch

from benchmarks.row import NO_KERNELS, NO_KERNELS_DISCRETE, Result, Row
from benchmarks.timing import ratio, wait

# The first that the CPU computes for the device.
CANDIDATES = ("floor", "trunc", "frac", "sinc", "digamma", "i0")


def _operator(device: str) -> str:
    from torch_backplane import fallback

    x = torch.rand(8, device=device)
    for name in CANDIDATES:
        before = sum(count.calls for count in fallback.report().counts)
        getattr(torch, name)(x)
        if sum(count.calls for count in fallback.report().counts) > before:
            return name
    raise RuntimeError(f"every one of {CANDIDATES} is native here: name another one in benchmarks/fallback.py")


def _fallback(count: int) -> Callable[[str], Result]:
    def measure(device: str) -> Result:
        x = torch.rand(count)
        statement = f"torch.{_operator(device)}(x)"
        names = [{"torch": torch, "x": x.to(where)} for where in (device, "cpu")]
        return ratio(statement, *names, after=wait)

    return measure


def _accounting(device: str) -> Result:
    """What the account adds to a call: the difference of two times, in rounds that alternate."""
    from torch_backplane import fallback

    x = torch.rand(8, device=device)
    timer = timeit.Timer(f"torch.{_operator(device)}(x)", globals={"torch": torch, "x": x})
    calls = 500
    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(201):
        for on, found in times.items():
            with fallback.accounting(on):
                found.append(timer.timeit(calls) / calls * 1e9)
    differences = [with_it - without for with_it, without in zip(times[True], times[False], strict=True)]
    return Result(best=min(times[True]) - min(times[False]), median=median(differences), unit="ns")


ROWS = [
    Row("fallback, zero copy, 8 floats", _fallback(8), budget=3.0, configurations=(NO_KERNELS,)),
    Row("fallback, zero copy, 1M floats", _fallback(1 << 20), budget=1.05, configurations=(NO_KERNELS,)),
    Row("fallback, its account, a call", _accounting, budget=100, configurations=(NO_KERNELS,)),
    Row("fallback, staged, 8 floats", _fallback(8), budget=3.3, configurations=(NO_KERNELS_DISCRETE,)),
    Row("fallback, staged, 1M floats", _fallback(1 << 20), configurations=(NO_KERNELS_DISCRETE,)),
]
