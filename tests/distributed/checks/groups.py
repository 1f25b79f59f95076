"""Groups of some ranks, coalesced and functional collectives, objects: what torch builds upon a backend."""

from __future__ import annotations

import datetime
import os

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from rank import Rank
from torch.distributed.distributed_c10d import _coalescing_manager

from checks import adds_up, check, exchanged, numbers, same, total

NOT_COALESCED = "it has no coalesced forms on the CPU"


@check(gloo="the backend is another")
def the_backend_has_its_name(w: Rank) -> None:
    name = f"{w.device.type}ccl"
    assert dist.get_default_backend_for_device(w.device) == name
    assert dist.is_backend_available(name)
    group = dist.group.WORLD._get_backend(w.device)
    assert group.name() == name
    assert (group.rank(), group.size()) == (w.rank, w.size)
    assert (dist.get_rank(), dist.get_world_size()) == (w.rank, w.size)
    if not w.device_id:  # then torch makes a group for that device alone
        assert dist.group.WORLD._get_backend(torch.device("cpu")).name() == "gloo"


@check(gloo="it takes them")
def sparse_tensors_are_refused(w: Rank) -> None:
    x = torch.eye(3).to_sparse().to(w.device)
    with pytest.raises(NotImplementedError, match="supports only dense ones; communicate indices and values"):
        dist.all_reduce(x)
    same(x.to_dense(), torch.eye(3))


@check()
def objects(w: Rank) -> None:
    everything = [None] * w.size
    dist.all_gather_object(everything, {"rank": w.rank, "x": [w.rank] * w.rank})
    assert everything == [{"rank": r, "x": [r] * r} for r in w.ranks]
    received = [("from", w.rank), None]
    dist.broadcast_object_list(received, src=1)
    assert received == [("from", 1), None]
    gathered = [None] * w.size if w.rank == 0 else None
    dist.gather_object(w.rank * 10, gathered, dst=0)
    assert gathered == ([r * 10 for r in w.ranks] if w.rank == 0 else None)
    out: list[object] = [None]
    dist.scatter_object_list(out, [f"to {r}" for r in w.ranks] if w.rank == 0 else None, src=0)
    assert out == [f"to {w.rank}"]


@check()
def objects_by_the_device(w: Rank) -> None:
    received = [("from", w.rank)]
    dist.broadcast_object_list(received, src=0, device=w.device)
    assert received == [("from", 0)]
    if w.rank == 0:
        dist.send_object_list([{"a": 1}], dst=1, device=w.device)
    elif w.rank == 1:
        dist.recv_object_list(received, src=0, device=w.device)
        assert received == [{"a": 1}]


@check()
def tensors_as_objects(w: Rank) -> None:
    everything = [None] * w.size
    dist.all_gather_object(everything, numbers(w.rank).to(w.device))
    same(everything, [numbers(r) for r in w.ranks])


@check(sizes=(3,))
def a_new_group(w: Rank) -> None:
    """Of two of three, in another order than the world's: rank 0 of it is rank 0 still, as torch sorts them."""
    group = dist.new_group([2, 0], timeout=datetime.timedelta(seconds=30))
    if w.rank == 1:
        assert group == dist.GroupMember.NON_GROUP_MEMBER
        return
    x = numbers(w.rank).to(w.device)
    dist.all_reduce(x, group=group)
    same(x, numbers(0) + numbers(2))
    dist.broadcast(x, src=2, group=group)
    dist.broadcast(x, group=group, group_src=1)
    dist.destroy_process_group(group)


@check(sizes=(2,))
def subgroups(w: Rank) -> None:
    own, groups = dist.new_subgroups(1)
    assert len(groups) == w.size
    x = numbers(w.rank).to(w.device)
    dist.all_reduce(x, group=own)
    same(x, numbers(w.rank))
    own, _ = dist.new_subgroups_by_enumeration([[1, 0]])
    dist.all_reduce(x, group=own)
    same(x, total(w))


@check(gloo="it does not split", bound=True)
def split_groups(w: Rank) -> None:
    """By the device's backend from its parent; torch asks for a group that is bound to a device."""
    world = dist.group.WORLD
    group = dist.split_group(world, [[r] for r in w.ranks])
    assert group.size() == 1
    x = numbers(w.rank).to(w.device)
    dist.all_reduce(x, group=group)
    same(x, numbers(w.rank))
    both = dist.split_group(world, [[0, 1]])
    if w.rank < 2:
        dist.all_reduce(x, group=both)
        same(x, numbers(0) + numbers(1))
        if not has_cpu():  # else torch's Gloo meets its keys again in the next one
            dist.destroy_process_group(both)


