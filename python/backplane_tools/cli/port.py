"""``torch-backplane port``: where a program names CUDA, each place with what to write; ``--write`` writes it."""

from __future__ import annotations

import difflib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click
from rich.markup import escape

from backplane_tools.cli.output import FILE, check_folders, console, exit_if, write_json
from backplane_tools.port import Place, Ported, Target, notebook_problem, port_source

_SKIPPED = {"__pycache__", "node_modules", "site-packages"}


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--device", metavar="NAME", help="Write this device's name. Default: what works on every accelerator.")
@click.option("--write", is_flag=True, help="Make the replacements in the files.")
@click.option("--diff", is_flag=True, help="Print them as a patch.")
@click.option("--json", "json_path", type=FILE, metavar="FILE")
def port(paths: tuple[Path, ...], device: str | None, write: bool, diff: bool, json_path: Path | None) -> None:
    """Find where Python programs name CUDA, and what to write instead.

    PATHS are files, or folders, whose .py files are read (not hidden ones, nor environments below them). Nothing of
    them is imported. What cannot be replaced safely is left, with a reason. Notebooks are not read; those that name
    CUDA are reported. The exit status is 1 if a place that names CUDA is left or a file is not read, 2 for wrong usage.
    """
    check_folders(json_path)
    try:
        target = Target(device)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    done: dict[Path, Ported] = {}
    for path in dict.fromkeys(file for given in paths for file in _files(given)):
        try:
            content = path.read_bytes()
        except OSError as error:
            done[path] = Ported(b"", problem=error.strerror or str(error))
            continue
        is_notebook = path.suffix == ".ipynb"
        ported = Ported(content, problem=notebook_problem(content)) if is_notebook else port_source(content, target)
        if diff:
            _print_diff(path, content, ported.content)
        if write and ported.content != content:
            try:
                _write(path, ported.content)
            except OSError as error:
                raise click.ClickException(f"{path} cannot be written: {error.strerror or error}") from error
        if ported.places or ported.problem:
            done[path] = ported
    if not diff:
        _print(done, write)
    files = {
        str(path): {"problem": ported.problem, "places": [asdict(place) for place in ported.places]}
        for path, ported in done.items()
    }
    write_json(json_path, {"device": target.device, "written": write, "files": files})
    places = [place for ported in done.values() for place in ported.places]
    is_left = any(place.counts and not (write and place.new is not None) for place in places)
    exit_if(is_left or any(ported.problem for ported in done.values()))


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for folder, below, files in os.walk(path):
        below[:] = sorted(
            name
            for name in below
            if not name.startswith(".") and name not in _SKIPPED and not Path(folder, name, "pyvenv.cfg").exists()
        )
        yield from (Path(folder, name) for name in sorted(files) if name.endswith((".py", ".ipynb")))


def _write(path: Path, content: bytes) -> None:
    """At once: a file is the old or the new one, with its permissions, and a link goes on leading to it."""
    path = path.resolve()
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with open(handle, "wb") as file:
            file.write(content)
        os.chmod(name, path.stat().st_mode & 0o7777)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _print_diff(path: Path, old: bytes, new: bytes) -> None:
    """As bytes: a patch has the files' own encodings and line ends."""
    lines = ([line + b"\n" for line in content.split(b"\n")] for content in (old, new))
    before, after = ([*part[:-1], *([part[-1][:-1]] if part[-1] != b"\n" else [])] for part in lines)
    name = os.fsencode(path.as_posix().lstrip("/"))
    for line in difflib.diff_bytes(difflib.unified_diff, before, after, b"a/" + name, b"b/" + name):
        click.echo(line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n", nl=False)


def _print(done: dict[Path, Ported], write: bool) -> None:
    out = console()
    for path, ported in done.items():
        if ported.problem:
            out.print(f"{escape(str(path))}: [red]not read[/]: {escape(ported.problem)}", soft_wrap=True)
        for place in ported.places:
            out.print(f"{escape(str(path))}:{place.line}:{place.column}: {_shown(place)}", soft_wrap=True)
    places = [place for ported in done.values() for place in ported.places]
    replaced, left = [place for place in places if place.new is not None], [place for place in places if not place.new]
    counted = sum(place.counts for place in left)
    verb = "replaced" if write else "to replace (--write does)"
    unread = sum(bool(ported.problem) for ported in done.values())
    where = f"in {len(done) - unread} files" + (f"; {unread} not read" if unread else "")
    rest = f"{counted} left, {len(left) - counted} without effect, {where}"
    out.print(f"{len(replaced)} {verb}, {rest}", soft_wrap=True)


def _shown(place: Place) -> str:
    if place.new is not None:
        return f"[red]{escape(place.old)}[/] -> [green]{escape(place.new)}[/]"
    return f"{escape(place.old)}: [{'yellow' if place.counts else 'dim'}]{escape(place.reason)}[/]"
