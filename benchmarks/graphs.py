"""A step of the demo's GPT, with dropout, as a graph: what a replay costs the calling thread, beside the step."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

from benchmarks.row import COMPILED_ASYNC, Result, Row
from benchmarks.timing import ratio, wait


class Dropped(torch.nn.Module):
    """A model with dropout behind it: each replay takes other random numbers."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        self.context = model.context

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return F.dropout(self.model(tokens), 0.1)


def step_of(device: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """The step, and the replay of its graph; neither waits for the device."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "demo"))
    import gpt

    text = gpt.repository_text()
    model = Dropped(gpt.GPT(len(text.characters), width=32, layers=2)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y = (part.to(device) for part in next(text.batches(1, 2, model.context)))

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
        optimizer.step()

    module = torch.get_device_module(device)
    side = module.Stream()
    side.wait_stream(module.current_stream())
    with side:
        for _ in range(3):
            step()
    module.synchronize()
    graph = torch.accelerator.Graph()
    with side, graph:
        step()
    return step, graph.replay


def _replay(device: str) -> Result:
    step, replay = step_of(device)
    return ratio("call()", {"call": replay}, {"call": step}, after=wait)


# Attention is a compiled kernel: the host's kernels have none, and what goes to the CPU cannot be recorded.
ROWS = [Row("replay of a GPT step / the step", _replay, budget=0.2, configurations=(COMPILED_ASYNC,))]
