"""Kernels of Triton, against the portable kernels that compute the same; what a launch and autotuning cost.

The kernels are those of tests/triton_kernels. Without Triton, and for autotuning without fla, the rows say so.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import torch
from torch.nn import functional

from benchmarks.row import COMPILED, COMPILED_ASYNC, HOST, Result, Row
from benchmarks.timing import ratio, wait

ROOT = Path(__file__).resolve().parents[1]
Call = Callable[[], Any]
Case = tuple[Call, torch.Tensor, Call]
"""A launch of Triton's kernel, what it writes, and a call of the portable kernel."""


def _require(name: str, package: str) -> None:
    if importlib.util.find_spec(name) is None:
        raise RuntimeError(f"{package.partition('=')[0]} is not installed: pip install {package}")


@cache
def _kernels() -> ModuleType:
    _require("triton", "triton==3.7.1")
    spec = importlib.util.spec_from_file_location("language", ROOT / "tests" / "triton_kernels" / "language.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _random(device: str, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).to(device) for shape in shapes]


def _softmax(device: str, kernels: ModuleType) -> list[Case]:
    (x,) = _random(device, (1024, 1024))
    out = torch.empty_like(x)
    return [(lambda: kernels.softmax[(1024,)](out, x, 1024, 1024, 1024, BLOCK=1024), out, lambda: x.softmax(1))]


def _layer_norm(device: str, kernels: ModuleType) -> list[Case]:
    x, weight, bias = _random(device, (1024, 1024), (1024,), (1024,))
    out, mean = torch.empty_like(x), torch.empty(1024, device=device)
    arguments = (x, out, weight, bias, mean, 1024, 1e-5)
    return [
        (
            lambda: kernels.layer_norm[(1024,)](*arguments, BLOCK=1024),
            out,
            lambda: functional.layer_norm(x, (1024,), weight, bias),
        )
    ]


def _add(device: str, kernels: ModuleType) -> list[Case]:
    x, y = _random(device, (1 << 20,), (1 << 20,))
    out, other = torch.empty_like(x), torch.empty_like(x)
    return [(lambda: kernels.add[(1024,)](x, y, out, 1 << 20, BLOCK=1024), out, lambda: torch.add(x, y, out=other))]


def _matmul(device: str, kernels: ModuleType) -> list[Case]:
    """In several tiles, of which autotuning takes the best."""
    a, b = _random(device, (512, 512), (512, 512))
    out = torch.empty_like(a)
    arguments = (a, b, out, 512, 512, 512, 512, 1, 512, 1, 512, 1)

    def launch(m: int, n: int, k: int) -> Call:
        return lambda: kernels.matmul[(512 // m, 512 // n)](*arguments, BM=m, BN=n, BK=k)

    tiles = ((32, 32, 32), (64, 64, 32), (64, 128, 64), (128, 128, 64), (64, 256, 64))
    return [(launch(*tile), out, lambda: a @ b) for tile in tiles]


def _attention(device: str, kernels: ModuleType) -> list[Case]:
    q, k, v = _random(device, *[(1, 4, 512, 64)] * 3)
    out = torch.empty_like(q)
    return [
        (
            lambda: kernels.attention[(8, 4)](q, k, v, out, 0.125, 512, CAUSAL=True, BM=64, BN=64, D=64),
            out,
            lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        )
    ]


CASES = {
    "softmax, 1024 x 1024": _softmax,
    "layer norm, 1024 x 1024": _layer_norm,
    "add, 1M": _add,
    "matmul, 512": _matmul,
    "causal attention, 4 x 512 x 64": _attention,
}


def _measure(case: Callable[[str, ModuleType], list[Case]]) -> Callable[[str], Result]:
    def measure(device: str) -> Result:
        from triton.runtime.errors import OutOfResources

        found = []
        for launch, out, portable in case(device, _kernels()):
            try:
                launch()
            except OutOfResources:  # a tile that the target has no local memory for
                continue
            torch.testing.assert_close(out.cpu(), portable().cpu(), rtol=1e-2, atol=1e-3)
            sides = [{"call": call, "wait": wait} for call in (launch, portable)]
            found.append(ratio("call(); wait()", *sides, rounds=15, timer=time.process_time))
        if not found:
            raise RuntimeError(f"the kernel needs more local memory than {device} has")
        return min(found, key=lambda result: result.best)

    return measure


def _time(statement: str, names: dict[str, Any]) -> Result:
    timer = timeit.Timer(statement, globals=names)
    timer.timeit(100)
    times = []
    for _ in range(41):
        times.append(timer.timeit(500) / 500 * 1e6)
        wait()
    return Result(best=min(times), median=median(times), unit="us")


def _launcher(device: str) -> Result:
    """What Triton calls for a launch when it has found the kernel: on CUDA its own launcher in C."""
    kernels, out = _kernels(), torch.zeros(16, device=device)
    x = torch.ones(16, device=device)
    kernel = kernels.add[(1,)](x, x, out, 16, BLOCK=16)
    arguments = (1, 1, 1, 0, kernel.function, kernel.packed_metadata, None, None, None, x, x, out, 16, 16)
    out.zero_()
    kernel.run(*arguments)
    if out.sum().item() != 32:
        raise RuntimeError("the kernel did not run")
    return _time("run(*arguments)", {"run": kernel.run, "arguments": arguments})


def _call(device: str) -> Result:
    """A user's launch, with Triton's search for the kernel."""
    x, out = torch.ones(16, device=device), torch.zeros(16, device=device)
    add = _kernels().add
    return _time("add[(1,)](x, x, out, 16, BLOCK=16)", {"add": add, "x": x, "out": out})


PROGRAM = """
import json, resource, torch
import torch.nn.functional as F
import {device}
from fla.ops.gla import chunk_gla
torch.set_num_threads(1)
def spent():
    of = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in of)
q, k, v, g = (torch.randn(1, 128, 2, 64) for _ in range(4))
operands = [x.to({device!r}).requires_grad_() for x in (q, k, v, F.logsigmoid(g))]
def step():
    before = spent()
    chunk_gla(*operands)[0].sum().backward()
    return spent() - before
print(json.dumps([step(), step()]))
"""


def _autotuning(device: str) -> Result:
    """chunk_gla of fla, forward and backward, with nothing in a cache, over what it takes later: processor time."""
    _require("triton", "triton==3.7.1")
    _require("fla", "fla-core==0.6.0")
    seconds = []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            environment = os.environ | {f"{device.upper()}_CACHE_DIR": folder, "TRITON_CACHE_DIR": folder}
            program = PROGRAM.format(device=device)
            command = [sys.executable, "-c", program]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"fla failed: {done.stderr[-1000:]}")
        first, later = json.loads(done.stdout.splitlines()[-1])
        seconds.append(first - later)
    return Result(min(seconds), median(seconds), unit="s")


ROWS = [
    *(
        Row(f"Triton / portable, {name}", _measure(case), 1.3, configurations=(COMPILED,), budget_of_items=2.0)
        for name, case in CASES.items()
    ),
    Row("Triton, a launch, calling thread", _launcher, 2.0, configurations=(COMPILED, COMPILED_ASYNC)),
    Row("Triton, a launch with Triton's own Python", _call, configurations=(COMPILED_ASYNC,)),
]
FIRST_RUNS = [
    Row("Triton, autotuning fla's chunk_gla, nothing in a cache", _autotuning, 30, configurations=(HOST,)),
]
