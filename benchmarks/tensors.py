"""What every operator pays: memory, views, a small kernel."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.row import ASYNC, INLINE, Result, Row
from benchmarks.timing import ratio, wait


def _names(device: str, **more: Any) -> dict[str, Any]:
    x = torch.ones(8, device=device)
    return {"torch": torch, "device": x.device, "x": x, "y": x.clone(), **more}


def _empty(count: int) -> Row:
    """Against the CPU's smallest, because a caching allocator's time must not depend on the size."""

    def measure(device: str) -> Result:
        statement = "torch.empty({}, device=device)"
        return ratio(statement.format(count), _names(device), _names("cpu"), cpu_statement=statement.format(8))

    return Row(f"torch.empty, {count * 4:,} bytes", measure, budget=1.1)


def _view(device: str) -> Result:
    return ratio("x.view(2, 4)", _names(device), _names("cpu"))


def _as_strided(device: str) -> Result:
    return ratio("x.as_strided((2, 2), (4, 1))", _names(device), _names("cpu"))


def _add(device: str) -> Result:
    """Time on the calling thread: the wait comes after each round."""
    return ratio("torch.add(x, y)", _names(device), _names("cpu"), after=wait)


def _item(device: str) -> Result:
    names = [_names(where, scalar=torch.ones((), device=where)) for where in (device, "cpu")]
    return ratio("scalar.item()", *names)


ROWS = [
    *(_empty(count) for count in (8, 1 << 18, 1 << 24)),
    Row("view", _view, budget=1.1),
    Row("as_strided", _as_strided, budget=1.1),
    Row("add, 8 floats", _add, budget=1.3),
    Row("add, 8 floats, calling thread", _add, budget=2.0, configurations=(ASYNC,)),
    Row("item()", _item, configurations=(INLINE, ASYNC)),
]