def has_cpu() -> bool:
    return torch.device("cpu") in dist.group.WORLD._device_types


@check(gloo="it does not split", bound=True)
def a_split_group_has_both_devices(w: Rank) -> None:
    """Where its parent has: torch gives both backends one store."""
    for _ in range(3 if has_cpu() else 0):
        both = dist.split_group(dist.group.WORLD, [[0, 1]])
        if w.rank < 2:
            for device in (torch.device("cpu"), w.device):
                x = numbers(w.rank).to(device)
                dist.all_reduce(x, group=both)
                same(x, numbers(0) + numbers(1))


@check(gloo="the CPU is one device", bound=False)
def a_barrier_before_the_device_is_chosen(w: Rank) -> None:
    """Takes that of the global rank modulo their number, as NCCL's does."""
    group = dist.new_group()
    module = torch.get_device_module(w.device)
    module.set_device(0)
    try:
        group._get_backend(w.device).barrier().wait()
    finally:
        module.set_device(w.device)
    adds_up(w, group)


@check()
def several_groups_at_once(w: Rank) -> None:
    """Their collectives do not mix, whatever the order on the host is in each."""
    one, two = dist.new_group(), dist.new_group()
    x, y = (numbers(w.rank, seed=s).to(w.device) for s in (1, 2))
    works = [dist.all_reduce(x, group=one, async_op=True), dist.all_reduce(y, group=two, async_op=True)]
    for work in reversed(works):
        work.wait()
    same(x, total(w, seed=1))
    same(y, total(w, seed=2))


@check(gloo=NOT_COALESCED)
def coalesced_by_the_manager(w: Rank) -> None:
    xs = [numbers(w.rank, seed=i).to(w.device) for i in range(3)]
    with _coalescing_manager(device=w.device):
        for x in xs:
            dist.all_reduce(x)
    same(xs, [total(w, seed=i) for i in range(3)])
    with _coalescing_manager(async_ops=True) as work:
        for x in xs:
            dist.all_reduce(x)
    work.wait()
    same(xs, [total(w, seed=i) * w.size for i in range(3)])


@check(gloo=NOT_COALESCED)
def coalesced_gathers_and_scatters(w: Rank) -> None:
    outs = [torch.empty(5 * w.size, 3, device=w.device) for _ in range(3)]
    with _coalescing_manager(async_ops=True) as work:
        for i, out in enumerate(outs):
            dist.all_gather_into_tensor(out, numbers(w.rank, seed=i).to(w.device))
    work.wait()
    same(outs, [torch.cat([numbers(r, seed=i) for r in w.ranks]) for i in range(3)])
    parts = [torch.empty(5, 3, device=w.device) for _ in range(3)]
    with _coalescing_manager(async_ops=True) as work:
        for part, out in zip(parts, outs, strict=True):
            dist.reduce_scatter_tensor(part, out)
    work.wait()
    same(parts, [numbers(w.rank, seed=i) * w.size for i in range(3)])


@check(gloo=NOT_COALESCED)
def coalesced_messages(w: Rank) -> None:
    """A mixture in one group: it ends when all of them do."""
    out, x = torch.zeros(5, 3, device=w.device), numbers(w.rank, seed=1).to(w.device)
    with _coalescing_manager(device=w.device, async_ops=True) as work:
        dist.isend(numbers(w.rank).to(w.device), w.next)
        dist.irecv(out, w.previous)
        dist.all_reduce(x)
    work.wait()
    same(out, numbers(w.previous))
    same(x, total(w, seed=1))


@check(gloo=NOT_COALESCED)
def lists_of_tensors(w: Rank) -> None:
    xs = [numbers(w.rank, seed=i).to(w.device) for i in range(3)]
    dist.all_reduce_coalesced(xs)
    same(xs, [total(w, seed=i) for i in range(3)])


