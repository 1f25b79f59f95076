"""``python -m benchmarks.record_traces``: records what models allocate, by the memory history, for the replay."""

from __future__ import annotations

import argparse
import gc
import importlib
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.allocator import TRACES, write_trace


class Residual(nn.Module):
    """Two convolutions with normalisation, beside the identity or a strided projection."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        same = inputs == outputs and stride == 1
        self.skip = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The sum of both."""
        return torch.relu(self.body(x) + self.skip(x))


def resnet_training(device: str) -> None:
    """Three steps of a small residual network, SGD with momentum; the last batch is short."""
    widths = [(3, 16, 1), (16, 16, 1), (16, 32, 2), (32, 32, 1), (32, 64, 2), (64, 64, 1)]
    model = nn.Sequential(*(Residual(*w) for w in widths), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for batch in (48, 48, 29):
        loss = nn.functional.cross_entropy(
            model(torch.randn(batch, 3, 64, 64).to(device)), torch.randint(10, (batch,)).to(device)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def _transformer(width: int, layers: int) -> nn.Module:
    layer = nn.TransformerEncoderLayer(width, width // 32, 4 * width, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Embedding(1000, width), nn.TransformerEncoder(layer, layers), nn.Linear(width, 1000))


def gpt_training(device: str) -> None:
    """Three steps of a transformer over tokens, AdamW."""
    model = _transformer(256, 4).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        tokens = torch.randint(1000, (24, 129)).to(device)
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def variable_length_inference(device: str) -> None:
    """Requests of 5 to 500 tokens in batches of 1 to 6; a few results are kept for a while."""
    model = _transformer(256, 2).to(device).eval()
    kept: list[Tensor] = []
    with torch.no_grad():
        for _ in range(60):
            length, batch = int(torch.randint(5, 500, ())), int(torch.randint(1, 7, ()))
            kept.append(model(torch.randint(1000, (batch, length)).to(device)))
            del kept[: -int(torch.randint(1, 6, ()))]


WORKLOADS: tuple[Callable[[str], None], ...] = (resnet_training, gpt_training, variable_length_inference)


def record(workload: Callable[[str], None], device: str, memory: object) -> list[int]:
    """The allocations of a workload in order, as :func:`benchmarks.allocator.read_trace` gives them."""
    torch.manual_seed(0)
    memory._record_memory_history(context=None)  # type: ignore[attr-defined]
    workload(device)
    gc.collect()
    trace = memory._snapshot(f"{device}:0")["device_traces"][0]  # type: ignore[attr-defined]
    memory._record_memory_history(None)  # type: ignore[attr-defined]
    events: list[int] = []
    live: dict[int, int] = {}
    count = 0
    for event in trace:
        if event["action"] == "alloc":
            count += 1
            live[event["addr"]] = count
            events.append(event["size"])
        elif event["action"] == "free_completed" and event["addr"] in live:
            events.append(-live.pop(event["addr"]))
    return events


def main() -> None:
    """Write one file a workload."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.record_traces", description=main.__doc__)
    parser.add_argument("--module", default="mydevice", help="the backend's Python package")
    arguments = parser.parse_args()
    importlib.import_module(arguments.module)
    TRACES.mkdir(exist_ok=True)
    for workload in WORKLOADS:
        events = record(workload, arguments.module, getattr(torch, arguments.module).memory)
        path = TRACES / f"{workload.__name__}.xz"
        write_trace(path, events)
        print(f"{path.name}: {len(events)} events, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
