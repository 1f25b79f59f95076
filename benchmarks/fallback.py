"""An operator without a kernel: the CPU's, on the device's memory."""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable
from statistics import median

import torch

from benchmarks.row import NO_KERNELS, NO_KERNELS_DISCRETE, Result, Row
from benchmarks.timing import ratio, wait

# The first that the CPU computes for the device.
CANDIDATES = ("floor", "trunc", "frac", "sinc", "digamma", "i0")
PRODUCTS = {
    "int8 x int8, 512": "torch._int_mm(a, b)",
    "weights of 4 bits, 1 x 4096 x 4096": "torch.ops.aten._weight_int4pack_mm_for_cpu(token, packed, 32, scales)",
}


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


def _products(name: str) -> Callable[[str], Result]:
    """Products of integers, which run on the CPU where the host reaches the memory."""

    def measure(device: str) -> Result:
        generator = torch.Generator().manual_seed(0)
        bytes_ = torch.randint(-128, 128, (2, 1024, 1024), dtype=torch.int8, generator=generator)
        nibbles = torch.randint(0, 16, (4096, 4096), dtype=torch.int32, generator=generator)
        names: dict[str, torch.Tensor] = {
            "a": bytes_[0, :512, :512],
            "b": bytes_[1, :512, :512],
            "token": torch.rand(1, 4096, generator=generator).bfloat16(),
            "packed": torch._convert_weight_to_int4pack_for_cpu(nibbles, 2),
            "scales": torch.rand(4096 // 32, 4096, 2, generator=generator).bfloat16(),
        }
        sides = [{"torch": torch, **{one: x.to(where) for one, x in names.items()}} for where in (device, "cpu")]
        return ratio(PRODUCTS[name], *sides, after=wait, timer=time.process_time)

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
    *(
        Row(f"fallback, zero copy, {name}", _products(name), budget=1.1, configurations=(NO_KERNELS,))
        for name in PRODUCTS
    ),
    Row("fallback, its account, a call", _accounting, budget=100, configurations=(NO_KERNELS,)),
    Row("fallback, staged, 8 floats", _fallback(8), budget=3.3, configurations=(NO_KERNELS_DISCRETE,)),
    Row("fallback, staged, 1M floats", _fallback(1 << 20), configurations=(NO_KERNELS_DISCRETE,)),
]
