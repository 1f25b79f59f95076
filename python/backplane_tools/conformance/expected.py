"""``conformance.toml``: the failures that are expected, each with its reason. The list only shrinks.

It holds tables ``[[expected]]`` with ``case = "ops/foo/float16"``, or a glob, a list of such, and ``reason = "..."``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from backplane_tools.conformance.errors import ConformanceError
from backplane_tools.conformance.record import Row

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Entry:
    """A case, or a glob over cases, of the list."""

    case: str
    reason: str

    @property
    def suite(self) -> str:
        """The first part of ``case``, which may be a glob."""
        return self.case.split("/")[0]

    def matches(self, case_id: str) -> bool:
        """Whether it means this case."""
        return self.case == case_id or fnmatchcase(case_id, self.case)


@dataclass(frozen=True)
class Expected:
    """The list, and where it came from."""

    entries: tuple[Entry, ...] = ()
    path: str = ""

    @classmethod
    def read(cls, path: Path) -> Expected:
        """Read a file.

        Raises:
            ConformanceError: it is not such a list.
        """
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConformanceError(f"{path}: {error}") from error
        if unknown := sorted(set(data) - {"expected"}):
            raise ConformanceError(f"{path}: unknown key {unknown[0]!r}. It holds tables [[expected]] and nothing else")
        entries = data.get("expected", [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ConformanceError(f"{path}: write each entry as a table [[expected]], with double brackets")
        found = (entry for number, data in enumerate(entries, 1) for entry in _entries(path, number, data))
        return cls(tuple(found), str(path))

    @classmethod
    def read_default(cls, folder: Path) -> Expected:
        """Read ``conformance.toml`` of a folder, if there."""
        path = folder / "conformance.toml"
        return cls.read(path) if path.is_file() else cls()

    def apply(self, row: Row) -> Row:
        """Turn a listed failure into ``xfail`` and a listed pass into ``xpass``. A skipped case stays skipped."""
        entry = next((entry for entry in self.entries if entry.matches(row.case.id)), None)
        if entry is None:
            return row
        row.reason = entry.reason
        if row.status in ("fail", "crash", "timeout"):
            row.status = "xfail"
        elif row.status == "pass":
            row.status = "xpass"
            row.message = f"it passes now: remove {entry.case!r} from {self.path}"
        return row

    def stale(self, ids: Iterable[str], suites: Iterable[str], known: Iterable[str]) -> list[str]:
        """What is wrong with entries that match no case; suites that are not looked at are not judged.

        ``ids`` are all cases of ``suites``; ``known`` are all suites.
        """
        ids, suites, known = list(ids), set(suites), set(known)
        problems = []
        for entry in self.entries:
            meant = {suite for suite in known if fnmatchcase(suite, entry.suite)}
            if not meant:
                problems.append(f"{self.path}: {entry.case!r} names no suite; there are {', '.join(sorted(known))}")
            elif meant <= suites and not any(entry.matches(case_id) for case_id in ids):
                problems.append(f"{self.path}: {entry.case!r} matches no case: remove it")
        return problems


def _entries(path: Path, number: int, data: dict[str, Any]) -> list[Entry]:
    where = f"{path}: entry {number} ({data.get('case', 'no case')!r})"
    if unknown := sorted(set(data) - {"case", "reason"}):
        raise ConformanceError(f"{where} has the unknown key {unknown[0]!r}; case and reason are all")
    cases = data.get("case")
    cases = cases if isinstance(cases, list) else [cases]
    for key, values in (("case", cases), ("reason", [data.get("reason")])):
        if not values or not all(isinstance(value, str) and value.strip() for value in values):
            also = ", or a list of such texts" if key == "case" else ""
            raise ConformanceError(f'{where} needs {key} = "...", a text that is not empty{also}')
    return [Entry(case.strip(), data["reason"].strip()) for case in cases]
