"""Distributed checkpoints: saved by some ranks, loaded by as many or others, into the same parts or others."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from rank import Rank
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from checks import check
from checks.sharding import mesh_of, sharded, whole
from checks.training import adam, alone, close, make_net, train


def make(w: Rank) -> tuple[nn.Module, torch.optim.Optimizer]:
    net = sharded(make_net().to(w.device), mesh=mesh_of(w))
    return net, adam(net)


def state_of(net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    model, optim = get_state_dict(net, optimizer)
    return {"model": model, "optim": optim}


def restore(net: nn.Module, optimizer: torch.optim.Optimizer, folder: str) -> None:
    state = state_of(net, optimizer)
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(net, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])


def forget(net: nn.Module) -> None:
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.to_local().fill_(7)


@check()
def save_and_load(w: Rank) -> None:
    net, optimizer = make(w)
    train(w, net, optimizer)
    expected = {name: t.cpu() for name, t in whole(net).items()}
    dcp.save(state_of(net, optimizer), checkpoint_id=str(w.folder / "saved"))
    forget(net)
    restore(net, optimizer, str(w.folder / "saved"))
    close(whole(net), expected, 0)
    train(w, net, optimizer)  # the optimizer's state is there again
    close(whole(net), alone(w, optimizer=adam, rounds=2))


@check(bound=False)
def save_in_the_background(w: Rank) -> None:
    """What is trained meanwhile is not in it."""
    net, optimizer = make(w)
    train(w, net, optimizer)
    expected = {name: t.cpu() for name, t in whole(net).items()}
    saved = dcp.async_save(state_of(net, optimizer), checkpoint_id=str(w.folder / "background"))
    forget(net)
    saved.result()
    restore(net, optimizer, str(w.folder / "background"))
    close(whole(net), expected, 0)


def save_to(w: Rank, folder: str) -> None:
    net, optimizer = make(w)
    train(w, net, optimizer)
    close(whole(net), alone(w, optimizer=adam))
    dcp.save(state_of(net, optimizer), checkpoint_id=folder)


def load_from(w: Rank, folder: str, saved_by: int) -> None:
    """Into other parts: as many as there are ranks now."""
    net, optimizer = make(w)
    restore(net, optimizer, folder)
    expected = alone(Rank(0, saved_by, w.device, w.timeout, w.folder, w.device_id), optimizer=adam)
    close(whole(net), expected)
    moments = [state["exp_avg"].full_tensor() for state in optimizer.state.values()]
    assert len(moments) == 6
    assert all(moment.count_nonzero() for moment in moments)
    dist.barrier()
