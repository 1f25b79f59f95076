"""One training step of the demo's GPT: forward, backward, AdamW, and the loss read back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.row import ASYNC, COMPILED, DISCRETE, Result, Row
from benchmarks.timing import ratio

STEP = "next(steps)"


def _compiled(model: nn.Module) -> Any:
    return torch.compile(model, dynamic=False)


def endless(where: str, compiled: bool = False, wrap: Callable[[nn.Module], Any] | None = None) -> Iterator[float]:
    """Training steps on a device, always the same batch from the same weights.

    Args:
        where: the device.
        compiled: the model by torch.compile.
        wrap: what is trained in place of the model, made of it.
    """
    wrap = wrap or (_compiled if compiled else lambda model: model)
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "demo"))
    import gpt
    from lockstep import train

    torch.manual_seed(0)
    text = gpt.repository_text()
    model = gpt.GPT(len(text.characters), width=128, layers=4)
    batch = next(text.batches(1, 16, model.context))
    model.to(where)
    return train(wrap(model), iter(lambda: batch, None))


def _step(device: str) -> Result:
    return ratio(STEP, {"steps": endless(device)}, {"steps": endless("cpu")}, rounds=9)


ROWS = [
    Row("GPT training step", _step, budget=1.15),
    Row("GPT training step", _step, budget=1.25, configurations=(ASYNC,)),
    Row("GPT training step", _step, configurations=(DISCRETE,)),
    Row("compiled, GPT training step", _step, budget=1.5, configurations=(COMPILED,)),
]
