"""A row of the results: one case with its outcome and what the engine adds to it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backplane_tools.conformance.case import Case, Outcome
from backplane_tools.conformance.errors import ConformanceError

STATUSES: dict[str, str] = {
    "pass": "equal to the CPU, or as documented",
    "xfail": "failed, as conformance.toml expects",
    "skip": "nothing was compared",
    "fail": "differs, or raised",
    "crash": "took its process down",
    "timeout": "did not end in time",
    "xpass": "passed, although conformance.toml expects it to fail",
}
"""Every status with its meaning, the good ones first."""

BAD: frozenset[str] = frozenset({"fail", "crash", "timeout", "xpass"})
"""The statuses that make the run fail."""


@dataclass(kw_only=True)
class Row(Outcome):
    """One case's result."""

    case: Case
    seconds: float = 0
    """All of the case's time, its CPU reference and comparisons too."""
    seed: int = 0
    reason: str = ""
    """Why it is expected to fail; empty where it is not."""

    @classmethod
    def of(cls, case: Case, outcome: Outcome, seconds: float, seed: int) -> Row:
        """A row from what the suite said."""
        values = asdict(outcome)
        for key in ("message", "trace"):  # text that cannot be printed or written would end the run
            values[key] = values[key].encode("utf-8", "backslashreplace").decode()
        return cls(**values, case=case, seconds=seconds, seed=seed)

    @property
    def bad(self) -> bool:
        """Whether it makes the run fail."""
        return self.status in BAD

    @property
    def ratio(self) -> float | None:
        """The device's time over the CPU's; None where either was not taken."""
        return self.device_seconds / self.cpu_seconds if self.device_seconds > 0 and self.cpu_seconds > 0 else None

    def to_json(self) -> dict[str, Any]:
        """As the JSON report and the journal hold it."""
        fields = {name: value for name, value in vars(self).items() if name != "case"}
        case = self.case
        return {"id": case.id, "suite": case.suite, "name": case.name, "dtype": case.dtype, **fields}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Row:
        """The inverse of :meth:`to_json`. Keys that this version does not know are dropped."""
        known = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        return cls(case=Case(data["suite"], data["name"], data["dtype"]), **known)


def read_report(path: Path, option: str) -> dict[str, Any]:
    """Read what ``--json`` wrote; an error names the option that the file was given to.

    Raises:
        ConformanceError: the file is not such a report.
    """
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if missing := {"format", "about", "cases", "problems", "seconds", "started"} - set(document):
            raise KeyError(*sorted(missing))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConformanceError(f"{option} {path} is not a report of --json: {error!r}") from error
    if document["format"] != 1:
        raise ConformanceError(f"{option} {path}: format {document['format']}; this version reads format 1")
    return document
