"""The GPT once more, by torch.compile: its losses beside those of eager, and both times."""

import gpt
import torch
from lockstep import LOSS_TOLERANCE, Batches, Steps, timed, train
from rich.console import Console
from rich.table import Table

# Of the mean loss at the end: two trainings that run by themselves part in time, since sums come in another order.
END_TOLERANCE = 0.05
COLUMNS = 24  # of a curve


def learn_compiled(
    model: gpt.GPT, batches: Batches, device: torch.device, eager: Steps, why_not: str, console: Console
) -> None:
    """Train it compiled on the same batches; fail unless it begins and ends as it did in eager.

    Args:
        model: untrained, as it was then.
        batches: those of ``eager``.
        device: to train on.
        eager: the training to hold it against.
        why_not: what the device lacks for kernels of torch.compile; it is told instead.
        console: for the tables.
    """
    if why_not:
        console.print(f"torch.compile is left out: {why_not}", soft_wrap=True)
        return
    call = torch.compile(model.to(device))
    steps = list(timed(train(model, batches, call)))
    losses, seconds = [loss for loss, _ in steps], [second for _, second in steps]
    table = Table(title="The GPT by torch.compile, on the same batches", title_justify="left")
    for column in ("", "loss", "at the end", "first step", "steps after it"):
        table.add_column(column, justify="right" if column[1:] else "left")
    for name, values, times in (("eager", eager.device, eager.seconds), ("compiled", losses, seconds)):
        row = (f"{end(values):.3f}", f"{times[0]:.1f} s", f"{sum(times[1:]):.1f} s")
        table.add_row(name, curve(values, eager.device + losses), *row)
    console.print(table)
    if not abs(losses[0] - eager.device[0]) <= LOSS_TOLERANCE:
        raise SystemExit(f"the compiled GPT begins with a loss of {losses[0]}, in eager with {eager.device[0]}")
    if not abs(end(losses) - end(eager.device)) <= END_TOLERANCE * end(eager.device):
        raise SystemExit(f"the compiled GPT ends with a loss of {end(losses)}, in eager with {end(eager.device)}")


def end(losses: list[float]) -> float:
    """The mean of the last tenth."""
    last = losses[-max(1, len(losses) // 10) :]
    return sum(last) / len(last)


def curve(losses: list[float], of: list[float]) -> str:
    """Heights between the least and the largest of all; a column is a mean of some steps."""
    width = -(-len(losses) // COLUMNS)
    means = [sum(part) / len(part) for i in range(0, len(losses), width) if (part := losses[i : i + width])]
    low, high = min(of), max(of)
    return "".join("▁▂▃▄▅▆▇█"[min(7, int(8 * (mean - low) / (high - low or 1)))] for mean in means)
