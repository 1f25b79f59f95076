"""The run: picks the cases, has them run, compares the results with what is expected, keeps the journal."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from backplane_tools.conformance.case import Case
from backplane_tools.conformance.expected import Expected
from backplane_tools.conformance.journal import Journal
from backplane_tools.conformance.pool import Workplace
from backplane_tools.conformance.record import STATUSES, Row
from backplane_tools.conformance.selection import Selection
from backplane_tools.conformance.suites import SUITES


@dataclass
class Plan:
    """What a run is to do."""

    selection: Selection
    seed: int = 0
    expected: Expected = field(default_factory=Expected)
    repeat: tuple[str, ...] = ()
    """Words of the command line, beside the case, that repeat a case of this run."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the results depend on, for the same line."""

    def command(self, case: Case) -> str:
        """The line that repeats one case alone."""
        environment = [f"{name}={shlex.quote(value)}" for name, value in sorted(self.environment.items())]
        place = self.selection.where[case.suite]
        own = [] if SUITES.get(case.suite) == place else ["--suite", f"{case.suite}={place}"]
        dtypes = ["--dtype", case.dtype] if case.dtype and self.selection.dtypes is not None else []
        seed = ["--seed", str(self.seed)] if self.seed else []
        words = ["torch-backplane", "conformance", case.id, *own, *dtypes, *seed, *self.repeat]
        return " ".join([*environment, *map(shlex.quote, words)])


@dataclass
class Report:
    """The results of a run."""

    about: dict[str, Any]
    rows: list[Row]
    problems: list[str] = field(default_factory=list)
    """What is wrong with the list of expected failures."""
    seconds: float = 0
    commands: dict[str, str] = field(default_factory=dict)
    """Case id -> the line that repeats it, for what is not a plain pass."""
    started: str = ""

    @property
    def counts(self) -> dict[str, int]:
        """Rows of each status, in the order of STATUSES."""
        found = Counter(row.status for row in self.rows)
        return {status: found[status] for status in STATUSES}

    @property
    def suites(self) -> dict[str, list[Row]]:
        """The rows of each suite."""
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            found.setdefault(row.case.suite, []).append(row)
        return found

    @property
    def shown(self) -> list[str]:
        """The statuses that the reports list: those that occur, pass and fail."""
        return [status for status, count in self.counts.items() if count or status in ("pass", "fail")]

    @property
    def failed(self) -> bool:
        """Whether the exit status is 1."""
        return bool(self.problems) or any(row.bad for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        """The JSON report, which ``--baseline`` reads."""
        return {
            "format": 1,
            "about": self.about,
            "started": self.started,
            "seconds": round(self.seconds, 3),
            "counts": self.counts,
            "problems": self.problems,
            "cases": [self._case(row) for row in self.rows],
        }

    def _case(self, row: Row) -> dict[str, Any]:
        command = self.commands.get(row.case.id)
        return {**row.to_json(), "command": command} if command else row.to_json()


@dataclass
class Gathered:
    """What there is to run."""

    cases: list[Case]
    """Those that the selection picks, in their order."""
    ids: set[str]
    """All cases of the suites, picked or not, of the suites' own dtypes and those asked for."""
    problems: list[str]
    """What is wrong with the list of expected failures."""


def gather(plan: Plan, workplace: Workplace) -> Gathered:
    """List the suites' cases and pick from them.

    Raises:
        ConformanceError: an unknown suite, a pattern without cases, or a suite that cannot be loaded.
    """
    selection = plan.selection
    cases = [case for suite in selection.where for case in workplace.cases(suite, selection.dtypes)]
    picked = selection.pick(cases)
    ids = {case.id for case in cases}
    if selection.dtypes is not None:
        ids |= {case.id for suite in selection.where for case in workplace.cases(suite, None)}
    problems = plan.expected.stale(ids, selection.where, [*SUITES, *selection.where])
    return Gathered(picked, ids, problems)


def execute(
    plan: Plan,
    workplace: Workplace,
    gathered: Gathered,
    *,
    journal: Journal | None = None,
    resume: bool = False,
    on_row: Callable[[Row, bool], None] = lambda row, old: None,
) -> Report:
    """Run the cases.

    Args:
        plan: what ``gather`` was given.
        workplace: where.
        gathered: what it returned.
        journal: where rows are written as they come.
        resume: leave out what is in the journal, taking its rows.
        on_row: called with each row, and with whether it came from the journal.

    Raises:
        ConformanceError: the run cannot go on; the journal has what was done.
    """
    began, started = time.perf_counter(), datetime.now(timezone.utc).isoformat(timespec="seconds")
    cases = gathered.cases
    about = {**workplace.about, "seed": plan.seed, **plan.selection.to_json()}
    done = {row.case: row for row in (journal.open(about, resume=resume) if journal else [])}
    rows: dict[Case, Row] = {}
    try:
        for case in cases:
            if case in done:
                rows[case] = plan.expected.apply(done[case])
                on_row(rows[case], True)
        for row in workplace.run([case for case in cases if case not in done], plan.seed):
            if journal:
                journal.add(row)
            rows[row.case] = plan.expected.apply(row)
            on_row(rows[row.case], False)
    finally:
        if journal:
            journal.close()
    ordered = [rows[case] for case in cases]
    commands = {row.case.id: plan.command(row.case) for row in ordered if row.status not in ("pass", "skip")}
    return Report(about, ordered, gathered.problems, time.perf_counter() - began, commands, started)
