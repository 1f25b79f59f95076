"""``torch-backplane trace``: runs a program under torch's profiler, and reports what the device did."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from backplane_tools.cli.output import FILE, SCRIPT, console, exit_if, load_backend, table, write_json
from backplane_tools.cli.program import failed, run_program

if TYPE_CHECKING:
    from backplane_tools.timeline import Summary
    from torch_backplane.fallback import Count


class _OwnOptionsAnywhere(click.Command):
    """The command's options are also accepted after the script, up to ``--``; all others there are the script's."""

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
@click.option("--out", type=FILE, help="Write the trace here, for Perfetto.")
@click.option("--html", "html_path", type=FILE, help="Write the summary as a page.")
@click.option("--json", "json_path", type=FILE, help="Write the summary as JSON.")
@click.argument("script", type=SCRIPT)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def trace(
    out: Path | None, html_path: Path | None, json_path: Path | None, script: Path, args: tuple[str, ...]
) -> None:
    """Run SCRIPT with ARGS under torch's profiler, and print what the device did.

    How long it was busy, the kernels that cost most, operators that ran on the CPU, times in which the device waited
    for the host, and copies. The whole program is recorded: give it a few steps, not an hour.

    These options are also accepted after SCRIPT; what follows "--" is the script's alone.

    The exit status is 1 if the program failed or the device did nothing.
    """
    name = load_backend()
    import torch
    from torch.profiler import ProfilerActivity, profile

    from backplane_tools.timeline import summarize
    from backplane_tools.timeline_page import page
    from torch_backplane import fallback
    from torch_backplane.testing.capabilities import lacks

    before = fallback.report()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiled:
        bad = failed(lambda: run_program(script, args))
    fallbacks = sorted(fallback.report().since(before), key=lambda each: -each.seconds)
    with tempfile.TemporaryDirectory() as folder:
        path = out or Path(folder) / "trace.json"
        profiled.export_chrome_trace(str(path))
        summary = summarize(json.loads(path.read_text(encoding="utf-8")))
    _print(summary, name, fallbacks)
    if html_path:
        html_path.write_text(page(summary, script.name, name, fallbacks), encoding="utf-8")
    rows = {"torch": torch.__version__, "fallbacks": [asdict(each) for each in fallbacks]}
    write_json(json_path, summary.to_json() | rows)
    if not summary.work and (missing := lacks("profile")):
        raise click.ClickException(
            f"the driver of {name} has no bp.{missing} (backplane/driver/profile.h), so nothing records what "
            f"it did. {name.upper()}_SHIMS=emulate records events around the work instead"
        )
    if not summary.work:
        raise click.ClickException(
            f"{name} did nothing that a profile shows: the script must put its model and its data there, "
            f"as in model.to('{name}'), and its operators must have kernels"
        )
    exit_if(bad)


def _print(summary: Summary, device: str, fallbacks: list[Count]) -> None:
    from backplane_tools.timeline import MOST, tables

    out = console()
    out.print(f"profile of {summary.microseconds / 1e3:.1f} ms")
    for each in summary.devices:
        busy = f"{each.busy_microseconds / 1e3:.2f} ms ({100 * summary.busy_share(each.device):.1f} %)"
        out.print(f"{device}:{each.device} was busy for {busy}, streams: {each.streams}")
    if summary.unfinished:
        out.print(f"[bold red]{summary.unfinished} pieces of work were not complete when the profile ended[/]")
    for title, columns, rows in tables(summary, device, fallbacks):
        if rows:
            shown = table(title, *columns, right=columns, wrap=(title,))
            for row in rows[:MOST]:
                shown.add_row(*row)
            out.print("", shown)
        if len(rows) > MOST:
            out.print(f"and {len(rows) - MOST} more")
