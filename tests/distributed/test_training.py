"""What torch trains with on several devices: parameters become those of one process.

With groups that are bound to a device (``device_id=``), and others.
"""

from collections.abc import Callable
from typing import Any

import pytest
from checks import checkpoints as checkpoint_checks
from checks import checks_of, compiled, sharding, training
from kinds import ENGINES, KINDS, cases
from world import Kind

IMPORTS = ("checks.training", "checks.sharding", "checks.checkpoints")  # by the server, once for all ranks
CHECKS = checks_of(training, sharding, checkpoint_checks)
OF_FOUR = [check for check in CHECKS if 4 in check.sizes]
# By the native engine all checks are short; by the staged one those of these, which make each kind of call.
SHORT_STAGED = {
    *(training.plain, training.gradients_in_bfloat16, training.a_sharded_optimizer, training.synchronised_batch_norm),
    *(sharding.fsdp2, sharding.fsdp2_in_mixed_precision, sharding.tensor_parallel, sharding.dtensors_move),
    *(sharding.a_pipeline, checkpoint_checks.save_and_load),
}


def is_for_training(kind: Kind) -> bool:
    return "DETAIL" not in dict(kind.env).values()


def is_long(kind: Kind, check: Callable[..., Any]) -> bool:
    return kind.engine == "staged" and check not in SHORT_STAGED


@pytest.mark.parametrize(("kind", "check"), list(cases(CHECKS, is_for_training, is_long)))
def test_G02_training(worlds, kind, check):
    worlds.get(kind, IMPORTS).run(check)


def each(checks):
    return pytest.mark.parametrize("check", checks, ids=[check.__name__ for check in checks])


@pytest.mark.long_after_first
@each(OF_FOUR)
@pytest.mark.parametrize(
    "group",
    [
        pytest.param({}, id=""),
        pytest.param({"device_id": True}, id="bound", marks=pytest.mark.long),
        pytest.param({"device_id": True, "named": True}, id="named", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_G02_training_on_a_mesh(worlds, engine, group, check):
    worlds.get(engine(size=4, **group), IMPORTS).run(check)


@pytest.mark.long
@pytest.mark.parametrize("engine", ENGINES)
def test_G02_eight_ranks(worlds, engine):
    with worlds.own(engine(size=8), IMPORTS) as world:
        for check in (training.plain, sharding.fsdp2):
            world.run(check)


@pytest.mark.long
@each(OF_FOUR)
def test_training_on_a_mesh_by_gloo(worlds, check):
    worlds.get(Kind("cpu", size=4), IMPORTS).run(check)


@pytest.mark.parametrize(
    ("saves", "loads"), [("staged", "staged, three"), pytest.param("staged, three", "staged", marks=pytest.mark.long)]
)
def test_G02_a_checkpoint_is_loaded_by_another_number_of_ranks(worlds, tmp_path, saves, loads):
    kinds = [KINDS[name][0] for name in (saves, loads)]
    worlds.get(kinds[0], IMPORTS).run(checkpoint_checks.save_to, folder=str(tmp_path / "saved"))
    worlds.get(kinds[1], IMPORTS).run(
        checkpoint_checks.load_from, folder=str(tmp_path / "saved"), saved_by=kinds[0].size
    )


@pytest.mark.long
@each(checks_of(compiled))
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kernels", ["off", "wait"])
def test_G02_compiled(worlds, tmp_path, engine, kernels, check):
    """Without compiled kernels of the device, and with: they are in a cache of the test's own."""
    env = (("MYDEVICE_KERNELS", kernels), ("TORCHINDUCTOR_CACHE_DIR", str(tmp_path)))
    with worlds.own(engine(env=env), IMPORTS) as world:
        world.run(check)
