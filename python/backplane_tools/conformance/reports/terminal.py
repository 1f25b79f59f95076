"""The terminal: a progress bar, or plain lines if the output is no terminal; failures as they come; a summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from backplane_tools.conformance.case import Case
from backplane_tools.conformance.engine import Report
from backplane_tools.conformance.record import BAD, Row
from backplane_tools.conformance.trend import Trend

COLOURS = {status: "bold red" for status in BAD} | {"pass": "green", "xfail": "yellow", "skip": "dim"}
COLOURS |= dict.fromkeys(("crash", "timeout"), "bold magenta")
_STEPS = 20  # plain lines of progress a run


class Terminal:
    """Shows a run while it goes, within ``with terminal.bar``."""

    def __init__(self, total: int, command: Callable[[Case], str], console: Console) -> None:
        self.total = total
        self.command = command
        self.console = console
        self.done = 0
        self.counts: Counter[str] = Counter()
        self.bar = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self.bar.add_task("", total=total)

    def row(self, row: Row, old: bool = False) -> None:
        """Show one more row; of an ``old`` one, which an earlier run had, only the count."""
        self.done += 1
        self.counts[row.status] += 1
        bad = sum(self.counts[status] for status in BAD)
        self.bar.update(self._task, completed=self.done, description=f"{bad} failed  {row.case.id}"[:70])
        if row.bad and not old:
            self._print(failure(row, self.command(row.case)))
        step = max(1, self.total // _STEPS)
        if not self.console.is_terminal and not old and (self.done % step == 0 or self.done == self.total):
            self._print(Text(f"{self.done:>6}/{self.total}  {bad} failed"))

    def _print(self, text: Text) -> None:
        self.console.print(text, soft_wrap=True, highlight=False)


def failure(row: Row, command: str) -> Text:
    """A failure in two or three lines: what, why, and how to see it again."""
    text = Text.assemble((f"{row.status.upper():<8}", COLOURS[row.status]), (row.case.id, "bold"))
    if row.message:
        text.append(f"\n        {row.message}")
    text.append(f"\n        {command}", "dim")
    return text


def summarise(report: Report, trend: Trend | None, console: Console) -> None:
    """Print the table of suites, the operators' ways, the trend and what is wrong with the list."""
    about = report.about
    head = [about["device"], about["device_name"], about["backend"], f"torch {about['torch']}", about["options"]]
    console.print(Text("\n" + ", ".join(part for part in head if part), "bold"), highlight=False, soft_wrap=True)
    shown = report.shown
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("suite")
    for status in shown:
        table.add_column(status, justify="right", min_width=7)
    table.add_column("compared", justify="right")
    table.add_column("seconds", justify="right")
    for suite, rows in report.suites.items():
        _add(table, suite, rows, shown)
    if len(report.suites) > 1:
        _add(table, "all", report.rows, shown, "bold")
    console.print(table)
    routes = Counter(row.route for row in report.rows if row.route)
    if routes:
        console.print(
            "ways: " + ", ".join(f"{count} {route}" for route, count in routes.most_common()), highlight=False
        )
    for dtype, share in shares(report.rows).items():
        console.print(f"stays on the device, {dtype}: {share:.1%} of an operator's samples", highlight=False)
    if pairs := [row for row in report.rows if row.case.suite == "cuda-dtypes" and row.status != "skip"]:
        right = sum(row.status in ("pass", "xpass") for row in pairs)
        console.print(
            f"right of what CUDA has: {right / len(pairs):.2%} of {len(pairs)} operators and dtypes", highlight=False
        )
    if trend is not None:
        for line in trend.lines():
            console.print(line, highlight=False, soft_wrap=True, markup=False)
    for problem in report.problems:
        console.print(Text(problem, "bold red"), soft_wrap=True)
    bad = sum(row.bad for row in report.rows)
    if report.failed:
        what = f"{bad} of {len(report.rows)} cases failed" if bad else "the list of expected failures is out of date"
        console.print(Text(f"{what}, in {report.seconds:.0f} s", "bold red"))
    else:
        what = "case holds" if len(report.rows) == 1 else "cases hold"
        console.print(Text(f"{len(report.rows)} {what}, in {report.seconds:.0f} s", "bold green"))


def shares(rows: Sequence[Row]) -> dict[str, float]:
    """Of the suite ``device-share``: dtype -> the mean of the operators' shares."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row.case.suite == "device-share" and row.checks:
            found.setdefault(row.case.dtype or "", []).append(row.checks["stays"] / sum(row.checks.values()))
    return {dtype: sum(each) / len(each) for dtype, each in found.items()}


def _add(table: Table, name: str, rows: list[Row], shown: list[str], style: str = "") -> None:
    counts = Counter(row.status for row in rows)
    cells = [Text(str(counts[s]) if counts[s] else "-", COLOURS[s] if counts[s] else "dim") for s in shown]
    compared = sum(sum(row.checks.values()) for row in rows)
    table.add_row(Text(name, style), *cells, str(compared or "-"), f"{sum(row.seconds for row in rows):.1f}")
