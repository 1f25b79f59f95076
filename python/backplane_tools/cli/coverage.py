"""``torch-backplane coverage``: which operators a model runs, and how; what to implement next."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from backplane_tools.cli.output import (
    COLOURS,
    FILE,
    SCRIPT,
    console,
    exit_if,
    from_here,
    load_backend,
    table,
    write_json,
)
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
@click.option("--json", "json_path", type=FILE, help="Write the account here.")
@click.argument("script", required=False, type=SCRIPT)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def coverage(
    model: str | None,
    device: str | None,
    steps: int,
    json_path: Path | None,
    script: Path | None,
    args: tuple[str, ...],
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

    def run() -> None:
        if script is None:
            return _model(str(model), name, steps, account)
        with account:
            run_program(script, args)

    bad = failed(run)
    if not account.operators():
        raise click.ClickException(
            f"no operator ran on {name}: the script must put its model and its data there, as in model.to('{name}')"
        )
    _print(account)
    write_json(json_path, account.to_json())
    exit_if(bad)


def _device(wanted: str | None) -> str:
    """Load the backend; the device to run on."""
    own = load_backend()
    if wanted is not None and wanted.split(":")[0] != own:
        raise click.ClickException(f"--device {wanted}: the installed backend's device is {own}")
    return wanted or own


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
    rows, total = account.operators(), account.total_ns() or 1
    last = "first called from"
    shown = table("operator", "way", "calls", "ms", "%", "MB", last, right=("calls", "ms", "%", "MB"), wrap=(last,))
    for row in rows:
        way = f"[{COLOURS[row.way]}]{row.way}[/]"
        if len(row.ways) > 1:
            way += f" {row.ways[row.way]}/{row.calls}"
        share = f"{100 * row.time_ns / total:.1f}"
        numbers = (f"{row.calls:,}", f"{row.time_ns / 1e6:.3f}", share, f"{row.bytes / 1e6:.3f}")
        shown.add_row(row.op, way, *numbers, from_here(row.site))
    out = console()
    out.print(shown)
    parts = []
    for way in (way for way in COLOURS if way != "generated"):  # which no operator is
        times = [row.time_ns for row in rows if row.way == way]
        share = f" ({100 * sum(times) / total:.0f} % of the time)" if times and way != "composite" else ""
        parts.append(f"{len(times)} {way}{share}")
    out.print(f"\n{len(rows)} operators: {', '.join(parts)}")
