"""What the commands share: the backend, options that name files, the console, tables, JSON files, the exit status."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

FILE = click.Path(dir_okay=False, path_type=Path)
SCRIPT = click.Path(exists=True, dir_okay=False, path_type=Path)

# torch_backplane.ops.ways.WAYS, which cannot be imported before torch
COLOURS = {
    "refused": "bold red",
    "fallback": "yellow",
    "composite": "cyan",
    "portable": "green",
    "generated": "green",
    "native": "green",
}


def load_backend() -> str:
    """Import the installed backend; its device's name."""
    import torch  # noqa: F401  brings the backend with it

    from torch_backplane import _backend

    if not _backend.loaded():
        raise click.UsageError("no backend is installed, or it did not load: see torch-backplane doctor")
    return _backend.device


def console() -> Console:
    """The standard output; if that is no terminal, wide enough for whole lines."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 240)


def table(*titles: str, right: Collection[str] = (), wrap: Collection[str] = (), left: int = 0) -> Table:
    """A table without lines.

    Args:
        titles: of the columns.
        right: those that are aligned to the right, of numbers.
        wrap: those whose cells may take several lines.
        left: spaces before each line.
    """
    made = Table(box=None, header_style="bold", padding=(0, 2, 0, left))
    for title in titles:
        justify = "right" if title in right else "left"
        made.add_column(title, justify=justify, overflow="fold", no_wrap=title not in wrap)  # type: ignore[arg-type]
    return made


def from_here(text: str) -> str:
    """A text that names files, relative to the working folder."""
    return text.replace(f"{os.getcwd()}{os.sep}", "")


def check_folders(*paths: Path | None) -> None:
    """Refuse a file whose folder does not exist, before the work and not after it."""
    for path in paths:
        if path is not None and not path.absolute().parent.is_dir():
            raise click.UsageError(f"cannot write {path}: there is no folder {path.parent}")


def write_json(path: Path | None, content: Any) -> None:
    """Write a file of JSON, if one is wanted."""
    if path is not None:
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def exit_if(failed: object) -> None:
    """End the command with exit status 1 if something failed."""
    if failed:
        raise click.exceptions.Exit(1)
