"""One training step of the demo's GPT: forward, backward, AdamW, and the loss read back."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

from benchmarks.row import ASYNC, DISCRETE, Result, Row
from benchmarks.timing import ratio

STEP = "next(steps)"


def _step(device: str) -> Result:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "demo"))
    import gpt
    from lockstep import train

    text = gpt.repository_text()
    model = gpt.GPT(len(text.characters), width=128, layers=4)
    batch = next(text.batches(1, 16, model.context))

    def endless(where: str) -> dict[str, Any]:
        return {"steps": train(copy.deepcopy(model).to(where), iter(lambda: batch, None))}

    return ratio(STEP, endless(device), endless("cpu"), rounds=9)


ROWS = [
    Row("GPT training step", _step, budget=1.15),
    Row("GPT training step", _step, budget=1.25, configurations=(ASYNC,)),
    Row("GPT training step", _step, configurations=(DISCRETE,)),
]
