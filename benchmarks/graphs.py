"""A step of the demo's GPT, with dropout, as a graph: what a replay costs beside the step, or beside its kernels."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.row import COMPILED, COMPILED_ASYNC, Result, Row
from benchmarks.timing import ratio, wait


class Dropped(torch.nn.Module):
    """A model with dropout behind it: each replay takes other random numbers."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        self.context = model.context

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return F.dropout(self.model(tokens), 0.1)


def _small_gpt(device: str) -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    """A model, with inputs and targets."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "demo"))
    import gpt

    text = gpt.repository_text()
    model = Dropped(gpt.GPT(len(text.characters), width=32, layers=2)).to(device)
    x, y = (part.to(device) for part in next(text.batches(1, 2, model.context)))
    return model, x, y


def step_of(device: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """The step, and the replay of its graph; neither waits for the device."""
    model, x, y = _small_gpt(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

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


def _reduced_overhead(device: str) -> Result:
    """A compiled forward and backward pass that torch.compile's mode replays, beside the same kernel by kernel."""
    sides = []
    for mode in ("reduce-overhead", "default"):
        torch._dynamo.reset()
        model, x, y = _small_gpt(device)
        compiled = torch.compile(model, mode=mode, dynamic=False)

        def step(compiled: Any = compiled, x: torch.Tensor = x, y: torch.Tensor = y) -> None:
            F.cross_entropy(compiled(x).flatten(0, 1), y.flatten()).backward()
            compiled.zero_grad()

        for _ in range(4):
            step()
        sides.append({"step": step})
    return ratio("step()", *sides, after=wait, timer=time.process_time)


REDUCED = "torch.compile, a small GPT forward and backward, reduce-overhead / default"

# Attention is a compiled kernel: the host's kernels have none, and what goes to the CPU cannot be recorded.
ROWS = [
    Row("replay of a GPT step / the step", _replay, budget=0.2, configurations=(COMPILED_ASYNC,)),
    Row(REDUCED, _reduced_overhead, budget=0.95, configurations=(COMPILED,)),
    Row(REDUCED, _reduced_overhead, budget=0.8, configurations=(COMPILED_ASYNC,)),
]
