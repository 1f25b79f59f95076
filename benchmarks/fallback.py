"""An operator without a native kernel: the CPU's, on the device's memory."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.row import DISCRETE, INLINE, Result, Row
from benchmarks.timing import ratio, wait

# The first that the device has no kernel of its own for.
CANDIDATES = ("floor", "trunc", "frac", "sinc", "digamma", "i0")


def _operator() -> str:
    for name in CANDIDATES:
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "PrivateUse1"):
            return name
    raise RuntimeError(f"every one of {CANDIDATES} is native here: name another one in benchmarks/fallback.py")


def _fallback(count: int) -> Callable[[str], Result]:
    def measure(device: str) -> Result:
        x = torch.rand(count)
        statement = f"torch.{_operator()}(x)"
        names = [{"torch": torch, "x": x.to(where)} for where in (device, "cpu")]
        return ratio(statement, *names, after=wait)

    return measure


ROWS = [
    Row("fallback, zero copy, 8 floats", _fallback(8), budget=3.0, configurations=(INLINE,)),
    Row("fallback, zero copy, 1M floats", _fallback(1 << 20), budget=1.05, configurations=(INLINE,)),
    Row("fallback, staged, 8 floats", _fallback(8), configurations=(DISCRETE,)),
    Row("fallback, staged, 1M floats", _fallback(1 << 20), configurations=(DISCRETE,)),
]
