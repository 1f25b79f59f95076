"""The table, for a terminal or for a document."""

from __future__ import annotations

import os
import platform

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.row import Line


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    import torch

    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    except OSError:
        pass
    return {
        "processor": model,
        "cores": str(os.cpu_count()),
        "torch": torch.__version__,
        "Python": platform.python_version(),
    }


def time_text(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def _value(value: float, unit: str) -> str:
    return f"{value:.2f} x" if unit == "x" else f"{value:.3g} {unit}"


def _cells(line: Line) -> list[str]:
    if line.result is None:
        return [line.row, line.configuration, "", "", "", "", "", "[red]failed[/red]"]
    result = line.result
    budget = "" if line.budget is None else f"{'>=' if line.at_least else '<='} {line.budget:g}"
    verdict = {True: "[green]within[/green]", False: "[red]over[/red]", None: ""}[line.within]
    values = (
        time_text(result.device),
        time_text(result.cpu),
        _value(result.best, result.unit),
        _value(result.median, result.unit),
    )
    return [line.row, line.configuration, *values, budget, verdict]


def show(lines: list[Line], *, markdown: bool = False) -> None:
    """Print; ``best`` is compared with budgets, ``median`` shows how quiet the machine was."""
    table = Table(box=box.MARKDOWN if markdown else box.SIMPLE_HEAD)
    for column in ("what", "configuration", "device", "CPU", "best", "median", "budget", ""):
        table.add_column(column, justify="left" if column in ("what", "configuration", "") else "right")
    for line in lines:
        table.add_row(*_cells(line))
    console = Console()
    console.width = max(console.width, 140)
    console.print(" · ".join(f"{name} {value}" for name, value in machine().items()))
    console.print(table)
    for line in lines:
        if line.error:
            console.print(
                f"{line.row}, {line.configuration or 'by itself'}:\n{line.error}\n", style="red", markup=False
            )
