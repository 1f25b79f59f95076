"""A rank, a device or a program fails: the others get a DistBackendError, and every process ends."""

import re
import signal
from pathlib import Path

import pytest
import shims
from checks import disagreements, failures
from kinds import COMPILED, DETAIL, ENGINES, native, staged

KILLED = -signal.SIGKILL


@pytest.fixture(params=ENGINES)
def engine(request):
    """``engine(**options)``: a kind of world, by each engine."""
    return request.param


def answers(world, check, **arguments):
    """What each rank returned; None for one that has died."""
    found = world.each(check, **arguments)
    for rank, answer in enumerate(found):
        assert not answer.late, f"rank {rank} hangs\n{world.logs()}"
        assert not answer.error, f"rank {rank}: {answer.error}"
    return [None if answer.ended else answer.result for answer in found]


def is_backend_error(outcome, *texts):
    kind, text = outcome
    assert kind == "DistBackendError", text
    for part in texts:
        assert part in text
    return True


def each(*checks, long=()):
    """Cases of a test, by the checks' names."""
    params = [pytest.param(one, id=one.__name__, marks=[pytest.mark.long] * (one in long)) for one in checks]
    return pytest.mark.parametrize("check", params)


@each(
    *(failures.the_peer_dies_before, failures.the_peer_dies_within, failures.the_peer_dies_after),
    failures.a_callback_sees_the_error,
    long=[failures.the_peer_dies_after],
)
def test_G03_a_dead_peer(worlds, engine, check):
    with worlds.own(engine(), statuses=[0, KILLED]) as world:
        mine, other = answers(world, check)
    assert other is None
    if check is failures.a_callback_sees_the_error:
        assert "process group '0' (rank 0 of 2)" in mine[1]
    else:
        assert is_backend_error(mine, "process group '0' (rank 0 of 2)")


@pytest.mark.long_after_first
def test_G03_a_peer_that_does_not_come(worlds, engine):
    with worlds.own(engine()) as world:
        mine, other = answers(world, failures.the_peer_does_not_come)
    assert is_backend_error(mine[0], "all_reduce", "process group")
    assert "process group" in mine[1][1]
    assert is_backend_error(mine[2])
    assert is_backend_error(other[0])


@pytest.mark.long_after_first
def test_G03_a_rank_that_does_not_join(worlds, engine):
    """The group is lost: what is left of the join in the store, or in the driver, cannot be used by a later one."""
    with worlds.own(engine()) as world:
        other, mine = answers(world, failures.rank_0_does_not_join)
    assert all(is_backend_error(outcome, "process group '0' (rank 1 of 2)") for outcome in mine)
    assert is_backend_error(other[0])


@pytest.mark.requires("collective")
def test_G03_a_rank_0_whose_driver_makes_no_id(worlds, tmp_path):
    """The others do not wait for it until the timeout."""
    shim = shims.compiled(Path(__file__).with_name("no_id.c"), tmp_path)
    with worlds.own(native(env=(("MYDEVICE_SHIMS", shim),))) as world:
        mine, other = answers(world, failures.rank_0_makes_no_id)
    assert "make_id" in mine[0][1]
    assert is_backend_error(mine[1], "make_id", "process group '0' (rank 0 of 2)")
    assert all(is_backend_error(outcome, "the driver of rank 0 made no id", "(rank 1 of 2)") for outcome in other)


@pytest.mark.requires("collective")
@pytest.mark.parametrize(
    ("check", "kind", "text"),
    [
        (failures.another_thread_aborts_while_it_joins, "DistBackendError", "was aborted"),
        (failures.ctrl_c_while_it_joins, "KeyboardInterrupt", "has not joined its ranks"),
    ],
    ids=["abort", "ctrl-c"],
)
def test_G03_what_ends_a_join(worlds, check, kind, text):
    with worlds.own(native()) as world:
        _, (first, second) = answers(world, check)
    assert first[0] == kind
    assert is_backend_error(second, text)


@pytest.mark.long
def test_G03_a_message_that_does_not_come(worlds, engine):
    with worlds.own(engine()) as world:
        mine, _ = answers(world, failures.the_sender_does_not_send)
    assert is_backend_error(mine, "recv")


@pytest.mark.long
def test_G03_ranks_that_disagree_about_a_call(worlds, engine):
    """Its sizes, dtype, operation or root; the group is lost, the process and other groups stay usable."""
    with worlds.own(engine()) as world:
        found = answers(world, disagreements.each)
    for name in disagreements.COLLECTIVES:
        if engine is native and name in disagreements.BYTES_OF_A_DRIVER:
            continue
        silent = disagreements.MESSAGES_OF_A_DRIVER.get(name) if engine is native else None
        for rank, outcomes in enumerate(found):
            if silent == rank and not outcomes[name]:
                continue  # it may be done before the other refuses
            assert outcomes[name], f"{name}: rank {rank} took what came for a result"
            assert is_backend_error(outcomes[name]), (rank, name)
        if silent is None:  # at once: what differs, not that the time is over
            texts = [outcomes[name][1] for outcomes in found]
            seen = any(re.search("do not make the same call|where rank|, which sends", text) for text in texts)
            assert seen, (name, texts)
    for name in disagreements.MESSAGES:  # the same
        assert is_backend_error(found[1][name]), name


