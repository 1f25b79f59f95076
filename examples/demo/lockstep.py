"""Trains a model on a device while a twin on the CPU checks each step's loss and gradients from the same weights.

Two trainings that run by themselves part in time: whether a ReLU passes 1e-8 hangs on the order of a sum, and AdamW
scales up what follows. So the twin takes the device's weights at each step.
"""

import copy
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import Tensor, nn

Batches = Iterable[tuple[Tensor, Tensor]]

# Room for another order of a sum: of the losses' difference, and of the gradients' difference over their norm.
LOSS_TOLERANCE = 1e-4
GRADIENT_TOLERANCE = 1e-3


@dataclass
class Steps:
    """One training, step by step."""

    device: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    gradients: list[float] = field(default_factory=list)  # norm of the difference over the norm of the CPU's
    seconds: list[float] = field(default_factory=list)  # of the device

    def check(self) -> None:
        """Fail unless the device's losses and gradients are the CPU's, at every step."""
        for step, (device, cpu, gradients) in enumerate(zip(self.device, self.cpu, self.gradients, strict=True), 1):
            if not abs(device - cpu) <= LOSS_TOLERANCE:  # also catches nan
                raise SystemExit(
                    f"step {step}: loss {device} on the device, {cpu} on the CPU, more than {LOSS_TOLERANCE} apart"
                )
            if not gradients <= GRADIENT_TOLERANCE:
                raise SystemExit(
                    f"step {step}: the gradients differ from the CPU's by {gradients} of their norm, "
                    f"more than {GRADIENT_TOLERANCE}"
                )

    def table(self, title: str, rows: int = 6) -> Table:
        """A few of the steps, evenly spread."""
        table = Table(title=title, title_justify="left")
        for column in ("step", "device", "CPU", "difference", "of the gradients"):
            table.add_column(column, justify="right")
        last = len(self.device) - 1
        for step in sorted({round(i * last / (rows - 1)) for i in range(rows)}):
            device, cpu = self.device[step], self.cpu[step]
            table.add_row(
                str(step + 1), f"{device:.6f}", f"{cpu:.6f}", f"{device - cpu:+.1e}", f"{self.gradients[step]:.1e}"
            )
        return table


def backward(model: nn.Module, inputs: Tensor, targets: Tensor, call: Callable[..., Tensor] | None = None) -> float:
    """One batch's loss on the model's device, by the model or by what it was compiled to; its gradients are set."""
    device = next(model.parameters()).device
    model.zero_grad()
    outputs = (model if call is None else call)(inputs.to(device))
    loss = F.cross_entropy(outputs.flatten(0, -2), targets.to(device).flatten())
    loss.backward()
    return loss.item()


def train(model: nn.Module, batches: Batches, call: Callable[..., Tensor] | None = None) -> Iterator[float]:
    """Train on the model's device; give each step's loss, with its gradients and weights in place."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for inputs, targets in batches:
        yield backward(model, inputs, targets, call)
        optimizer.step()


def timed(steps: Iterable[float]) -> Iterator[tuple[float, float]]:
    """Each step's loss and seconds; the loss has been waited for."""
    begin = time.perf_counter()
    for loss in steps:
        yield loss, time.perf_counter() - begin
        begin = time.perf_counter()


def difference_of_gradients(model: nn.Module, twin: nn.Module) -> float:
    """Norm of the difference of all gradients over the norm of the twin's, on the CPU."""
    ours, others = (
        torch.cat([p.grad.cpu().flatten() for p in m.parameters() if p.grad is not None]) for m in (model, twin)
    )
    return ((ours - others).norm() / others.norm()).item()


def side_by_side(name: str, model: nn.Module, batches: Batches, device: torch.device, console: Console) -> Steps:
    """Train ``model`` on the device, each step beside its twin on the CPU."""
    twin = copy.deepcopy(model).train()
    model.to(device)
    batches = list(batches)
    steps = Steps()
    loss = TextColumn("loss {task.fields[loss]:.4f}")
    with Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), loss, TimeElapsedColumn(), console=console
    ) as progress:
        task = progress.add_task(name, total=len(batches), loss=float("nan"))
        for (on_device, seconds), batch in zip(timed(train(model, batches)), batches, strict=True):
            twin.load_state_dict(model.state_dict())
            steps.device.append(on_device)
            steps.seconds.append(seconds)
            steps.cpu.append(backward(twin, *batch))
            steps.gradients.append(difference_of_gradients(model, twin))
            progress.update(task, advance=1, loss=on_device)
    return steps
