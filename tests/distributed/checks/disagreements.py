"""Ranks that make different calls of the same collective: an error on each, and no process ends by it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from rank import Rank

from checks.failures import Outcome, outcome, shorten_timeout

Call = Callable[[Rank, Any], Any]


def ones(w: Rank, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype, device=w.device)


def size(w: Rank) -> int:
    """More on rank 1: what comes is too long on the one, and too short on the other."""
    return 100 + 50000 * w.rank


def gather(w: Rank, group: Any) -> None:
    x = ones(w, size(w))
    dist.gather(x, [torch.empty_like(x) for _ in w.ranks] if w.rank == 0 else None, 0, group=group)


def scatter(w: Rank, group: Any) -> None:
    x = ones(w, size(w))
    dist.scatter(x, [torch.ones_like(x) for _ in w.ranks] if w.rank == 0 else None, 0, group=group)


def all_to_all_by_splits(w: Rank, group: Any) -> None:
    """Rank 0 sends 7 rows to rank 1, which takes 3."""
    sent, received = ([3, 7], [3, 3]) if w.rank == 0 else ([3, 3], [3, 3])
    dist.all_to_all_single(ones(w, sum(received), 2), ones(w, sum(sent), 2), received, sent, group=group)


def all_to_all_of_lists(w: Rank, group: Any) -> None:
    dist.all_to_all([ones(w, 5) for _ in w.ranks], [ones(w, 5 + w.rank) for _ in w.ranks], group=group)


def barrier_and_all_reduce(w: Rank, group: Any) -> None:
    """The device's own barrier: torch's waits on the CPU where a group has it."""
    if w.rank == 0:
        dist.all_reduce(ones(w, 5), group=group)
    else:
        group._get_backend(w.device).barrier().wait()


def even_all_to_all(w: Rank, group: Any) -> None:
    dist.all_to_all_single(ones(w, w.size), ones(w, w.size), group=group)


def one_and_all_reduce(one: Call) -> Call:
    """On rank 0, and on the others."""

    def call(w: Rank, group: Any) -> None:
        if w.rank == 0:
            one(w, group)
        else:
            dist.all_reduce(ones(w, 5), group=group)

    return call


def message(sent: int, taken: int) -> Call:
    def call(w: Rank, group: Any) -> None:
        if w.rank == 0:
            dist.send(ones(w, sent), 1, group=group)
        else:
            dist.recv(ones(w, taken), 0, group=group)

    return call


COLLECTIVES: dict[str, Call] = {
    "all_reduce": lambda w, g: dist.all_reduce(ones(w, size(w)), group=g),
    "all_reduce of parts": lambda w, g: dist.all_reduce(ones(w, (5 << 20) + w.rank), group=g),
    "all_reduce of dtypes": lambda w, g: dist.all_reduce(
        ones(w, 5, dtype=(torch.float32, torch.int32)[w.rank]), group=g
    ),
    "all_reduce by operations": lambda w, g: dist.all_reduce(
        ones(w, 5), (dist.ReduceOp.SUM, dist.ReduceOp.MAX)[w.rank], group=g
    ),
    "all_reduce_coalesced": lambda w, g: dist.all_reduce_coalesced([ones(w, 5 + w.rank), ones(w, 5 - w.rank)], group=g),
    "broadcast": lambda w, g: dist.broadcast(ones(w, size(w)), 0, group=g),
    "broadcast of roots": lambda w, g: dist.broadcast(ones(w, 5), w.rank, group=g),
    "broadcast of dtypes": lambda w, g: dist.broadcast(
        ones(w, 5, dtype=(torch.float32, torch.int32)[w.rank]), 0, group=g
    ),
    "reduce": lambda w, g: dist.reduce(ones(w, size(w)), 0, group=g),
    "all_gather": lambda w, g: dist.all_gather([ones(w, size(w)) for _ in w.ranks], ones(w, size(w)), group=g),
    "all_gather_into_tensor": lambda w, g: dist.all_gather_into_tensor(
        ones(w, w.size * size(w)), ones(w, size(w)), group=g
    ),
    "reduce_scatter": lambda w, g: dist.reduce_scatter(ones(w, size(w)), [ones(w, size(w)) for _ in w.ranks], group=g),
    "reduce_scatter_tensor": lambda w, g: dist.reduce_scatter_tensor(
        ones(w, size(w)), ones(w, w.size * size(w)), group=g
    ),
    "gather": gather,
    "scatter": scatter,
    "all_to_all by splits": all_to_all_by_splits,
    "all_to_all of lists": all_to_all_of_lists,
    "barrier and all_reduce": barrier_and_all_reduce,
    "all_to_all and all_reduce": one_and_all_reduce(even_all_to_all),
    "all_to_all by splits and all_reduce": one_and_all_reduce(all_to_all_by_splits),
    "all_to_all of lists and all_reduce": one_and_all_reduce(all_to_all_of_lists),
    "gather and all_reduce": one_and_all_reduce(gather),
}
MESSAGES_OF_A_DRIVER = {"all_to_all of lists": 1, "all_to_all of lists and all_reduce": 1}
"""The rank that nothing of a wrong size comes to, or that waits for what does not come."""
BYTES_OF_A_DRIVER = {"broadcast of dtypes"}
"""What a driver moves as bytes: it does not know their dtype, and their number is the same."""
MESSAGES: dict[str, Call] = {
    "a message that is too long": message(100, 60),
    "a message that is too short": message(60, 100),
    "a large message that is too long": message(60000, 2000),
    "a large message that is too short": message(50000, 60000),
}


def each(w: Rank) -> dict[str, Outcome]:
    """The outcome of each, in a separate group."""
    found = {}
    for name, call in {**COLLECTIVES, **MESSAGES}.items():
        group = dist.new_group(timeout=timedelta(seconds=2))
        dist.all_reduce(ones(w, 1), group=group)
        torch.get_device_module(w.device).synchronize()
        dist.barrier(group)  # neither sees the other's error in that
        found[name] = outcome(lambda call=call, group=group: finish(w, call, group))
        dist.destroy_process_group(group)
    return found


def one(w: Rank, name: str) -> Outcome:
    """Of the default group."""
    shorten_timeout(w)
    return outcome(lambda: finish(w, COLLECTIVES[name], None))


def finish(w: Rank, call: Call, group: Any) -> None:
    """With native groups the result is waited for on the device."""
    call(w, group)
    torch.get_device_module(w.device).synchronize()
