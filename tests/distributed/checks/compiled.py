"""torch.compile around DistributedDataParallel and FSDP2."""

from __future__ import annotations

from collections.abc import Callable

import torch
from rank import Rank
from torch import nn

from checks import check
from checks.sharding import mesh_of, sharded, whole
from checks.training import State, alone, close, ddp, make_net, sgd, train


def learns(w: Rank, backend: str, net: nn.Module, state: Callable[..., State] = nn.Module.state_dict) -> None:
    """What one process does; `state`: the net's whole parameters."""
    train(w, torch.compile(net, backend=backend), sgd(net))
    close(state(net), alone(w))


@check(sizes=(2,))
def ddp_by_aot_eager(w: Rank) -> None:
    learns(w, "aot_eager", ddp(w, make_net()))


@check(sizes=(2,))
def ddp_by_inductor(w: Rank) -> None:
    learns(w, "inductor", ddp(w, make_net()))


@check(sizes=(2,))
def fsdp2_by_aot_eager(w: Rank) -> None:
    learns(w, "aot_eager", sharded(make_net().to(w.device), mesh=mesh_of(w)), whole)


@check(sizes=(2,))
def fsdp2_by_inductor(w: Rank) -> None:
    learns(w, "inductor", sharded(make_net().to(w.device), mesh=mesh_of(w)), whole)
