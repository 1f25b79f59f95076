"""``torch-backplane conformance``: compares a device with the CPU, and writes the reports."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from contextlib import closing, nullcontext
from pathlib import Path

import click
from click.core import ParameterSource
from rich.console import Console

from backplane_tools.cli.output import FILE, check_folders, exit_if, write_json
from backplane_tools.conformance.engine import Gathered, Plan, Report, execute, gather
from backplane_tools.conformance.errors import ConformanceError
from backplane_tools.conformance.expected import Expected
from backplane_tools.conformance.journal import Journal
from backplane_tools.conformance.merge import merge as merge_reports
from backplane_tools.conformance.pool import Here, Pool
from backplane_tools.conformance.process import Setup
from backplane_tools.conformance.reports.html import write_html
from backplane_tools.conformance.reports.junit import write_junit
from backplane_tools.conformance.reports.terminal import Terminal, summarise
from backplane_tools.conformance.resources import default_jobs, default_memory, worker_threads
from backplane_tools.conformance.selection import Selection
from backplane_tools.conformance.suites import SUITES
from backplane_tools.conformance.trend import Trend
from torch_backplane._installed import installed_backends

_VARIABLES = (
    "DRIVER",
    "SHIMS",
    "OPTIONS",
    "VISIBLE_DEVICES",
    "FALLBACK",
    "ALLOC_CONF",
    "LAUNCH_BLOCKING",
    "WATCHDOG_SECONDS",
    "KERNELS",
    "COMPILER_OPTIONS",
)


def _shard(context: click.Context, parameter: click.Parameter, value: str) -> tuple[int, int]:
    """``i/n``: the i-th of n equal parts."""
    found = re.fullmatch(r"(\d+)/(\d+)", value)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise click.BadParameter(f"{value!r} is not i/n with 1 <= i <= n, such as 2/4")
    return int(found[1]), int(found[2])


@click.command("conformance")
@click.argument("cases", nargs=-1)
@click.option(
    "--device", metavar="NAME", help="The device, such as mydevice or mydevice:1; default: the one installed."
)
@click.option(
    "--package", envvar="BACKPLANE_PACKAGE", metavar="NAME", help="Its Python package, if it has no entry point."
)
@click.option(
    "--suite", multiple=True, metavar="NAMES", help=f"Of {','.join(SUITES)}; one of your own is NAME=module:Class."
)
@click.option("--dtype", multiple=True, metavar="NAMES", help="Only these, such as float32,bfloat16.")
@click.option("--op", multiple=True, metavar="GLOB", help="Only cases of this name, such as 'nn.functional.*'.")
@click.option("--shard", callback=_shard, default="1/1", metavar="i/n", help="The i-th of n parts, for n machines.")
@click.option("-j", "--jobs", type=click.IntRange(0), help="Worker processes; 0: in this one, for a debugger.")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), default=120.0, show_default=True, metavar="SEC")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--recycle", type=click.IntRange(1), default=500, show_default=True, help="Cases a worker process.")
@click.option("--memory", type=click.FloatRange(0, min_open=True), metavar="GIB", help="A worker's limit.")
@click.option("--resume", is_flag=True, help="Continue the interrupted run of the same selection.")
@click.option("--json", "json_", type=FILE, metavar="FILE", help="Write the results as JSON.")
@click.option("--junit", type=FILE, metavar="FILE", help="Write them as JUnit XML.")
@click.option("--html", type=FILE, metavar="FILE", help="Write them as one HTML page.")
@click.option("--baseline", type=FILE, metavar="FILE", help="The --json of an earlier run, to show the trend.")
@click.option(
    "--merge", type=FILE, multiple=True, metavar="FILE", help="Run nothing: report on --json files, of shards."
)
@click.option("--expected", type=FILE, metavar="FILE", help="Expected failures; default: conformance.toml, if there.")
@click.option("--list", "list_", is_flag=True, help="Print the cases and exit.")
def conformance(
    cases: tuple[str, ...],
    device: str | None,
    package: str | None,
    suite: tuple[str, ...],
    dtype: tuple[str, ...],
    op: tuple[str, ...],
    shard: tuple[int, int],
    jobs: int | None,
    timeout: float,
    seed: int,
    recycle: int,
    memory: float | None,
    resume: bool,
    json_: Path | None,
    junit: Path | None,
    html: Path | None,
    baseline: Path | None,
    merge: tuple[Path, ...],
    expected: Path | None,
    list_: bool,
) -> None:
    """Compare a device with the CPU.

    CASES are ids, such as ops/add/float32, or globs over them; without any, all cases of the suites run. Each runs in a
    worker process: one that crashes or hangs costs its row alone. The exit status is 0 if all is as expected, 1 if not,
    2 for wrong usage or a device that does not load.
    """
    console = Console(highlight=False)
    check_folders(json_, junit, html)
    try:
        if baseline is not None:
            Trend.between(baseline, [], set())  # refused before the run, not after it
        if merge:
            _refuse_others(click.get_current_context(), {"merge", "json_", "junit", "html", "baseline"})
            report = merge_reports(merge)
            ids = {row.case.id for row in report.rows}
        else:
            selection = Selection.of(_words(suite), cases, dtypes=tuple(_words(dtype)) or None, ops=op, shard=shard)
            listed = Expected.read(expected) if expected else Expected.read_default(Path())
            plan = Plan(selection, seed, listed, _repeat(device, package), _environment(device))
            count = jobs if jobs is not None else default_jobs()
            limit = int(memory * 2**30) if memory is not None else default_memory(count)
            setup = Setup(device, package, selection.where, worker_threads(count), limit)
            signal.signal(signal.SIGTERM, _interrupt)
            made = Pool(setup, jobs=count, timeout=timeout, recycle=recycle) if count else Here(setup)
            with closing(made) as place:
                waiting = console.status("loading the device and listing the cases")
                with waiting if console.is_terminal else nullcontext():
                    gathered = gather(plan, place)
                if list_:
                    for case in gathered.cases:
                        click.echo(case.id)
                    return
                journal = Journal({"device": device, "package": package, "seed": seed, **selection.to_json()})
                report, ids = _run(plan, place, gathered, journal, resume, console), gathered.ids
        trend = Trend.between(baseline, report.rows, ids) if baseline is not None else None
        write_json(json_, report.to_json())
        if junit is not None:
            write_junit(report, junit)
        if html is not None:
            write_html(report, trend, html)
        summarise(report, trend, console)
    except ConformanceError as error:
        raise click.UsageError(str(error)) from error
    except KeyboardInterrupt:
        raise click.exceptions.Exit(130) from None
    exit_if(report.failed)


def _run(
    plan: Plan, place: Pool | Here, gathered: Gathered, journal: Journal, resume: bool, console: Console
) -> Report:
    terminal = Terminal(len(gathered.cases), plan.command, console)
    with terminal.bar:
        try:
            return execute(plan, place, gathered, journal=journal, resume=resume, on_row=terminal.row)
        except KeyboardInterrupt:
            terminal.bar.stop()
            again = shlex.join(["torch-backplane", *sys.argv[1:], *([] if "--resume" in sys.argv else ["--resume"])])
            done = f"interrupted after {terminal.done} of {len(gathered.cases)} cases"
            console.print(f"\n{done}. To go on:\n  {again}", soft_wrap=True)
            raise


def _refuse_others(context: click.Context, kept: set[str]) -> None:
    """Refuse options that have no meaning with --merge."""
    given = [
        parameter
        for parameter in context.command.params
        if parameter.name not in kept
        and context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    ]
    if given:
        raise ConformanceError(f"--merge runs nothing, so {given[0].opts[0]} beside it has no meaning: leave one out")


def _words(values: tuple[str, ...]) -> list[str]:
    return [word.strip() for value in values for word in value.split(",") if word.strip()]


def _repeat(device: str | None, package: str | None) -> tuple[str, ...]:
    flags = (("--device", device), ("--package", package))
    return tuple(word for flag, value in flags if value is not None for word in (flag, value))


def _environment(device: str | None) -> dict[str, str]:
    names = [device.split(":")[0]] if device else [point.name for point in installed_backends()]
    variables = [f"{name.upper()}_{variable}" for name in names for variable in _VARIABLES]
    return {name: os.environ[name] for name in variables if name in os.environ}


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
