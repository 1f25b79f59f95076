"""``torch-backplane precompile``: compiles kernels for the package, without a device."""

from __future__ import annotations

from pathlib import Path

import click

from backplane_tools.cli.output import SCRIPT, exit_if, load_backend


@click.command()
@click.option("--record", type=SCRIPT, help="What to compile: a file that <DEVICE>_RECORD_KERNELS=FILE wrote in a run.")
@click.option("--target", "targets", multiple=True, metavar="NAME", help="For what; repeatable.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="The folder: <package>/kernels.")
@click.option("--list-targets", is_flag=True, help="Print what the compiler can make, and end.")
def precompile(record: Path | None, targets: tuple[str, ...], out: Path | None, list_targets: bool) -> None:
    """Compile the kernels of a record for other targets, into a folder of the package.

    A program that finds a kernel there compiles nothing. No device is needed, and none is touched. The exit status is 1
    if a kernel could not be compiled.
    """
    name = load_backend()

    from torch_backplane import compiler

    if list_targets:
        for target in compiler.targets():
            click.echo(target)
        return
    if record is None or out is None or not targets:
        raise click.UsageError(
            "give --record, --target and --out. To make a record: "
            f"{name.upper()}_RECORD_KERNELS=used.json python program.py"
        )
    made = failed = 0
    try:
        for target, kernel, reason in compiler.precompile(record, targets, out):
            made += not reason
            failed += bool(reason)
            if reason:
                click.echo(f"{kernel} for {target}:\n{reason}", err=True)
    except (ValueError, RuntimeError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{made} kernels in {out}" + (f", {failed} could not be compiled" if failed else ""))
    exit_if(failed)
