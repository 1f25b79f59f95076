"""torch.compile around DistributedDataParallel and FSDP2."""

from __future__ import annotations

import torch
from rank import Rank

from checks import check
from checks.sharding import mesh_of, sharded, whole
from checks.training import alone, close, ddp, make_net, sgd, train


def learns(w: Rank, backend: str) -> None:
    net = ddp(w, make_net())
    train(w, torch.compile(net, backend=backend), sgd(net))
    close(net.state_dict(), alone(w))


@check(sizes=(2,))
def ddp_by_aot_eager(w: Rank) -> None:
    learns(w, "aot_eager")


@check(sizes=(2,))
def ddp_by_inductor(w: Rank) -> None:
    learns(w, "inductor")


def learns_sharded(w: Rank, backend: str) -> None:
    net = sharded(make_net().to(w.device), mesh=mesh_of(w))
    train(w, torch.compile(net, backend=backend), sgd(net))
    close(whole(net), alone(w))


@check(sizes=(2,))
def fsdp2_by_aot_eager(w: Rank) -> None:
    learns_sharded(w, "aot_eager")


@check(sizes=(2,))
def fsdp2_by_inductor(w: Rank) -> None:
    learns_sharded(w, "inductor")
