"""Which of the places for barriers need one, in groups of several items.

A barrier stands between two accesses of different items to the same memory, one of which writes. The paths that the
items may have taken are followed through loops and conditions; what is uncertain counts as an access.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from torch_backplane.triton.lowering.accesses import Access
from torch_backplane.triton.lowering.state import BARRIER

HARD = "BP_BARRIER();"
"""A barrier that the kernel itself has."""
LOOP = re.compile(r"\bfor \(")


@dataclass
class _Line:
    """A statement, a place for a barrier, or a scope. A scope without such places in it is a statement."""

    at: int
    kind: str
    """``line``, ``place``, ``barrier``, ``loop``, ``if``, ``else``, ``scope`` or ``break``."""
    accesses: set[Access]
    body: list[_Line] = field(default_factory=list)
    is_plain: bool = True
    """There is no place for a barrier in it."""


@dataclass
class _Path:
    """How the items may have come to a line: what they may have done before the last place for a barrier, and since."""

    before: set[Access]
    place: int | None
    since: set[Access]


class Barriers:
    """Of the lines of a program, given their accesses to memory that items share."""

    def __init__(self, text: list[str], accesses: list[set[Access]], sharing: set[frozenset[str]]) -> None:
        """``sharing``: pairs of arrays that lie in the same memory."""
        self._sharing = sharing
        self.placed: set[int] = set()
        """The lines of the places that need one."""
        self.clashes: set[frozenset[str]] = set()
        """Arrays that share memory, between whose accesses there is no place for a barrier."""
        self._breaks: list[list[_Path]] = []
        self._loop(_Line(-1, "loop", set(), _parsed(text, accesses)), [_Path(set(), None, set())])

    def _conflict(self, one: Access, other: Access) -> bool:
        """Whether a barrier has to stand between two accesses."""
        if not (one.writes or other.writes):
            return False
        if one.array == other.array:
            return one.own is None or one.own != other.own
        return frozenset((one.array, other.array)) in self._sharing

    def _run(self, lines: list[_Line], paths: list[_Path]) -> list[_Path]:
        skipped: list[_Path] = []
        taken: list[_Path] = []
        for line in lines:
            if line.kind in ("place", "barrier"):
                is_barrier = line.kind == "barrier" or line.at in self.placed
                done = set() if is_barrier else {access for path in paths for access in path.before | path.since}
                paths = [_Path(done, line.at, set())]
                continue
            self._meet(line.accesses, paths)
            if line.kind == "loop":
                paths = self._loop(line, paths)
            elif line.kind == "scope":
                paths = self._run(line.body, paths)
            elif line.kind == "if":
                skipped, taken = _copied(paths), self._run(line.body, paths)
                paths = _joined(skipped, taken)
            elif line.kind == "else":
                paths = _joined(taken, self._run(line.body, skipped))
            elif line.kind == "break":
                self._breaks[-1] += _copied(paths)
        return paths

    def _loop(self, line: _Line, paths: list[_Path]) -> list[_Path]:
        """A turn more until nothing new comes by."""
        start = _copied(paths)
        while True:
            known = len(self.placed), _facts(start)
            self._breaks.append([])
            end = self._run(line.body, _copied(start))
            left = self._breaks.pop()
            if line.at < 0:  # the programs of a grid do not wait for one another's memory of the device
                for path in end:
                    path.before = {one for one in path.before if one.array}
                    path.since = {one for one in path.since if one.array}
            start = _joined(start, end)
            if (len(self.placed), _facts(start)) == known:
                return _joined(start, left)

    def _meet(self, accesses: set[Access], paths: list[_Path]) -> None:
        for access in sorted(accesses, key=repr):
            for path in paths:
                if any(self._conflict(access, other) for other in path.before):
                    assert path.place is not None
                    self.placed.add(path.place)
                    path.before = set()
                self._check(access, path.since)
                path.since.add(access)

    def _check(self, access: Access, others: set[Access]) -> None:
        """Two accesses without a place for a barrier between them."""
        for other in others:
            if other.array != access.array and self._conflict(access, other):
                self.clashes.add(frozenset((access.array, other.array)))
            elif access.array and other.writes != access.writes and self._conflict(access, other):
                raise AssertionError(f"no place for a barrier: {access} and {other}")


def _parsed(text: list[str], accesses: list[set[Access]]) -> list[_Line]:
    stack: list[list[_Line]] = [[]]
    for at, raw in enumerate(text):
        line = raw.strip()
        if line == "}":
            _close(stack.pop(), stack[-1])
            continue
        kind = {BARRIER: "place", HARD: "barrier"}.get(line, "break" if line.endswith("break;") else "line")
        if line.endswith("{"):
            kind = "if" if line.startswith("if (") else "else" if line.startswith("else") else "scope"
            kind = "loop" if LOOP.search(line) else kind
        stack[-1].append(_Line(at, kind, accesses[at], is_plain=kind not in ("place", "barrier", "break")))
        if line.endswith("{"):
            stack.append([])
    return stack[0]


def _close(body: list[_Line], around: list[_Line]) -> None:
    scope = around[-1]
    scope.body, scope.is_plain = body, all(one.is_plain for one in body)
    if scope.is_plain:
        inside = [inner for one in body for inner in (one, *one.body)]
        done = {access for one in inside for access in one.accesses}
        scope.body = [_Line(scope.at, "line", done)]
        if scope.kind in ("loop", "scope"):
            around[-1] = _Line(scope.at, "line", done | scope.accesses)


def _copied(paths: list[_Path]) -> list[_Path]:
    return [_Path(set(path.before), path.place, set(path.since)) for path in paths]


def _joined(*several: list[_Path]) -> list[_Path]:
    """One path for each last place for a barrier."""
    found: dict[int | None, _Path] = {}
    for path in (one for paths in several for one in paths):
        known = found.setdefault(path.place, _Path(set(), path.place, set()))
        known.before |= path.before
        known.since |= path.since
    return list(found.values())


def _facts(paths: list[_Path]) -> list[tuple[int | None, int, int]]:
    return sorted(((path.place or -1), len(path.before), len(path.since)) for path in paths)
