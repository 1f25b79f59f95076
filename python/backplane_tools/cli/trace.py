"""``torch-backplane trace``: runs a program under torch's profiler, and tells what the device did."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from backplane_tools.cli.backend import load_backend
from backplane_tools.cli.program import failed, run_program

_MOST = 10  # rows of a table


class _OwnOptionsAnywhere(click.Command):
    """The command's own options may stand behind the script, too, up to ``--``; all others there are the script's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {name for each in self.params if isinstance(each, click.Option) for name in each.opts}
        until = args.index("--") if "--" in args else len(args)
        words, ours, others = args[:until], [], []
        while words:
            word = words.pop(0)
            if word.partition("=")[0] not in own:
                others.append(word)
                continue
            ours.append(word)
            if word in own:
                if not words:
                    raise click.UsageError(f"Option '{word}' requires an argument.", ctx)
                ours.append(words.pop(0))
        return super().parse_args(ctx, [*ours, *others, *args[until + 1 :]])


@click.command(
    cls=_OwnOptionsAnywhere, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the trace here, for Perfetto.")
@click.option(
    "--html", "html_path", type=click.Path(dir_okay=False, path_type=Path), help="Write the summary as a page."
)
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write the summary as JSON.")
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def trace(out: Path | None, html_path: Path | None, json_path: Path | None, script: str, args: tuple[str, ...]) -> None:
    """Run SCRIPT with ARGS under torch's profiler, and print what the device did.

    How long it was busy, the kernels that cost most, operators that ran on the CPU, times in which the device waited
    for the host, and copies. The whole program is recorded: give it a few steps, not an hour.

    These options may stand behind SCRIPT, too; what follows "--" is the script's alone.

    The exit status is 1 if the program failed or the device did nothing.
    """
    name = load_backend()
    import torch
    from torch.profiler import ProfilerActivity, profile

    from backplane_tools.timeline import summarize
    from backplane_tools.timeline_page import page
    from torch_backplane import fallback
    from torch_backplane.testing.capabilities import lacks

    before = {count.op: count for count in fallback.report().counts}
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiled:
        bad = failed(lambda: run_program(script, args))
    fallbacks = []
    widened = {}
    for count in fallback.report().counts:
        old = before.get(count.op)
        widened[count.op] = count.widened - (old.widened if old else 0)
        calls, seconds = count.calls - (old.calls if old else 0), count.seconds - (old.seconds if old else 0.0)
        if calls:
            fallbacks.append((count.op, calls, seconds))
    fallbacks.sort(key=lambda each: -each[2])
    with tempfile.TemporaryDirectory() as folder:
        path = out or Path(folder) / "trace.json"
        profiled.export_chrome_trace(str(path))
        summary = summarize(json.loads(path.read_text(encoding="utf-8")))
    _print(summary, name, fallbacks, widened)
    if html_path:
        html_path.write_text(page(summary, Path(script).name, name, fallbacks), encoding="utf-8")
    if json_path:
        rows = [
            {"op": op, "calls": calls, "widened": widened[op], "seconds": seconds} for op, calls, seconds in fallbacks
        ]
        text = json.dumps(summary.to_json() | {"torch": torch.__version__, "fallbacks": rows}, indent=1)
        json_path.write_text(text + "\n", encoding="utf-8")
    if not summary.work and (missing := lacks("profile")):
        raise click.ClickException(
            f"the driver of {name} has no bp.{missing} (backplane/driver/profile.h), so nothing tells what "
            f"it did. {name.upper()}_SHIMS=emulate records events around the work instead"
        )
    if not summary.work:
        raise click.ClickException(
            f"{name} did nothing that a profile shows: the script must put its model and its data there, "
            f"as in model.to('{name}'), and its operators must have kernels"
        )
    if bad:
        raise click.exceptions.Exit(1)


def _print(summary: Any, device: str, fallbacks: list[tuple[str, int, float]], widened: Mapping[str, int]) -> None:
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    length = summary.microseconds
    console.print(f"profile of {length / 1e3:.1f} ms")
    for each in summary.devices:
        busy = f"{each.busy_microseconds / 1e3:.2f} ms ({100 * summary.busy_share(each.device):.1f} %)"
        console.print(f"{device}:{each.device} was busy for {busy}, streams: {each.streams}")
    if summary.unfinished:
        console.print(f"[bold red]{summary.unfinished} pieces of work were not complete when the profile ended[/]")
    _table(
        console,
        "costliest kernels",
        ("calls", "ms", "%"),
        [
            (
                kernel.name,
                f"{kernel.calls:,}",
                f"{kernel.microseconds / 1e3:.3f}",
                f"{100 * kernel.microseconds / length:.1f}",
            )
            for kernel in summary.kernels
        ],
    )
    _table(
        console,
        "operators on the CPU",
        ("calls", "in float32", "ms", "%"),
        [
            (op, f"{calls:,}", f"{widened[op] or ''}", f"{seconds * 1e3:.3f}", f"{1e8 * seconds / length:.1f}")
            for op, calls, seconds in fallbacks
        ],
    )
    _table(
        console,
        "waited for the host, then queued by",
        ("at ms", "ms", "%"),
        [
            (
                gap.operator or "-",
                f"{gap.begin / 1e3:.2f}",
                f"{gap.microseconds / 1e3:.3f}",
                f"{100 * gap.microseconds / length:.1f}",
            )
            for gap in summary.gaps
        ],
    )
    _table(
        console,
        "copies",
        ("calls", "MB", "ms", "GB/s"),
        [
            (
                copies.name,
                f"{copies.calls:,}",
                f"{copies.bytes / 1e6:.3f}",
                f"{copies.microseconds / 1e3:.3f}",
                f"{copies.gigabytes_per_second:.2f}",
            )
            for copies in summary.copies
        ],
    )


def _table(console: Console, title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    if not rows:
        return
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column(title, overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows[:_MOST]:
        table.add_row(*row)
    console.print()
    console.print(table)
    if len(rows) > _MOST:
        console.print(f"and {len(rows) - _MOST} more")
