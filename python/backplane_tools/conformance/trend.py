"""The difference to an earlier run, from its JSON report: what fails now, what passes now, what became slower."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from pathlib import Path

from backplane_tools.conformance.record import BAD, Row, read_report

SLOWER = 1.5
"""A case is slower (or faster) if its time over the CPU's has changed by this factor. The ratio, not the time: two runs
may be of two machines."""
SHORTEST_S = 1e-3
"""Shorter calls are noise."""
_LISTED = 10
_FAILING = BAD - {"xpass"}


@dataclass
class Trend:
    """Case ids, in the order of the later run."""

    started: str
    """When the earlier run was."""
    failing: list[str] = field(default_factory=list)
    """Fail now and did not."""
    passing: list[str] = field(default_factory=list)
    """Failed, expected or not, and pass now."""
    slower: dict[str, float] = field(default_factory=dict)
    """Case -> factor."""
    faster: dict[str, float] = field(default_factory=dict)
    """Case -> factor, below 1."""
    added: dict[str, None] = field(default_factory=dict)
    """Not in the earlier run; a set in order."""
    gone: list[str] = field(default_factory=list)
    """In the earlier run, and no case of its suite any more."""

    @classmethod
    def between(cls, path: Path, rows: list[Row], ids: Set[str]) -> Trend:
        """Compare rows with an earlier report.

        ``ids`` are all cases of its suites: what was not picked is not gone.

        Raises:
            ConformanceError: the file is not a JSON report of this command.
        """
        data = read_report(path, "--baseline")
        before = {row.case.id: row for row in map(Row.from_json, data["cases"])}
        trend = cls(data["started"])
        for row in rows:
            trend._add(row, before.pop(row.case.id, None))
        suites = {row.case.suite for row in rows}
        trend.gone = [case_id for case_id, row in before.items() if row.case.suite in suites and case_id not in ids]
        return trend

    def lines(self) -> list[str]:
        """The trend as text."""
        lines = [f"against {self.started}:"]
        for what, ids in (
            ("newly failing", self.failing),
            ("newly passing", self.passing),
            ("slower", [f"{case_id} ({factor:.1f}x)" for case_id, factor in self.slower.items()]),
            ("faster", [f"{case_id} ({factor:.2f}x)" for case_id, factor in self.faster.items()]),
            ("new", list(self.added)),
            ("gone", self.gone),
        ):
            if ids:
                more = f" and {len(ids) - _LISTED} more" if len(ids) > _LISTED else ""
                lines.append(f"  {len(ids)} {what}: {', '.join(ids[:_LISTED])}{more}")
        return lines if len(lines) > 1 else [f"against {self.started}: no change"]

    def word(self, case_id: str) -> str:
        """How one case has changed; empty if it has not."""
        for word in ("failing", "passing", "slower", "faster"):
            if case_id in getattr(self, word):
                return word
        return "new" if case_id in self.added else ""

    def _add(self, row: Row, before: Row | None) -> None:
        case_id = row.case.id
        if before is None:
            self.added[case_id] = None
            return
        if row.status in _FAILING and before.status not in _FAILING:
            self.failing.append(case_id)
        if row.status in ("pass", "xpass") and before.status in _FAILING | {"xfail"}:
            self.passing.append(case_id)
        if row.ratio is None or before.ratio is None or row.status != "pass" or before.status != "pass":
            return
        factor = row.ratio / before.ratio
        if factor > SLOWER and row.device_seconds > SHORTEST_S:
            self.slower[case_id] = factor
        elif factor < 1 / SLOWER and before.device_seconds > SHORTEST_S:
            self.faster[case_id] = factor
