"""``torch-backplane explain --compiled``: what became of a program under ``torch.compile``, and its Triton kernels."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.markup import escape

from backplane_tools.cli.output import COLOURS, console, exit_if, from_here, load_backend, table
from backplane_tools.cli.program import failed, run_program

if TYPE_CHECKING:
    from backplane_tools.compile_report import Graph, Report


def explain_compiled(script: Path, args: Sequence[str], as_json: bool, times: bool) -> None:
    """Run the script and print its report. Exits with 1 if it failed or compiled nothing for the device.

    With ``times`` it runs under torch's profiler, for what each kernel and call took of the device.
    """
    name = load_backend()
    from torch.profiler import ProfilerActivity, profile

    from backplane_tools import compile_report

    kinds = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
    with compile_report.collect() as found, profile(activities=kinds) if times else nullcontext() as profiled:
        bad = failed(lambda: run_program(script, args))
    if profiled is not None:
        found.add_times(profiled)
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=1))
    else:
        _print(found)
    if not found.graphs and not found.triton:
        nothing = f"compiled no graph for {name} by torch.compile's backend inductor, and ran no kernel of Triton"
        raise click.ClickException(f"{script} {nothing}")
    exit_if(bad)


def _print(found: Report) -> None:
    out = console()

    def places(lines: Sequence[str]) -> str:
        shown = [from_here(line) for line in lines]
        return escape(", ".join(shown[:3]) + (f" and {len(shown) - 3} more" if len(shown) > 3 else ""))

    out.print(f"[bold]graph breaks: {len(found.breaks)}[/bold]")
    for one in found.breaks:
        lines = [line.strip() for line in one.reason.strip().splitlines()]
        said = [line.removeprefix("Explanation: ") for line in lines[1:] if line.startswith("Explanation: ")]
        out.print(f"  {places([one.place])}  {escape(': '.join(lines[:1] + said))}", soft_wrap=True)
    for graph in found.graphs:
        counts = f"{len(graph.kernels)} kernels, {len(graph.calls)} calls"
        file = f"\n  {graph.file}" if graph.file else ""  # of AOTInductor's packages there is none
        out.print(f"\n[bold]graph {graph.name}[/bold]: {counts}{file}", soft_wrap=True)
        texts = ("", "operators", "the kernel's name, or why they are called", "from")
        numbers = ("runs", "ms") if graph.times else ()
        rows = table(*texts, *numbers, right=numbers, wrap=texts, left=2)
        for kernel in graph.kernels:
            row = _coloured(kernel.way), _short(kernel.fuses), escape(kernel.name), places(kernel.places)
            rows.add_row(*row, *_times(graph, [kernel.name]))
        for way, why in dict.fromkeys((call.way, call.why) for call in graph.calls):
            calls = [call for call in graph.calls if (call.way, call.why) == (way, why)]
            lines = list(dict.fromkeys(place for call in calls for place in call.places))
            row = _coloured(way), _short([call.op for call in calls]), escape(why), places(lines)
            rows.add_row(*row, *_times(graph, [call.operator for call in calls]))
        out.print(rows)
    _print_triton(found)
    parts = f"{found.kernels_compiled} kernels compiled, {found.kernels_from_cache} from the cache"
    inductor = found.seconds.get("inductor", 0)
    out.print(f"\ncompilation: {found.seconds.get('all', 0):.1f} s, of which Inductor {inductor:.1f} s; {parts}")


def _print_triton(found: Report) -> None:
    if not found.triton:
        return
    out = console()
    out.print(f"\n[bold]kernels of Triton: {len(found.triton)}[/bold]")
    times = {time.name: time for time in found.triton_times}
    for name, place in dict.fromkeys((kernel.name, kernel.place) for kernel in found.triton):
        ran = (
            f"  {times[name].calls:,} runs, {times[name].microseconds / 1e3:.3f} ms"
            if name in times and times[name].calls
            else ""
        )
        out.print(f"  {escape(name)}  {escape(from_here(place))}{ran}", soft_wrap=True)
        for kernel in found.triton:
            if (kernel.name, kernel.place) == (name, place):
                out.print(f"    {escape(kernel.settings)}", soft_wrap=True)
                for title, file in [*(("text", file) for file in kernel.texts), ("code", kernel.code)]:
                    out.print(f"      {title} {escape(file)}" if file else f"      {title} not kept", soft_wrap=True)


def _coloured(way: str) -> str:
    return f"[{COLOURS[way]}]{way}[/]" if way else "call"


def _times(graph: Graph, names: Sequence[str]) -> tuple[str, str]:
    """How often they ran on the device, and for how long; nothing where no profile saw them."""
    seen = [time for time in graph.times if time.name in names]
    if not seen:
        return "", ""
    return f"{sum(time.calls for time in seen):,}", f"{sum(time.microseconds for time in seen) / 1e3:.3f}"


def _short(ops: Sequence[str]) -> str:
    names = Counter(op.removeprefix("torch.ops.").removeprefix("aten.").removesuffix(".default") for op in ops)
    return escape(", ".join(name if count == 1 else f"{count} {name}" for name, count in names.items()))
