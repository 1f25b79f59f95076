"""Trains one model on two devices, with the same start and the same batches, and compares the losses."""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import Tensor, nn

Batches = Iterable[tuple[Tensor, Tensor]]

# The two may differ in the order of some sums (optimizer over lists, form of attention): about 1e-6 after 300 steps.
TOLERANCE = 1e-3


@dataclass
class Losses:
    """One training's losses, step by step."""

    device: list[float]
    cpu: list[float]

    def check(self) -> None:
        """Fail unless the device's losses are the CPU's, at every step."""
        for step, (device, cpu) in enumerate(zip(self.device, self.cpu, strict=True), 1):
            if not abs(device - cpu) <= TOLERANCE:  # also catches nan
                raise SystemExit(
                    f"step {step}: loss {device} on the device, {cpu} on the CPU, more than {TOLERANCE} apart"
                )

    def table(self, title: str, rows: int = 6) -> Table:
        """A few of the steps, evenly spread."""
        table = Table(title=title, title_justify="left")
        for column in ("step", "device", "CPU", "difference"):
            table.add_column(column, justify="right")
        last = len(self.device) - 1
        for step in sorted({round(i * last / (rows - 1)) for i in range(rows)}):
            device, cpu = self.device[step], self.cpu[step]
            table.add_row(str(step + 1), f"{device:.6f}", f"{cpu:.6f}", f"{device - cpu:+.1e}")
        return table


def train(model: nn.Module, batches: Batches, device: torch.device) -> Iterator[float]:
    """Train and give each step's loss."""
    model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for inputs, targets in batches:
        logits = model(inputs.to(device))
        loss = F.cross_entropy(logits.flatten(0, -2), targets.to(device).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def side_by_side(name: str, model: nn.Module, batches: Batches, device: torch.device, console: Console) -> Losses:
    """Train ``model`` on the device and a copy of it on the CPU, one step here, one step there."""
    twin = copy.deepcopy(model)
    batches = list(batches)
    losses = Losses([], [])
    loss = TextColumn("loss {task.fields[loss]:.4f}")
    with Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), loss, TimeElapsedColumn(), console=console
    ) as progress:
        task = progress.add_task(name, total=len(batches), loss=float("nan"))
        both = zip(train(model, batches, device), train(twin, batches, torch.device("cpu")), strict=True)
        for on_device, on_cpu in both:
            losses.device.append(on_device)
            losses.cpu.append(on_cpu)
            progress.update(task, advance=1, loss=on_device)
    return losses
