"""Every collective by value, on each engine, in worlds of two and three.

By Gloo on the CPU, too: that tests the checks.
"""

import pytest
from checks import checks_of, groups, moves, order, point_to_point, profiled, reductions
from kinds import cases

CHECKS = checks_of(reductions, moves, point_to_point, order, groups, profiled)


@pytest.mark.parametrize(("kind", "check"), cases(CHECKS))
def test_G01_collectives(worlds, kind, check):
    worlds.get(kind).run(check)
