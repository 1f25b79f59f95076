"""``torch-backplane coverage``: which operators a model runs, and how; what to implement next."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from backplane_tools.cli.backend import load_backend
from backplane_tools.cli.colours import COLOURS
from backplane_tools.cli.program import failed, run_program


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--model",
    metavar="MODULE:FACTORY",
    help="Run what this function returns: (module, inputs), or a step function. It is called without arguments, with "
    "the device as torch's default device.",
)
@click.option("--device", metavar="NAME", help="The device, as in torch.device(); default: the installed backend's.")
@click.option("--steps", type=click.IntRange(1), default=1, show_default=True, help="With --model: how often it runs.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write the account here.")
@click.argument("script", required=False, type=click.Path(exists=True, dir_okay=False))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def coverage(
    model: str | None, device: str | None, steps: int, json_path: Path | None, script: str | None, args: tuple[str, ...]
) -> None:
    """Run SCRIPT with ARGS, or a model, and list the operators that it ran on the device.

    Each is native (a kernel of the device ran), portable (one of the SDK's that the driver compiles), composite (made
    of others in the list), fallback (it ran on the CPU) or refused (it raised NotImplementedError; the run goes on
    with the CPU's result). Those that want a kernel come first, by time and bytes.

    The exit status is 1 if the program failed or ran no operator on the device.
    """
    if (model is None) == (script is None):
        raise click.UsageError("give a script, or --model MODULE:FACTORY")
    name = _device(device)

    from backplane_tools.coverage import Coverage

    account = Coverage()
    run = (
        (lambda: _script(str(script), args, account)) if script else (lambda: _model(str(model), name, steps, account))
    )
    bad = failed(run)
    operators = account.operators()
    if not operators:
        raise click.ClickException(
            f"no operator ran on {name}: the script must put its model and its data there, as in model.to('{name}')"
        )
    _print(account)
    if json_path:
        json_path.write_text(json.dumps(account.to_json(), indent=1) + "\n", encoding="utf-8")
    if bad:
        raise click.exceptions.Exit(1)


def _device(wanted: str | None) -> str:
    """Load the backend; the device to run on."""
    own = load_backend()
    if wanted is not None and wanted.split(":")[0] != own:
        raise click.ClickException(f"--device {wanted}: the installed backend's device is {own}")
    return wanted or own


def _script(path: str, args: tuple[str, ...], account: Any) -> None:
    with account:
        run_program(path, args)


def _model(name: str, device: str, steps: int, account: Any) -> None:
    import torch

    with torch.device(device):
        step = _step(_factory(name)(), device, account)
        step()  # once-only work is not counted
        account.clear()
        for _ in range(steps):
            step()


def _factory(name: str) -> Callable[[], Any]:
    module, separator, attribute = name.partition(":")
    if not separator:
        raise click.ClickException(f"--model {name}: the form is MODULE:FACTORY, as in mymodels.gpt:make")
    sys.path.insert(0, os.getcwd())
    try:
        factory: Callable[[], Any] = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise click.ClickException(f"--model {name}: {error}") from error
    return factory


def _step(made: Any, device: str, account: Any) -> Callable[[], None]:
    """The function that is measured: a given one, or forward, and backward for a module that is in training."""
    import torch
    from torch.utils._pytree import tree_leaves, tree_map

    if callable(made) and not isinstance(made, torch.nn.Module):
        return _counted(made, account)
    if not isinstance(made, tuple) or len(made) != 2 or not isinstance(made[0], torch.nn.Module):
        found = type(made).__name__
        raise click.ClickException(
            f"--model: the factory must return (module, inputs) or a step function; it returned {found}"
        )
    module, inputs = made[0].to(device), made[1]
    inputs = inputs if isinstance(inputs, (tuple, dict)) else (inputs,)
    inputs = tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, inputs)

    def forward() -> Any:
        with account:
            return module(**inputs) if isinstance(inputs, dict) else module(*inputs)

    def train() -> None:
        module.zero_grad()
        outputs = [o for o in tree_leaves(forward()) if isinstance(o, torch.Tensor) and o.requires_grad]
        if outputs:
            gradients = [torch.ones_like(o) for o in outputs]
            with account:
                torch.autograd.backward(outputs, gradients)

    def evaluate() -> None:
        with torch.no_grad():
            forward()

    return train if module.training else evaluate


def _counted(step: Callable[[], Any], account: Any) -> Callable[[], None]:
    def run() -> None:
        with account:
            step()

    return run


def _print(account: Any) -> None:
    total = account.total_ns() or 1
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("operator", "way", "calls", "ms", "%", "MB", "first called from"):
        right = title in ("calls", "ms", "%", "MB")
        last = title == "first called from"
        table.add_column(title, justify="right" if right else "left", overflow="fold", no_wrap=not last)
    here = f"{os.getcwd()}{os.sep}"
    for row in account.operators():
        way = f"[{COLOURS[row.way]}]{row.way}[/]"
        if len(row.ways) > 1:
            way += f" {row.ways[row.way]}/{row.calls}"
        share = f"{100 * row.time_ns / total:.1f}"
        numbers = (f"{row.calls:,}", f"{row.time_ns / 1e6:.3f}", share, f"{row.bytes / 1e6:.3f}")
        table.add_row(row.op, way, *numbers, row.site.removeprefix(here))
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 240)
    console.print(table)
    parts = []
    for way in (way for way in COLOURS if way != "generated"):  # which no operator is
        rows = [row for row in account.operators() if row.way == way]
        share = 100 * sum(row.time_ns for row in rows) / total
        parts.append(f"{len(rows)} {way}" + ("" if way == "composite" or not rows else f" ({share:.0f} % of the time)"))
    console.print(f"\n{len(account.operators())} operators: {', '.join(parts)}")
