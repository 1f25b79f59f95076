"""Collectives that move: all_gather and all_to_all in all their forms, broadcast, gather, scatter."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.distributed as dist
from rank import Rank

from checks import MOVED, adds_up, check, numbers, same

NO_FLOAT8 = "it moves no float8 and no int16"


def empty(w: Rank, shape: tuple[int, ...], dtype: str = "float32") -> torch.Tensor:
    return torch.zeros(shape, dtype=getattr(torch, dtype), device=w.device)


@check(gloo=NO_FLOAT8)
def all_gather_into_a_list(w: Rank) -> None:
    for dtype in MOVED:
        out = [empty(w, (5, 3), dtype) for _ in w.ranks]
        dist.all_gather(out, numbers(w.rank, dtype=dtype).to(w.device))
        same(out, [numbers(r, dtype=dtype) for r in w.ranks], dtype)


@check(gloo="it takes equal parts")
def all_gather_of_parts_of_different_sizes(w: Rank) -> None:
    out = [empty(w, (r + 1, 2)) for r in w.ranks]
    dist.all_gather(out, numbers(w.rank, (w.rank + 1, 2)).to(w.device))
    same(out, [numbers(r, (r + 1, 2)) for r in w.ranks])


@check(gloo=NO_FLOAT8)
def all_gather_into_a_tensor(w: Rank) -> None:
    for dtype in MOVED:
        out = empty(w, (5 * w.size, 3), dtype)
        dist.all_gather_into_tensor(out, numbers(w.rank, dtype=dtype).to(w.device))
        same(out, torch.cat([numbers(r, dtype=dtype) for r in w.ranks]), dtype)


@check(gloo="it takes a result of as many dimensions as the argument")
def all_gather_into_a_stack(w: Rank) -> None:
    out = empty(w, (w.size, 5, 3))
    dist.all_gather_into_tensor(out, numbers(w.rank).to(w.device))
    same(out, torch.stack([numbers(r) for r in w.ranks]))


@check(gloo="it takes a result of as many dimensions as the argument")
def all_gather_in_place(w: Rank) -> None:
    """The argument lies in the result, where a sharded parameter does."""
    out = empty(w, (w.size, 4))
    out[w.rank] = numbers(w.rank, (4,)).to(w.device)
    dist.all_gather_into_tensor(out, out[w.rank])
    same(out, torch.stack([numbers(r, (4,)) for r in w.ranks]))


@check()
def all_gather_of_scalars_and_nothing(w: Rank) -> None:
    out = [empty(w, ()) for _ in w.ranks]
    dist.all_gather(out, numbers(w.rank, ()).to(w.device))
    assert [t.item() for t in out] == [numbers(r, ()).item() for r in w.ranks]
    nothing = empty(w, (0, 4))
    dist.all_gather_into_tensor(nothing, empty(w, (0, 4)))
    assert nothing.shape == (0, 4)


@check(gloo=NO_FLOAT8)
def broadcast(w: Rank) -> None:
    for dtype, src in itertools.product(MOVED, w.ranks):
        x = numbers(w.rank, dtype=dtype).to(w.device)
        dist.broadcast(x, src)
        same(x, numbers(src, dtype=dtype), (dtype, src))


@check()
def broadcast_of_scalars_and_nothing(w: Rank) -> None:
    x = numbers(w.rank, ()).to(w.device)
    dist.broadcast(x, 1)
    same(x, numbers(1, ()))
    dist.broadcast(empty(w, (0,)), 0)


@check(gloo="it wants contiguous tensors")
def broadcast_of_dense_tensors(w: Rank) -> None:
    for make in (lambda t: t.contiguous(memory_format=torch.channels_last), lambda t: t.transpose(0, 2)):
        x = make(numbers(w.rank, (3, 4, 5, 6)).to(w.device))
        strides = x.stride()
        dist.broadcast(x, w.size - 1)
        same(x.contiguous(), make(numbers(w.size - 1, (3, 4, 5, 6))).contiguous())
        assert x.stride() == strides


SOME = ("float32", "int64", "bfloat16", "bool")


@check()
def gather(w: Rank) -> None:
    for dtype, dst in itertools.product(SOME, w.ranks):
        out = [empty(w, (5, 3), dtype) for _ in w.ranks] if w.rank == dst else None
        dist.gather(numbers(w.rank, dtype=dtype).to(w.device), out, dst=dst)
        if out:
            same(out, [numbers(r, dtype=dtype) for r in w.ranks], (dtype, dst))


@check()
def scatter(w: Rank) -> None:
    for dtype, src in itertools.product(SOME, w.ranks):
        out = empty(w, (5, 3), dtype)
        parts = [numbers(d, dtype=dtype, seed=src).to(w.device) for d in w.ranks] if w.rank == src else None
        dist.scatter(out, parts, src=src)
        same(out, numbers(w.rank, dtype=dtype, seed=src), (dtype, src))


@check(gloo=NO_FLOAT8)
def all_to_all_of_equal_parts(w: Rank) -> None:
    for dtype in MOVED:
        out = empty(w, (2 * w.size, 3), dtype)
        dist.all_to_all_single(out, numbers(w.rank, (2 * w.size, 3), dtype).to(w.device))
        same(out, torch.cat([numbers(r, (2 * w.size, 3), dtype).chunk(w.size)[w.rank] for r in w.ranks]), dtype)


@check()
def all_to_all_by_splits(w: Rank) -> None:
    """Rank r sends r + d rows to rank d: 0 is the one to itself in rank 0."""
    sent, received = [w.rank + d for d in w.ranks], [r + w.rank for r in w.ranks]
    x = numbers(w.rank, (sum(sent), 2)).to(w.device)
    out = empty(w, (sum(received), 2))
    dist.all_to_all_single(out, x, received, sent)
    rows = [numbers(r, (sum(r + d for d in w.ranks), 2)).split([r + d for d in w.ranks])[w.rank] for r in w.ranks]
    same(out, torch.cat(rows))


@check()
def all_to_all_to_one_alone(w: Rank) -> None:
    """All rows go to rank 0: the others receive nothing."""
    out = empty(w, (3 * w.size if w.rank == 0 else 0, 2))
    received = [3 if w.rank == 0 else 0] * w.size
    dist.all_to_all_single(out, numbers(w.rank, (3, 2)).to(w.device), received, [3] + [0] * (w.size - 1))
    same(out, torch.cat([numbers(r, (3, 2)) for r in w.ranks]) if w.rank == 0 else torch.empty(0, 2))


@check(gloo="it takes equal parts")
def all_to_all_of_lists(w: Rank) -> None:
    out = [empty(w, (r + 1, 2)) for r in w.ranks]
    dist.all_to_all(out, [numbers(w.rank, (w.rank + 1, 2), seed=d).to(w.device) for d in w.ranks])
    same(out, [numbers(r, (r + 1, 2), seed=w.rank) for r in w.ranks])


@check(gloo="it takes them")
def outputs_of_which_elements_share_a_place_are_refused(w: Rank) -> None:
    """Before anything is sent: the group stays usable."""
    x, shared = numbers(w.rank).to(w.device), empty(w, (1, 3)).expand(5, 3)
    for call in (lambda: dist.all_reduce(shared), lambda: dist.all_gather([shared for _ in w.ranks], x)):
        with pytest.raises(ValueError, match=r"overlapping elements.*clone\(\)"):
            call()
    adds_up(w)


@check()
def wrong_arguments_are_refused_and_leave_the_group_usable(w: Rank) -> None:
    """On every rank alike, before anything is sent."""
    x = numbers(w.rank).to(w.device)
    for call in (
        lambda: dist.all_gather_into_tensor(empty(w, (5 * w.size + 1, 3)), x),
        lambda: dist.all_gather_into_tensor(empty(w, (5 * w.size, 3), "int32"), x),
        lambda: dist.reduce_scatter_tensor(empty(w, (2, 3)), x),
        lambda: dist.all_gather([x.clone() for _ in range(w.size + 1)], x),
        lambda: dist.all_to_all_single(empty(w, (5, 3)), x, [1] * w.size, [1] * w.size),
        lambda: dist.broadcast(x, w.size),
    ):
        with pytest.raises((RuntimeError, ValueError)):
            call()
    adds_up(w)


@check(gloo="the CPU is one device")
def tensors_of_another_device_are_refused(w: Rank) -> None:
    """Before the group joins anything, on a wrong device; also the own part of a list, which is not sent."""
    group = dist.new_group()
    module = torch.get_device_module(w.device)
    other = torch.device(w.device.type, (w.device.index + 1) % module.device_count())
    x = numbers(w.rank).to(w.device)
    for stray in (x.to(other), x.cpu()):
        own = [stray if r == w.rank else x for r in w.ranks]
        outs = [x.clone() for _ in w.ranks]
        refused = [
            lambda outs=outs, own=own: dist.all_to_all(outs, own, group),
            lambda outs=outs, own=own: dist.all_to_all(own, outs, group),
            lambda x=x, own=own: dist.all_gather(own, x, group),
            lambda x=x, own=own: dist.reduce_scatter(torch.empty_like(x), own, group=group),
            lambda x=x, stray=stray: dist.all_to_all_single(x, stray, group=group),
        ]
        for call in refused:
            with pytest.raises(ValueError, match=r"a tensor is on|the call is on"):
                call()
    adds_up(w, group)


@check(gloo="the CPU is one device", bound=True)
def a_bound_group_takes_its_own_device_alone(w: Rank) -> None:
    group = dist.new_group()
    other = (w.device.index + 1) % torch.get_device_module(w.device).device_count()
    x = numbers(w.rank).to(w.device)
    refused = rf"on {w.device.type}:{other}, and the process group is bound by its device_id to {w.device}"
    for call in (
        lambda: dist.all_reduce(x.to(other), group=group),
        lambda: dist.send(x.to(other), w.next, group=group),
        lambda: dist.barrier(group, device_ids=[other]),
    ):
        with pytest.raises(ValueError, match=refused):
            call()
    adds_up(w, group)
