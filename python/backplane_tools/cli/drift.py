"""``torch-backplane drift``: how the private names, classes and schemas that the SDK uses differ in a torch."""

from __future__ import annotations

import difflib
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from backplane_tools.cli.output import FILE, exit_if, write_json
from backplane_tools.drift import DEVELOPED_WITH, Change, Surface, compare, record

_COLOURS = {"gone": "bold red", "changed": "yellow", "new": "green"}


@click.command()
@click.option(
    "--torch",
    "which",
    metavar="TORCH",
    help="An interpreter, an environment, a folder with torch in it, or a version of the record; default: the torch "
    "that is installed here.",
)
@click.option(
    "--against",
    metavar="TORCH|FILE",
    help=f"What it is compared with, as --torch, or a file of --record; default: {DEVELOPED_WITH}, of the record.",
)
@click.option("--json", "json_path", type=FILE, help="Write the changes here.")
@click.option(
    "--record",
    "record_path",
    type=FILE,
    metavar="FILE",
    help="Compare nothing: put what that torch has into this file.",
)
def drift(which: str | None, against: str | None, json_path: Path | None, record_path: Path | None) -> None:
    """Compare what the SDK uses of torch's private surface with a torch.

    That is: private Python names, with their parameters; the virtual functions of C++ classes that the core derives
    from, and the headers that it includes; the schemas of operators that it registers. No backend is needed.

    The exit status is 0 if all is alike, 1 if something has changed, and 2 if something cannot be read.
    """
    if record_path is not None:
        if against is not None or json_path is not None:
            raise click.UsageError("--record compares nothing: leave --against and --json out")
        _record(which, record_path)
        return
    before, after = _surface(against or DEVELOPED_WITH), _surface(which)
    changes = list(compare(before, after))
    unknown = {**before.unknown, **after.unknown}
    entries = [{"change": one.kind, **asdict(one)} for one in changes]
    document = {"against": before.version, "torch": after.version, "changes": entries, "unknown": unknown}
    write_json(json_path, document)
    _print(before, after, changes)
    exit_if(changes)


def _surface(which: str | None) -> Surface:
    """Return the surface that an argument names."""
    from backplane_tools.drift.look import look

    own = record.minors()
    if which in own:
        return record.read(which)
    path = None if which is None else Path(which)
    if path is not None and not path.exists():
        raise click.UsageError(f"{which}: no such file or folder, nor a version of the record ({', '.join(own)})")
    try:
        if path is None or path.suffix != ".json":
            return look(path)
        versions = record.minors(path)
        if len(versions) != 1:
            raise click.UsageError(f"{path} has the versions {', '.join(versions)}: record one torch a file")
        return record.read(versions[0], path)
    except (OSError, RuntimeError, ValueError) as error:
        raise click.UsageError(str(error)) from error


def _record(which: str | None, path: Path) -> None:
    from backplane_tools.drift.look import look, registered_operators

    try:
        surface = look(Path(which)) if which else look(None, registered_operators())
        record.write(surface, path)
    except (OSError, RuntimeError, ValueError) as error:
        raise click.UsageError(str(error)) from error
    counts = ", ".join(f"{len(names)} {section}" for section, names in surface.texts.items())
    click.echo(f"torch {surface.version}: {counts}: {path}")


def _print(before: Surface, after: Surface, changes: list[Change]) -> None:
    console = Console()
    if changes:
        table = Table(title=f"torch {after.version} against {before.version}", title_justify="left")
        for column in ("section", "name", "change"):
            table.add_column(column, overflow="fold")
        table.add_column(f"{before.version} (-), {after.version} (+)", overflow="fold")
        for one in changes:
            words = (one.section, one.name, one.kind, "\n".join(_lines(one)))
            table.add_row(*map(Text, words), style=_COLOURS[one.kind])
        console.print(table)
    for name, why in sorted({**before.unknown, **after.unknown}.items()):
        console.print(f"not looked at: {name}: {why}", markup=False, style="yellow")
    names = sum(len(names) for names in after.texts.values())
    console.print(
        f"torch {after.version} against {before.version}: {names} names, {len(changes)} changes", markup=False
    )


def _lines(change: Change) -> list[str]:
    """Return the lines that one has and the other has not."""
    old, new = ((text or "").splitlines() for text in (change.before, change.after))
    return [line for line in difflib.ndiff(old, new) if line.startswith(("- ", "+ "))]
