"""What compiled kernels cost a program's first step, and what they save where the host cannot see the device's memory.

Each figure is of a separate process, which takes steps of the demo's GPT. The first step is given in seconds of
processor time, those of the compilers that it started with it. The first loss comes before the optimizer's first step,
so two of the loop's steps are called the first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.row import HOST, Result, Row

# Variables of the environment, by their names without the device's.
COMPILED = {"KERNELS": "strict", "OPTIONS": "kind=unified,stream=inline"}
CARD = "kind=discrete,stream=async,link=16GiB"  # as a card in a PCIe 4.0 slot

PROGRAM = """
import json, sys, time, resource, torch
sys.path[:0] = [{root!r}, {demo!r}]
from benchmarks.gpt_step import endless
from torch_backplane import compiler
torch.set_num_threads(1)
steps = endless({device!r}, compiled={compiled})
def spent():
    of = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in of)
def step(clock, count=1):
    before = clock()
    for _ in range(count):
        next(steps)
    return clock() - before
first = step(spent, 2)
warm = min(step(spent, 2) for _ in range(3))
elapsed = min(step(time.perf_counter) for _ in range(5))
print(json.dumps(dict(first=first, warm=warm, elapsed=elapsed, compiled=compiler.counts().compiled)))
"""


def run(device: str, where: str, cache: str, by_compile: bool = False, **settings: str) -> dict[str, Any]:
    """A process that trains on ``where`` with the kernels in ``cache``, eager or by torch.compile.

    Returns:
        Seconds of processor time of the ``first`` two steps and of two that came later (``warm``), how long a later one
        took (``elapsed``), and how many kernels were ``compiled``.
    """
    root = Path(__file__).resolve().parents[1]
    demo = str(root / "examples" / "demo")
    program = PROGRAM.format(root=str(root), demo=demo, device=where, compiled=by_compile)
    variables = {**COMPILED, "CACHE_DIR": cache, **settings}
    environment = os.environ | {f"{device.upper()}_{name}": value for name, value in variables.items()}
    environment["TORCHINDUCTOR_CACHE_DIR"] = cache
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the step failed: {done.stderr[-1000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def cold(device: str) -> list[dict[str, Any]]:
    """Processes that compile everything."""
    found = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as cache:
            found.append(run(device, device, cache))
    return found


def in_seconds(seconds: list[float]) -> Result:
    """The best and the median of several runs."""
    return Result(min(seconds), median(seconds), unit="s")


def first_step(device: str) -> Result:
    """The first step with nothing in the cache."""
    return in_seconds([one["first"] for one in cold(device)])


def each_kernel(device: str) -> Result:
    """What one of its kernels takes."""
    return in_seconds([(one["first"] - one["warm"]) / one["compiled"] for one in cold(device)])


def from_cache(device: str) -> Result:
    """What the first step takes over a later one if every kernel lies in the cache, beyond what it takes on the CPU."""
    seconds = []
    with tempfile.TemporaryDirectory() as cache:
        run(device, device, cache)
        for _ in range(3):
            ours, theirs = (run(device, where, cache) for where in (device, "cpu"))
            if ours["compiled"]:
                raise RuntimeError(f"{ours['compiled']} kernels were compiled that lie in the cache")
            seconds.append((ours["first"] - ours["warm"]) - (theirs["first"] - theirs["warm"]))
    return in_seconds(seconds)


def over_the_fallback(device: str) -> Result:
    """A step by compiled kernels over the same by the CPU's, on memory that the host reaches by copies alone."""
    pairs = []
    with tempfile.TemporaryDirectory() as cache:
        for _ in range(3):
            times = [
                run(device, device, cache, OPTIONS=CARD, KERNELS=policy)["elapsed"] for policy in ("strict", "off")
            ]
            pairs.append((times[0], times[1]))
    compiled, staged = (min(times) for times in zip(*pairs, strict=True))
    return Result(compiled / staged, median(one / other for one, other in pairs), device=compiled, cpu=staged)


def _compiled_first(device: str, warm: bool) -> Result:
    """The first step by torch.compile over the same on the CPU."""
    pairs = []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
            for _ in range(1 + warm):
                times = [
                    run(device, where, cache, by_compile=True)["first"]
                    for where, cache in ((device, ours), ("cpu", theirs))
                ]
            pairs.append((times[0], times[1]))
    first, other = (min(times) for times in zip(*pairs, strict=True))
    return Result(first / other, median(one / two for one, two in pairs), device=first, cpu=other)


def _row(name: str, measure: Callable[[str], Result], budget: float) -> Row:
    return Row(f"compiled, GPT training step, {name}", measure, budget=budget, configurations=(HOST,))


ROWS = [
    _row("the first, nothing in the cache", first_step, 15),
    _row("each kernel of it", each_kernel, 1),
    _row("the first, all in the cache, over the CPU's first", from_cache, 0.3),
    _row("on a card, over the fallback", over_the_fallback, 0.5),
    Row(
        "torch.compile, GPT, first step, nothing in a cache",
        lambda d: _compiled_first(d, warm=False),
        1.5,
        configurations=(HOST,),
    ),
    Row(
        "torch.compile, GPT, first step of a second process",
        lambda d: _compiled_first(d, warm=True),
        1.2,
        configurations=(HOST,),
    ),
]
