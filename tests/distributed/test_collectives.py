"""Every collective by value, on each engine, in worlds of two and three.

By Gloo on the CPU, too: that tests the checks.
"""

import pytest
from checks import checks_of, groups, moves, order, point_to_point, profiled, random_programs, reductions
from kinds import KINDS, cases, of_engine

CHECKS = checks_of(reductions, moves, point_to_point, order, groups, profiled)


@pytest.mark.parametrize(("kind", "check"), cases(CHECKS))
def test_G01_collectives(worlds, kind, check):
    worlds.get(kind).run(check)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, id=name, marks=[*of_engine(kind), *([pytest.mark.long] if is_long else [])])
        for name, (kind, is_long) in KINDS.items()
        if kind.engine and "DETAIL" not in dict(kind.env).values()
    ],
)
def test_G01_random_programs(worlds, kind):
    """All dtypes, sizes and layouts, on streams, waited for in any order."""
    count = 8 if kind in (KINDS["native"][0], KINDS["staged"][0]) else 15
    worlds.get(kind).run(random_programs.programs, first=0, count=count)
