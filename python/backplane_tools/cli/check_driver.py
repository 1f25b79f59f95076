"""``torch-backplane check-driver``: runs the contract checker of an installed backend, or one compiled from the SDK."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click

import backplane_sdk
from torch_backplane._installed import installed_backends, package_folders

_PROGRAM = "backplane-check-driver"
_SHIMS = ("emulate", "fault", "trace")
_FLAGS = ["-std=c++17", "-O1"]


@click.command("check-driver")
@click.argument("path", required=False, type=click.Path())
@click.option("--options", metavar="STR", help="The driver's options, KEY=VALUE,...; SHIM.KEY goes to that shim.")
@click.option("--shim", multiple=True, metavar="NAME|PATH", help="A shim above it, outermost first. Repeatable.")
@click.option("--only", multiple=True, metavar="GLOB", help='Only checks whose name matches, "memory.*". Repeatable.')
@click.option("--expect", multiple=True, metavar="GLOB=WHY", help="Checks that must fail; one that passes is an error.")
@click.option("--skip", multiple=True, metavar="GLOB=WHY", help="These checks are not run. Repeatable, as --expect.")
@click.option("--time-limit", type=float, metavar="SEC", help="A check that takes longer has hung (default 20).")
@click.option("--junit", type=click.Path(dir_okay=False), metavar="FILE", help="Write the result as JUnit XML, too.")
@click.option("--list", "list_", is_flag=True, help="Print the checks and exit.")
def check_driver(path: str | None, list_: bool, **given: Any) -> None:
    """Check the driver PATH against the contract of backplane/driver.h. Needs no torch.

    The exit status is 0 if all that the driver offers passes; 1 if a check fails, or passes that is expected to fail; 2
    for wrong usage or a driver that cannot be loaded; 3 if none fails, but of a family that the driver offers no check
    could be run, and no --skip says why.
    """
    if path is None and not list_:
        raise click.UsageError("Missing argument 'PATH': the driver, a shared object that exports bp_driver_get.")
    program = installed_program() or compiled_program()
    words = [str(program), *(["--list"] if list_ else [])]
    for option, values in given.items():
        for value in values if isinstance(values, tuple) else [values]:
            words += [f"--{option.replace('_', '-')}={value}"] if value is not None else []
    words += ["--", path] if path is not None else []
    sys.stdout.flush()
    raise click.exceptions.Exit(subprocess.call(words))


def installed_program() -> Path | None:
    """Return the checker of an installed backend; None if there is none. Imports no backend and no torch."""
    for point in installed_backends():
        for folder in package_folders(point.module.split(".")[0]):
            program = folder / "bin" / _PROGRAM
            if (folder / "_build_info.py").is_file() and os.access(program, os.X_OK):
                return program
    return None


def compiled_program() -> Path:
    """Return a checker built from the SDK's sources, kept in the user's cache as long as they do not change.

    Raises:
        click.ClickException: no compiler, sources that do not compile, or a cache that others can write to.
    """
    compiler = _compiler()
    home = _cache_folder() / f"check-driver-{_fingerprint(compiler)}"
    program = home / "bin" / _PROGRAM
    if program.is_file():
        return program
    click.echo("No backend is installed: compiling the checker, once...", err=True)
    # Built aside and moved into place whole: another process sees all of it or nothing.
    with tempfile.TemporaryDirectory(dir=home.parent, prefix="build-") as scratch:
        built = Path(scratch) / "built"
        _build(compiler, built)
        try:
            built.rename(home)
        except OSError:
            if not program.is_file():  # not that another process was first
                raise
    return program


def _build(compiler: list[str], folder: Path) -> None:
    root = backplane_sdk.source_dir()
    for part in ("bin", "lib"):
        (folder / part).mkdir(mode=0o700, parents=True)
    include = ["-I", str(root / "include")]

    def compile_unit(out: Path, folders: list[str], *options: str) -> None:
        """One unit each: the headers cost more than the code."""
        sources = [source for part in folders for source in _sources(root, part)]
        unit = folder / f"{out.stem}.cpp"
        unit.write_text("".join(f'#include "{source}"\n' for source in sources))
        _run([*compiler, *_FLAGS, *include, str(unit), "-o", str(out), *options, "-lpthread"])
        unit.unlink()

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        units = [pool.submit(compile_unit, folder / "bin" / _PROGRAM, ["check_driver"], "-ldl")]
        for shim in _SHIMS:
            library = folder / "lib" / f"libbackplane_{shim}.so"
            parts = ["drivers/engine", f"drivers/shims/{shim}"]
            units.append(pool.submit(compile_unit, library, parts, "-shared", "-fPIC"))
        for one in units:
            one.result()


def _run(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()[-10:]
        raise click.ClickException(
            "the checker does not compile. It needs a C++17 compiler (g++ 11, clang 14 or newer): set CXX.\n"
            f"  {shlex.join(words)}\n" + "\n".join(f"  {line}" for line in errors[:10])
        )


def _compiler() -> list[str]:
    named = os.environ.get("CXX")
    words = shlex.split(named) if named else []
    if words:
        if shutil.which(words[0]) is None:
            raise click.ClickException(
                f"CXX is {named!r}, which is not found. Set it to a C++17 compiler, or unset it."
            )
        return words
    for name in ("g++", "clang++"):
        if found := shutil.which(name):
            return [found]
    raise click.ClickException(
        "no installed backend includes a checker, and there is no g++ or clang++ to compile one. "
        "Install g++ 11 or clang 14 or newer, or set CXX."
    )


def _sources(root: Path, folder: str) -> list[Path]:
    found = sorted((root / folder).glob("*.cpp"))
    if not found:
        raise click.ClickException(f"no {folder} in {root}: pip install --force-reinstall torch-backplane")
    return found


def _files(root: Path) -> Iterator[Path]:
    for pattern in (
        "check_driver/*",
        "drivers/engine/*",
        *(f"drivers/shims/{shim}/*" for shim in _SHIMS),
        "include/backplane/driver.h",
        "include/backplane/driver/**/*",
    ):
        yield from sorted(path for path in root.glob(pattern) if path.is_file())


def _fingerprint(compiler: list[str]) -> str:
    digest = hashlib.sha256(shlex.join([*compiler, *_FLAGS]).encode())
    root = backplane_sdk.source_dir()
    for path in _files(root):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root)}:{len(content)}:".encode() + content)
    return digest.hexdigest()[:16]


def _cache_folder() -> Path:
    """Return the user's own folder, made if absent: its programs are run, so no other user may write to it."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torch-backplane"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise click.ClickException(
            f"others can write to {folder}. Remove it, or set XDG_CACHE_HOME to your own folder."
        )
    return folder
