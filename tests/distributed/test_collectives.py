"""Every collective by value, on each engine, in worlds of two and three.

By Gloo on the CPU, too: that tests the checks.
"""

from pathlib import Path

import pytest
import shims
from checks import checks_of, groups, moves, order, point_to_point, profiled, random_programs, reductions
from kinds import DEVICE, KINDS, cases, native, of_engine
from world import Kind

FOR_TWO = (("MYDEVICE_OPTIONS", "collective_ranks=2"), ("MYDEVICE_DIST", ""))
CHECKS = checks_of(reductions, moves, point_to_point, order, groups, profiled)


@pytest.mark.parametrize(("kind", "check"), cases(CHECKS))
def test_G01_collectives(worlds, kind, check):
    worlds.get(kind).run(check)


@pytest.mark.requires("collective")
def test_a_group_that_is_too_large_for_the_driver_is_staged(worlds):
    """A part of it that is not is native."""
    with worlds.own(Kind(DEVICE, size=3, env=FOR_TWO)) as world:
        world.run(groups.too_large_for_the_driver)


@pytest.mark.requires("collective")
def test_native_cannot_be_had_for_too_many_ranks(worlds):
    said = r"3 ranks, and the driver's collectives take 2 .* MYDEVICE_DIST=staged"
    with pytest.raises(AssertionError, match=said), worlds.own(native(size=3, env=FOR_TWO)):
        pass


@pytest.mark.requires("collective")
def test_what_a_driver_lacks_is_composed(worlds, tmp_path):
    """Of sends, receives and reductions, in the order of the other calls."""
    shim = shims.compiled(Path(__file__).with_name("bare.c"), tmp_path)
    with worlds.own(native(size=3, env=(("MYDEVICE_SHIMS", shim),))) as world:
        for name in (
            "gather",
            "scatter",
            "all_to_all_of_equal_parts",
            "all_to_all_by_splits",
            "all_to_all_to_one_alone",
            "all_to_all_of_lists",
        ):
            world.run(getattr(moves, name))
        world.run(point_to_point.a_batch_of_some_ranks_behind_a_barrier)
        world.run(groups.a_barrier_before_the_device_is_chosen)


@pytest.mark.requires("collective")
def test_a_native_group_needs_no_gloo(worlds):
    """Where torch was built without."""
    with worlds.own(native()) as world:
        world.run(groups.without_gloo)


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
