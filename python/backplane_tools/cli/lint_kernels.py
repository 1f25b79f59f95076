"""``torch-backplane lint-kernels``: what a compiler of the kernel dialect would refuse, found without one."""

from __future__ import annotations

from pathlib import Path

import click

from backplane_tools.cli.output import exit_if
from backplane_tools.dialect import lint

_DEFAULT = Path("backend/kernels")


@click.command("lint-kernels")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
def lint_kernels(paths: tuple[Path, ...]) -> None:
    """Check kernel sources (.bpc) against the rules of the dialect.

    PATHS are files, or folders that are searched; without one backend/kernels is. One compiler takes what another
    refuses: the rules are those of all of them (docs/dialect.md). The exit status is 1 if a rule is broken, and 2 for
    wrong usage.
    """
    if not paths and not _DEFAULT.is_dir():
        raise click.UsageError(f"there is no folder {_DEFAULT} here: name files or folders")
    files = [
        file for path in paths or (_DEFAULT,) for file in (sorted(path.rglob("*.bpc")) if path.is_dir() else [path])
    ]
    problems = 0
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise click.UsageError(f"{file}: not a text in UTF-8: {error.reason} at byte {error.start}") from error
        for problem in lint(text):
            click.echo(f"{file}:{problem}")
            problems += 1
    click.echo(f"{len(files)} kernel sources, {problems} problems")
    exit_if(problems)
