"""Every collective by value, on each engine, in worlds of two and three.

By Gloo on the CPU, too: that tests the checks.
"""

import os
from pathlib import Path

import pytest
import shims
from checks import checks_of, groups, moves, order, point_to_point, profiled, random_programs, reductions
from kinds import COMPILED, DEVICE, ENGINES, KINDS, cases, native, of_engine
from world import Kind

FOR_TWO = (("MYDEVICE_OPTIONS", "collective_ranks=2"), ("MYDEVICE_DIST", ""))
CHECKS = checks_of(reductions, moves, point_to_point, order, groups, profiled)


@pytest.mark.parametrize(("kind", "check"), list(cases(CHECKS)))
def test_G01_collectives(worlds, kind, check):
    worlds.get(kind).run(check)


@pytest.mark.long
@pytest.mark.parametrize("engine", ENGINES)
def test_G01_eight_ranks(worlds, engine):
    """More than most machines have processors for."""
    with worlds.own(engine(size=8)) as world:
        for each in CHECKS:
            if {2, 3} <= set(each.sizes) and each.bound is None and not getattr(each, world.kind.engine):
                world.run(each)


@pytest.mark.parametrize("engine", ENGINES)
def test_G02_reductions_overlap_the_backward(worlds, engine):
    with worlds.own(engine(env=(("MYDEVICE_OPTIONS", "kind=discrete"), *COMPILED))) as world:
        world.run(profiled.reductions_overlap_the_backward)


@pytest.mark.long
@pytest.mark.requires("collective")
def test_a_group_that_is_too_large_for_the_driver_is_staged(worlds):
    """A subgroup that is small enough is native."""
    with worlds.own(Kind(DEVICE, size=3, env=FOR_TWO)) as world:
        world.run(groups.too_large_for_the_driver)


@pytest.mark.requires("collective")
def test_native_is_refused_for_too_many_ranks(worlds):
    refused = r"3 ranks, and the driver's collectives take 2 .* MYDEVICE_DIST=staged"
    with pytest.raises(AssertionError, match=refused), worlds.own(native(size=3, env=FOR_TWO)):
        pass


@pytest.mark.requires("collective")
def test_collectives_that_a_driver_does_not_support_are_composed(worlds, tmp_path):
    """From sends, receives and reductions, in the order of the other calls."""
    shim = shims.compiled(Path(__file__).with_name("bare.c"), tmp_path)
    with worlds.own(native(size=3, env=(("MYDEVICE_SHIMS", shim),))) as world:
        for check in (moves.gather, moves.scatter, moves.all_to_all_of_equal_parts, moves.all_to_all_by_splits):
            world.run(check)
        world.run(moves.all_to_all_to_one_alone)
        world.run(moves.all_to_all_of_lists)
        world.run(point_to_point.a_batch_of_some_ranks_behind_a_barrier)
        world.run(groups.a_barrier_before_the_device_is_chosen)


@pytest.mark.requires("collective")
def test_a_native_group_needs_no_gloo(worlds):
    """torch may have been built without it."""
    with worlds.own(native()) as world:
        world.run(groups.without_gloo)


@pytest.mark.long_after_first
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
    default = 5 if kind in (KINDS["native"][0], KINDS["staged"][0]) else 15
    count = int(os.environ.get("COLLECTIVE_PROGRAMS", default))
    worlds.get(kind).run(random_programs.programs, first=0, count=count)