@pytest.mark.requires("collective")
def test_G03_a_call_that_fails_while_its_driver_is_asked(worlds, tmp_path):
    """It is over by then, as one that ended well is: the driver is asked once more before it counts as that."""
    shim = shims.compiled(Path(__file__).with_name("late_status.c"), tmp_path)
    with worlds.own(native(env=(("MYDEVICE_SHIMS", shim),))) as world:
        found = answers(world, failures.ranks_disagree_while_the_driver_is_asked)
    assert all(outcome and is_backend_error(outcome) for outcome in found)


@pytest.mark.long_after_first
@pytest.mark.parametrize("name", ["all_reduce", "broadcast of dtypes"])
def test_what_ranks_disagree_about_is_reported_on_request(worlds, engine, name):
    """TORCH_DISTRIBUTED_DEBUG=DETAIL: torch compares the calls of all ranks before each."""
    with worlds.own(engine(env=DETAIL)) as world:
        found = answers(world, disagreements.one, name=name)
    assert all("Detected mismatch between collectives" in text for _, text in found)


@pytest.mark.parametrize("fault", ["hang", pytest.param("kernel", marks=pytest.mark.long)])
def test_G03_a_device_that_fails_before_the_collective(worlds, engine, tmp_path, fault):
    armed = tmp_path / "armed"
    options = f"fault.{fault}=@1,fault.armed_by={armed}"
    if fault == "kernel":
        options += ",delay=20000"  # the collective is queued before the device comes to the kernel
    env = (("MYDEVICE_SHIMS", "fault"), ("MYDEVICE_OPTIONS", options))
    with worlds.own(engine(env=COMPILED, env_of_first=env)) as world:
        mine, other = answers(world, failures.the_device_fails, armed_by=str(armed))
    if fault == "hang" and engine is staged:
        assert is_backend_error(mine, "the device has not produced")
    elif fault == "hang":
        assert is_backend_error(mine, "all_reduce")
    else:  # the device's own error, or what it made of the collective
        assert "bad address" in mine[1]
    assert is_backend_error(other)


@pytest.mark.requires("collective")
def test_G03_a_result_of_a_dead_collective_is_not_read(worlds, tmp_path):
    """The links of one rank hang; no rank takes what is in the tensor for the sum."""
    armed = tmp_path / "armed"
    options = f"fault.collective_hang=@1,fault.armed_by={armed}"
    env = (("MYDEVICE_SHIMS", "fault"), ("MYDEVICE_OPTIONS", options))
    with worlds.own(native(env=COMPILED, env_of_first=env)) as world:
        found = answers(world, failures.results_of_a_dead_collective, armed_by=str(armed))
    assert all(is_backend_error(outcome, "process group '0'") for outcomes in found for outcome in outcomes)


@pytest.mark.long
@pytest.mark.requires("collective")
def test_G03_a_result_of_an_aborted_collective_is_not_read(worlds):
    with worlds.own(native(named=True)) as world:
        mine, _ = answers(world, failures.results_of_an_aborted_collective)
    assert len(mine) == 6
    assert all(is_backend_error(outcome, "was aborted") for outcome in mine)


@pytest.mark.long_after_first
def test_G03_a_program_that_aborts_goes_on(worlds, engine):
    with worlds.own(engine()) as world:
        world.run(failures.the_program_goes_on_after_it_aborts)


@pytest.mark.long
def test_G03_abort_twice_from_another_thread(worlds, engine):
    with worlds.own(engine()) as world:
        mine, other = answers(world, failures.another_thread_aborts)
    outcomes = [*mine, *other]
    assert all(is_backend_error(outcome) for outcome in outcomes)
    assert any("abort" in text for _, text in outcomes)  # of the two ranks one may see first that the other has gone


@pytest.mark.long_after_first
def test_G03_ctrl_c_in_a_wait(worlds, engine):
    with worlds.own(engine()) as world:
        mine, _ = answers(world, failures.ctrl_c)
    assert mine[0] == "KeyboardInterrupt"


def test_G03_groups_leave_no_thread(worlds, engine):
    worlds.get(engine()).run(failures.groups_leave_no_thread)


@each(failures.work_is_in_flight, failures.all_is_done, long=[failures.all_is_done])
def test_G03_a_program_ends_without_destroying_its_group(worlds, engine, check):
    with worlds.own(engine(leave=True)) as world:
        world.run(check)
