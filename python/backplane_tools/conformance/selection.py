"""Which cases a run is about: suites, dtypes, patterns, and one shard of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any

from backplane_tools.conformance.case import Case
from backplane_tools.conformance.errors import ConformanceError
from backplane_tools.conformance.suites import ON_REQUEST, SUITES


@dataclass(frozen=True)
class Selection:
    """What the command line asks for."""

    where: dict[str, str]
    """Suite -> ``module:Class``, in the order in which they run."""
    dtypes: tuple[str, ...] | None = None
    """None is each suite's own choice."""
    ops: tuple[str, ...] = ()
    """Globs over a case's name; empty is all."""
    cases: tuple[str, ...] = ()
    """Ids, or globs over them; empty is all."""
    shard: tuple[int, int] = (1, 1)
    """The first of n is (1, n)."""

    @classmethod
    def of(cls, suites: Sequence[str], cases: Sequence[str] = (), **rest: Any) -> Selection:
        """Resolve suites as they are written: names, or ``NAME=module:Class`` for one of the vendor's.

        Without suites, those of ``cases``; without these, all but those on request.

        Raises:
            ConformanceError: there is no such suite.
        """
        where: dict[str, str] = {}
        for suite in suites:
            name, equals, place = suite.partition("=")
            if equals and (":" not in place or "/" in name or not name):
                raise ConformanceError(f"--suite {suite!r}: a suite of your own is written NAME=module:Class")
            if not equals and name not in SUITES:
                raise ConformanceError(f"there is no suite {name!r}; there are {', '.join(SUITES)}")
            where[name] = place or SUITES[name]
        if not where:
            parts = [case.split("/")[0] for case in cases]
            where = {
                suite: place
                for suite, place in SUITES.items()
                if any(fnmatchcase(suite, part) for part in parts) or (not parts and suite not in ON_REQUEST)
            }
        if not where:
            raise ConformanceError(f"{', '.join(cases)}: a case begins with its suite, one of {', '.join(SUITES)}")
        return cls(where, cases=tuple(cases), **rest)

    def pick(self, cases: Iterable[Case]) -> list[Case]:
        """The cases to run.

        Raises:
            ConformanceError: a pattern matches none.
        """
        picked = list(cases)
        if self.ops:
            picked = _filter(picked, self.ops, "--op", lambda case: case.name)
        if self.cases:
            picked = _filter(picked, self.cases, "the case", lambda case: case.id)
        first, shards = self.shard
        return picked[first - 1 :: shards]

    def to_json(self) -> dict[str, Any]:
        """For the journal, which continues nothing but the same selection."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}


def _filter(cases: list[Case], patterns: Sequence[str], what: str, key: Any) -> list[Case]:
    for pattern in patterns:
        if not any(key(case) == pattern or fnmatchcase(key(case), pattern) for case in cases):
            raise ConformanceError(f"{what} {pattern!r} matches none of {len(cases)} cases; --list prints them")
    return [c for c in cases if any(key(c) == pattern or fnmatchcase(key(c), pattern) for pattern in patterns)]
