"""Collectives of two ranks against Gloo's on CPU tensors: medians of ten runs each, by turns, in the same processes.

Two ranks, their threads and Gloo's want four processors; with fewer, rows are printed and not judged.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch

from benchmarks.row import ASYNC, DISCRETE, INLINE, Configuration, Result, Row
from benchmarks.timing import wait

RANKS, RUNS = 2, 10
IS_JUDGED = (os.cpu_count() or 1) >= 2 * RANKS
MIB = 1 << 20


def _all_reduce(dist: Any, where: str, size: int) -> Callable[[], None]:
    tensor = torch.ones(size // 4, device=where)
    return lambda: dist.all_reduce(tensor)


def _all_gather(dist: Any, where: str, size: int) -> Callable[[], None]:
    output = torch.empty(size // 4, device=where)
    own = torch.ones(size // 4 // RANKS, device=where)
    return lambda: dist.all_gather_into_tensor(output, own)


def _ddp_step(dist: Any, where: str, size: int) -> Callable[[], None]:
    from benchmarks.gpt_step import endless

    steps = endless(where, wrap=torch.nn.parallel.DistributedDataParallel)

    def step() -> None:
        next(steps)

    return step


def _call(dist: Any, where: str, size: int) -> Callable[[], None]:
    """A call of the backend alone, on an empty queue."""
    tensor = torch.ones(size // 4, device=where)
    backend = dist.group.WORLD._get_backend(torch.device(where))
    return lambda: backend.allreduce([tensor], dist.AllreduceOptions())


def _timed(dist: Any, one: Callable[[], None], calls: int, after: Callable[[], None]) -> float:
    """Seconds a call; without `after`, of the call until it returns."""
    dist.barrier()
    spent = 0.0
    for _ in range(calls):
        begin = time.perf_counter()
        one()
        spent += time.perf_counter() - begin
        begin = time.perf_counter()
        after()
        spent += time.perf_counter() - begin if after is wait else 0.0
    return spent / calls


def _rank(rank: int, device: str, engine: str, make: Any, size: int, calls: int, host_alone: bool, store: str) -> None:
    import torch.distributed as dist

    os.environ[f"{device.upper()}_DIST"] = engine
    torch.set_num_threads(1)
    rendezvous = f"file://{store}/rendezvous"
    dist.init_process_group(init_method=rendezvous, rank=rank, world_size=RANKS, timeout=timedelta(minutes=2))
    after = (lambda: (wait(), dist.barrier())) if host_alone else wait  # type: ignore[func-returns-value]
    sides = {where: make(dist, where, size) for where in ((device,) if host_alone else (device, "cpu"))}
    times: dict[str, list[float]] = {where: [] for where in sides}
    for run in range(RUNS + 2):
        for where, one in sides.items():
            taken = _timed(dist, one, calls, after)
            if run >= 2:  # the first two warm up
                times[where].append(taken)
    if rank == 0:
        torch.save(times, f"{store}/times")
    dist.destroy_process_group()


def _times(device: str, engine: str, make: Any, size: int, calls: int, host_alone: bool = False) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as store:
        arguments = (device, engine, make, size, calls, host_alone, store)
        torch.multiprocessing.spawn(_rank, arguments, RANKS)  # type: ignore[no-untyped-call]
        return {where: statistics.median(taken) for where, taken in torch.load(f"{store}/times").items()}


def _ratio(engine: str, make: Any, size: int, calls: int = 1) -> Callable[[str], Result]:
    def measure(device: str) -> Result:
        of = _times(device, engine, make, size, calls)
        ratio = of[device] / of["cpu"]
        return Result(best=ratio, median=ratio, device=of[device], cpu=of["cpu"])

    return measure


def _above(engine: str, make: Any, size: int, calls: int) -> Callable[[str], Result]:
    def measure(device: str) -> Result:
        of = _times(device, engine, make, size, calls)
        above = (of[device] - of["cpu"]) * 1e3
        return Result(best=above, median=above, unit="ms", device=of[device], cpu=of["cpu"])

    return measure


def _host_time(engine: str) -> Callable[[str], Result]:
    def measure(device: str) -> Result:
        us = _times(device, engine, _call, 32, 100, host_alone=True)[device] * 1e6
        return Result(best=us, median=us, unit="us")

    return measure


def _row(name: str, measure: Callable[[str], Result], budget: float, *where: Configuration) -> Row:
    return Row(name, measure, budget if IS_JUDGED else None, configurations=where)


ROWS = [
    _row("all_reduce of 64 MiB, staged", _ratio("staged", _all_reduce, 64 * MIB), 1.25, DISCRETE),
    _row("all_reduce of 64 MiB, zero copy", _ratio("staged", _all_reduce, 64 * MIB), 1.10, INLINE),
    _row("all_gather_into_tensor of 64 MiB, staged", _ratio("staged", _all_gather, 64 * MIB), 1.25, DISCRETE),
    _row("all_gather_into_tensor of 64 MiB, zero copy", _ratio("staged", _all_gather, 64 * MIB), 1.10, INLINE),
    _row("all_reduce of 4 bytes, staged, above Gloo", _above("staged", _all_reduce, 4, 50), 0.15, DISCRETE, INLINE),
    _row("all_reduce of 64 MiB, native", _ratio("native", _all_reduce, 64 * MIB), 0.5, ASYNC),
    _row("a native call on an empty queue, host", _host_time("native"), 15.0, ASYNC),
    _row("DDP step of the GPT, 2 ranks, staged", _ratio("staged", _ddp_step, 0, 3), 1.25, INLINE),
    _row("DDP step of the GPT, 2 ranks, native", _ratio("native", _ddp_step, 0, 3), 1.25, INLINE),
]
