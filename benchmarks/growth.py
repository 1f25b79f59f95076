"""What a unit of work costs when there is ten times as much of it: 1 is linear growth, 10 quadratic.

Processor time of the calling thread, the best of several runs of each size in turn.
"""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from statistics import median

import torch

from benchmarks.row import ASYNC, COMPILED, INLINE, Configuration, Result, Row
from benchmarks.timing import wait

BUDGET = 1.5
"""10 log 10n / 10 log n is 1.25 from 10,000 to 100,000."""


def growth(work: Callable[[int], float], few: int, many: int, rounds: int = 3) -> Result:
    """Seconds that ``work`` gives of ``many`` over those of ``few``, each by its number."""
    work(few)
    pairs = [(work(many) / many, work(few) / few) for _ in range(rounds)]
    large, small = (min(side) for side in zip(*pairs, strict=True))
    return Result(large / small, median(one / other for one, other in pairs), device=large, cpu=small)


def timed(work: Callable[[], object]) -> float:
    """Seconds of the calling thread, without Python's collector, whose share grows with every object that lives."""
    gc.disable()
    before = time.thread_time()
    work()
    spent = time.thread_time() - before
    gc.enable()
    return spent


def _blocks(device: str) -> Result:
    """Live blocks of random sizes on 64 streams, freed in another order."""
    module = torch.get_device_module(device)
    streams = [module.Stream() for _ in range(64)]

    def work(count: int) -> float:
        numbers = random.Random(0)
        sizes = [512 * numbers.randint(1, 8) for _ in range(count)]
        order = numbers.sample(range(count), count)
        blocks: list[torch.Tensor | None] = []

        def allocate() -> None:
            for at, stream in enumerate(streams):
                with stream:
                    blocks.extend(torch.empty(size, dtype=torch.uint8, device=device) for size in sizes[at::64])

        def free() -> None:
            for at in order:
                blocks[at] = None

        spent = timed(allocate) + timed(free)
        module.empty_cache()
        return spent

    return growth(work, 10_000, 100_000)


def _events(device: str) -> Result:
    """Events that are recorded, waited for and queried while all of them live."""
    module = torch.get_device_module(device)
    streams = [module.Stream() for _ in range(8)]

    def work(count: int) -> float:
        def use() -> None:
            events = [module.Event() for _ in range(count)]
            for at, event in enumerate(events):
                event.record(streams[at % 8])
                streams[(at + 1) % 8].wait_event(event)
            while not all(event.query() for event in events):
                pass

        spent = timed(use)
        wait()
        return spent

    return growth(work, 1_000, 10_000)


def _snapshot(device: str) -> Result:
    """A snapshot of the allocator's history."""
    memory = torch.get_device_module(device).memory

    def work(count: int) -> float:
        memory._record_memory_history("all", context=None, stacks="python", max_entries=count)
        for _ in range(count // 2):
            torch.empty(8, device=device)
        before = time.thread_time()
        memory._snapshot()
        spent = time.thread_time() - before
        memory._record_memory_history(None)
        return spent

    return growth(work, 100_000, 1_000_000, rounds=1)


def _graph(device: str) -> Result:
    """A graph of as many nodes: capture, instantiation, a replay."""
    x = torch.zeros(8, device=device)

    def work(count: int) -> float:
        graph, side = torch.accelerator.Graph(), torch.get_device_module(device).Stream()

        def capture() -> None:
            with side, graph:
                for _ in range(count):
                    x.add_(1)

        spent = timed(capture)
        graph.replay()
        wait()
        return spent + timed(graph.replay) + timed(wait)

    return growth(work, 1_000, 10_000)


UNITS = """
import importlib, sys, time
from concurrent.futures import ThreadPoolExecutor
importlib.import_module({device!r})
from torch_backplane import _backend
text = "typedef struct {{ i64 n; }} P; BP_KERNEL(generated, 1, P, BP_GLOBAL f32* BP_RESTRICT out) {{ out[0] = %d.0f; }}"
make = _backend.C.modules.generated_kernel
units = [make("one", "", text.replace("%d", str(at)), [], 1, 1, 0, 1, False, []) for at in range({count})]
before = time.thread_time()
if {threads}:
    list(ThreadPoolExecutor({threads}).map(lambda unit: unit.prepare(0), units))
else:
    for unit in units:
        unit.prepare(0)
print(time.thread_time() - before)
"""


def _cache(device: str) -> Result:
    """Kernels of another process, which are read from the disk."""
    with tempfile.TemporaryDirectory() as cache:

        def work(count: int, threads: int = 0) -> float:
            environment = os.environ | {f"{device.upper()}_CACHE_DIR": cache}
            program = UNITS.format(device=device, count=count, threads=threads)
            done = subprocess.run([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, check=True)
            return float(done.stdout)

        work(1_000, os.cpu_count() or 1)
        return growth(work, 100, 1_000)


def _row(name: str, measure: Callable[[str], Result], configuration: Configuration) -> Row:
    return Row(f"growth, {name}", measure, budget=BUDGET, configurations=(configuration,))


ROWS = [
    _row("10,000 to 100,000 live blocks of 64 streams, one", _blocks, INLINE),
    _row("1,000 to 10,000 events, one", _events, ASYNC),
    _row("a snapshot of 100,000 to 1,000,000 events, one", _snapshot, INLINE),
    _row("100 to 1,000 compiled kernels, one from the disk", _cache, COMPILED),
    _row("a graph of 1,000 to 10,000 nodes, one", _graph, COMPILED),
]
