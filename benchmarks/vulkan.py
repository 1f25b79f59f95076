"""The Vulkan driver on Mesa's lavapipe beside the OpenCL driver on PoCL: two devices of one processor, two compilers.

``make vulkan opencl`` builds the drivers; without them, or without lavapipe or PoCL, the rows show the error. Each
round starts a process of each driver, so that a change of the machine's load meets both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from statistics import median

from benchmarks.row import HOST, Result, Row

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 3

PROGRAM = """
import json, sys, time, torch
sys.path.insert(0, {root!r})
from benchmarks.gpt_step import endless
from benchmarks.timing import wait
x, y, m, k = (torch.randn(*size, device={device!r}) for size in ((1 << 20,), (1 << 20,), (1024, 1024), (512, 512)))
steps = endless({device!r})
few = torch.randn(8, device={device!r})
def queued():
    wait()
    before = time.perf_counter()
    for _ in range(100):
        few.add_(few)
    return (time.perf_counter() - before) / 100
def elapsed(work):
    wait()
    before = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - before
work = {{
    "GPT training step": lambda: next(steps),
    "add, 1M": lambda: torch.add(x, y),
    "softmax, 1024 x 1024": lambda: m.softmax(1),
    "matmul, 512": lambda: k @ k,
}}
for one in work.values():
    one(), one()
found = {{name: min(elapsed(one) for _ in range(9)) for name, one in work.items()}}
print(json.dumps(found | {{"a call": min(queued() for _ in range(9))}}))
"""


def _run(device: str, driver: str, options: str) -> dict[str, float]:
    """Seconds of each kind of work, the best of several."""
    library = ROOT / "build" / "demo" / driver / f"lib{driver}_driver.so"
    variables = {"DRIVER": str(library), "OPTIONS": options, "KERNELS": "strict"}
    environment = os.environ | {f"{device.upper()}_{name}": value for name, value in variables.items()}
    program = PROGRAM.format(root=str(ROOT), device=device)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{driver} (make {driver}): {done.stderr[-1000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


@lru_cache
def _rounds(device: str) -> list[tuple[dict[str, float], dict[str, float]]]:
    """Lavapipe and PoCL in turn."""
    return [(_run(device, "vulkan", "device_type=cpu"), _run(device, "opencl", "")) for _ in range(ROUNDS)]


def _ratio(name: str) -> Callable[[str], Result]:
    def measure(device: str) -> Result:
        rounds = _rounds(device)
        ratios = [vulkan[name] / opencl[name] for vulkan, opencl in rounds]
        best = [min(one[name] for one in side) for side in zip(*rounds, strict=True)]
        return Result(best[0] / best[1], median(ratios), device=best[0], cpu=best[1])

    return measure


def _call(device: str) -> Result:
    calls = [1e6 * vulkan["a call"] for vulkan, _ in _rounds(device)]
    return Result(min(calls), median(calls), unit="us")


WORK = ("GPT training step", "add, 1M", "softmax, 1024 x 1024", "matmul, 512")
ROWS = [
    *(Row(f"lavapipe over PoCL, {name}", _ratio(name), configurations=(HOST,)) for name in WORK),
    Row("lavapipe, a call of a kernel of 8 floats, calling thread", _call, budget=10, configurations=(HOST,)),
]
