"""Kernels that torch.compile generates on the simulated device, against those of Inductor's C++ backend on the CPU."""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch.nn import functional

from benchmarks.gpt_step import STEP, endless
from benchmarks.row import COMPILED, COMPILED_ASYNC, Result, Row
from benchmarks.timing import ratio, wait

KERNELS: list[tuple[str, Callable[[torch.Tensor], Any], float]] = [
    ("pointwise", lambda x: (x * 2 + 1).tanh() * x, 1.3),
    ("sum of rows", lambda x: x.sum(1), 1.3),
    ("sum of all", lambda x: x.sum(), 1.3),
    ("sum of columns", lambda x: x.sum(0), 1.3),
    ("largest of columns", lambda x: x.amax(0), 1.3),
    ("softmax of rows", lambda x: x.softmax(1), 1.3),
    ("softmax of columns", lambda x: x.softmax(0), 1.3),
    ("layer norm", lambda x: functional.layer_norm(x, x.shape[1:]), 1.3),
    ("variance of rows", lambda x: x.var(1), 1.3),
    ("rms norm", lambda x: functional.rms_norm(x, x.shape[1:]), 1.3),
    ("bias and gelu", lambda x: functional.gelu(x + x[0]), 1.3),
    ("bias and relu6", lambda x: functional.relu6(x + x[0]), 1.3),
    ("transposed sum", lambda x: x[:, :1024].t() + x[:, :1024], 1.5),
    ("to channels_last", lambda x: (x.view(32, 64, 32, 32) + 1).contiguous(memory_format=torch.channels_last), 2.0),
]


def _measure(function: Callable[[torch.Tensor], Any]) -> Callable[[str], Result]:
    def measure(device: str) -> Result:
        x = torch.randn(1024, 2048, generator=torch.Generator().manual_seed(0))
        torch._dynamo.reset()
        step = torch.compile(function, dynamic=False)
        sides = [{"step": step, "x": x.to(where)} for where in (device, "cpu")]
        for side in sides:
            step(side["x"])
        return ratio("step(x)", *sides, after=wait, rounds=15, timer=time.process_time)

    return measure


def _step(device: str) -> Result:
    """A compiled step of the demo's GPT."""
    return ratio(STEP, *({"steps": endless(where, compiled=True)} for where in (device, "cpu")), rounds=9)


def _launcher(device: str) -> Result:
    """A call of one kernel as the module that Inductor wrote makes it, the kernel of eight floats with it."""
    from torch._inductor import utils

    x = torch.ones(8, device=device)
    torch._dynamo.reset()
    with torch._inductor.config.patch(force_disable_caches=True):
        _, (code,) = utils.run_and_get_code(torch.compile(lambda x: x * 2 + 1), x)
    module: dict[str, Any] = {"__name__": "generated"}
    exec(code, module)
    (kernel,) = (one for name, one in module.items() if name.startswith(f"{device}_fused"))
    y = torch.zeros_like(x)
    timer = timeit.Timer("kernel(x, y)", globals={"kernel": kernel, "x": x, "y": y})
    timer.timeit(100)
    if y.sum().item() != 24:
        raise RuntimeError("the kernel did not run")
    times = []
    for _ in range(41):
        times.append(timer.timeit(1000) * 1e3)
        wait()
    return Result(best=min(times), median=median(times), unit="us")


def _optimizer(device: str) -> Result:
    """A compiled step of AdamW for matrices and rows of several sizes."""
    sides = []
    for where in (device, "cpu"):
        torch._dynamo.reset()
        shapes = [(512, 512), (512,), (2048, 512), (2048,)] * 3
        parameters = [torch.nn.Parameter(torch.full(shape, 0.5, device=where)) for shape in shapes]
        for one in parameters:
            one.grad = one.detach() * 0.1
        step = torch.compile(torch.optim.AdamW(parameters, lr=1e-3).step)
        step()
        sides.append({"step": step})
    return ratio("step()", *sides, after=wait, rounds=15, timer=time.process_time)


def _beyond_the_gain(device: str) -> Result:
    """What compilation brings: compiled over eager on the device, less the same on the CPU."""
    ours, theirs = (
        ratio(STEP, *({"steps": endless(where, compiled=compiled)} for compiled in (True, False)), rounds=9)
        for where in (device, "cpu")
    )
    return Result(ours.best - theirs.best, ours.median - theirs.median)


ROWS = [
    *(
        Row(f"torch.compile, {name}, 1024 x 2048", _measure(function), budget=budget, configurations=(COMPILED,))
        for name, function, budget in KERNELS
    ),
    Row(
        "torch.compile, a call of a kernel of 8 floats",
        _launcher,
        budget=2.0,
        configurations=(COMPILED, COMPILED_ASYNC),
    ),
    Row("torch.compile, AdamW step, 12 parameters", _optimizer, budget=1.3, configurations=(COMPILED,)),
    Row("torch.compile, GPT training step", _step, budget=1.2, configurations=(COMPILED,)),
    Row(
        "torch.compile, GPT training step, over eager less the CPU's own",
        _beyond_the_gain,
        budget=0.1,
        configurations=(COMPILED,),
    ),
]
