"""``torch-backplane cache``: shows or clears the cache of compiled kernels."""

from __future__ import annotations

import shutil

import click

from backplane_tools.cli.output import load_backend


@click.command()
@click.option("--clear", is_flag=True, help="Remove all of it. Programs that run keep what they have loaded.")
def cache(clear: bool) -> None:
    """Show where compiled kernels are kept, how many there are, and how much they take."""
    load_backend()

    from torch_backplane import compiler

    folder = compiler.cache_dir()
    if folder is None:
        raise click.ClickException(f"kernels are not kept: {compiler.why_no_cache()}")
    if clear:
        for part in folder.iterdir():
            shutil.rmtree(part) if part.is_dir() else part.unlink()
    files = [path for path in folder.glob("??/*") if len(path.name) == _KEY]
    size = sum(path.stat().st_size for path in files)
    click.echo(f"{folder}\n{len(files)} kernels, {size / 2**20:.1f} MiB")
    failed = sorted((folder / "failed").glob("*"))
    if failed:
        click.echo(f"{len(failed)} sources that did not compile, in {folder / 'failed'}")


_KEY = 40  # characters of a kernel's file name
