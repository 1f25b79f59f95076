"""The simulated device's kernels, a row for each family: what a call costs, and how fast the loop is."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from benchmarks.row import INLINE, Result, Row
from benchmarks.timing import ratio, wait

FAMILIES = {
    "unary (exp)": "x.exp()",
    "activation (gelu)": "functional.gelu(x)",
    "binary (mul)": "x * y",
    "compare (lt)": "x < y",
    "where": "torch.where(c, x, y)",
    "reduction (sum)": "x.sum()",
    "reduction over rows (amax)": "m.amax(0)",
    "bfloat16 (mul)": "b * b",
}


def _measure(statement: str, count: int) -> Callable[[str], Result]:
    def measure(device: str) -> Result:
        names = []
        for where in (device, "cpu"):
            x, y = (torch.rand(count, generator=torch.Generator().manual_seed(i)).to(where) for i in (0, 1))
            tensors = {"x": x, "y": y, "c": x < y, "b": x.bfloat16(), "m": x.reshape(-1, min(count, 1024))}
            names.append({"torch": torch, "functional": functional, **tensors})
        return ratio(statement, *names, after=wait, rounds=21)

    return measure


ROWS = [
    Row(f"kernel, {family}, {size}", _measure(statement, count), configurations=(INLINE,))
    for family, statement in FAMILIES.items()
    for size, count in (("8 floats", 8), ("1M floats", 1 << 20))
]
