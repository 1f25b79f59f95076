"""One training step of the demo's GPT: forward, backward, AdamW, and the loss read back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.row import ASYNC, COMPILED, DISCRETE, Result, Row
from benchmarks.timing import ratio

STEP = "next(steps)"


def endless(where: str) -> Iterator[float]:
    """Training steps on a device, always the same batch from the same weights."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "demo"))
    import gpt
    from lockstep import train

    torch.manual_seed(0)
    text = gpt.repository_text()
    model = gpt.GPT(len(text.characters), width=128, layers=4)
    batch = next(text.batches(1, 16, model.context))
    return train(model.to(where), iter(lambda: batch, None))


def _step(device: str) -> Result:
    return ratio(STEP, {"steps": endless(device)}, {"steps": endless("cpu")}, rounds=9)


ROWS = [
    Row("GPT training step", _step, budget=1.15),
    Row("GPT training step", _step, budget=1.25, configurations=(ASYNC,)),
    Row("GPT training step", _step, configurations=(DISCRETE,)),
    Row("compiled, GPT training step", _step, budget=1.5, configurations=(COMPILED,)),
]
