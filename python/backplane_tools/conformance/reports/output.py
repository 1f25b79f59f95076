"""Where a run's report goes: the terminal, and the files that were asked for."""

from __future__ import annotations

import json
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from backplane_tools.conformance.engine import Report
from backplane_tools.conformance.errors import ConformanceError
from backplane_tools.conformance.reports.html import write_html
from backplane_tools.conformance.reports.junit import write_junit
from backplane_tools.conformance.reports.terminal import summarise
from backplane_tools.conformance.trend import Trend


@dataclass
class Output:
    """The files, None for those that are not wanted."""

    console: Console
    json: Path | None = None
    junit: Path | None = None
    html: Path | None = None
    baseline: Path | None = None
    """The JSON report of an earlier run."""

    def check(self) -> None:
        """Find out before the run, not after it, that a file cannot be read or written.

        Raises:
            ConformanceError: it cannot.
        """
        for path in (self.json, self.junit, self.html):
            if path is not None and not path.absolute().parent.is_dir():
                raise ConformanceError(f"cannot write {path}: there is no folder {path.parent}")
        if self.baseline is not None:
            Trend.between(self.baseline, [], set())

    def write(self, report: Report, ids: Set[str]) -> None:
        """Write the files and print the summary."""
        trend = Trend.between(self.baseline, report.rows, ids) if self.baseline is not None else None
        if self.json is not None:
            self.json.write_text(json.dumps(report.to_json(), indent=1) + "\n", encoding="utf-8")
        if self.junit is not None:
            write_junit(report, self.junit)
        if self.html is not None:
            write_html(report, trend, self.html)
        summarise(report, trend, self.console)