@check()
def functional_collectives(w: Rank) -> None:
    world = dist.group.WORLD
    x = numbers(w.rank, (4, 2 * w.size)).to(w.device)
    everyone = [numbers(r, (4, 2 * w.size)) for r in w.ranks]
    same(functional.all_reduce(x, "sum", world) + 0, sum(everyone))
    same(x, everyone[w.rank])
    for dim in (0, 1):
        same(functional.all_gather_tensor(x, dim, world) + 0, torch.cat(everyone, dim))
    same(functional.reduce_scatter_tensor(x, "sum", 1, world) + 0, sum(everyone).chunk(w.size, 1)[w.rank].contiguous())
    same(functional.broadcast(x, 1, world) + 0, everyone[1])


@check()
def functional_all_to_all(w: Rank) -> None:
    sent, received = [w.rank + d for d in w.ranks], [r + w.rank for r in w.ranks]
    x = numbers(w.rank, (sum(sent), 2)).to(w.device)
    found = functional.all_to_all_single(x, received, sent, dist.group.WORLD)
    rows = [numbers(r, (sum(r + d for d in w.ranks), 2)).split([r + d for d in w.ranks])[w.rank] for r in w.ranks]
    same(found + 0, torch.cat(rows))


@check(gloo=NOT_COALESCED)
def functional_coalesced(w: Rank) -> None:
    xs = [numbers(w.rank, (2 * w.size, 3), seed=i).to(w.device) for i in range(2)]
    everyone = [[numbers(r, (2 * w.size, 3), seed=i) for r in w.ranks] for i in range(2)]
    summed = functional.all_reduce_coalesced(xs, "sum", dist.group.WORLD)
    same([y + 0 for y in summed], map(sum, everyone))
    gathered = functional.all_gather_into_tensor_coalesced(xs, dist.group.WORLD)
    same([y + 0 for y in gathered], map(torch.cat, everyone))
    scattered = functional.reduce_scatter_tensor_coalesced(xs, "sum", [0, 0], dist.group.WORLD)
    same([y + 0 for y in scattered], [sum(parts).chunk(w.size)[w.rank] for parts in everyone])


@check()
def differentiable_collectives(w: Rank) -> None:
    x = numbers(w.rank).to(w.device).requires_grad_()
    y = functional.all_gather_tensor_autograd(x, 0, dist.group.WORLD)
    (y * torch.arange(1.0, 5 * w.size + 1, device=w.device).unsqueeze(1)).sum().backward()
    rows = torch.arange(1.0, 5 * w.size + 1).chunk(w.size)[w.rank]
    same(x.grad, (rows * w.size).unsqueeze(1).expand(5, 3).contiguous())


def too_large_for_the_driver(w: Rank) -> None:
    """Whose communicators take two ranks, one fewer than there are."""
    engine = torch.get_device_module(w.device).distributed.engine
    assert engine() == "staged"
    adds_up(w)
    pair = dist.new_group([0, 1])
    if w.rank < 2:
        assert engine(pair) == "native"
        y = numbers(w.rank).to(w.device)
        dist.all_reduce(y, group=pair)
        same(y, numbers(0) + numbers(1))


def without_gloo(w: Rank) -> None:
    """What the driver's links support is unchanged; the rest is an error that names Gloo; the group stays usable."""
    dist.is_gloo_available = lambda: False
    distributed = torch.get_device_module(w.device).distributed
    assert distributed.is_available()
    group = dist.new_group(backend=f"{w.device.type}ccl")
    assert distributed.engine(group) == "native"
    x = numbers(w.rank).to(w.device)
    out = torch.zeros(5, 3, device=w.device)
    with pytest.raises(NotImplementedError, match=r"needs Gloo, which this torch was built without.*by device_id"):
        dist.send(x, w.next, group=group)  # before the group has joined
    dist.all_reduce(x, group=group)
    same(x, total(w))
    exchanged(dist.P2POp(dist.isend, x, w.next, group), dist.P2POp(dist.irecv, out, w.previous, group))
    same(out, total(w))
    with pytest.raises(NotImplementedError, match=r"send of process group .* needs Gloo"):
        dist.send(x, w.next, group=group, tag=1)
    with pytest.raises(NotImplementedError, match=r"all_reduce of process group .* needs Gloo"):
        dist.all_reduce(x.to(torch.uint16), group=group)
    dist.barrier(group, device_ids=[w.device.index])
    dist.destroy_process_group(group)
    os.environ[f"{w.device.type.upper()}_DIST"] = "staged"
    with pytest.raises(RuntimeError, match=r"needs Gloo, which this torch was built without: .*_DIST says so"):
        dist.new_group(backend=f"{w.device.type}ccl")
