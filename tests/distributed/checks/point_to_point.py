"""send and recv, their asynchronous forms, from any rank, and several at once."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from rank import Rank

from checks import MOVED, adds_up, check, exchanged, numbers, same


@check(gloo="it sends no float8")
def send_and_recv(w: Rank) -> None:
    for dtype in MOVED:
        out = torch.zeros(5, 3, dtype=getattr(torch, dtype), device=w.device)
        if w.rank == 0:
            dist.send(numbers(0, dtype=dtype).to(w.device), 1)
            dist.recv(out, w.size - 1)
            same(out, numbers(w.size - 1, dtype=dtype), dtype)
        else:
            assert dist.recv(out, w.rank - 1) == w.rank - 1
            same(out, numbers(w.rank - 1, dtype=dtype), dtype)
            dist.send(numbers(w.rank, dtype=dtype).to(w.device), w.next)


@check(gloo="it has no connection to itself")
def a_message_to_oneself_is_refused(w: Rank) -> None:
    """torch asks for it in send() alone, and lets isend()'s operations in a batch through."""
    x = numbers(w.rank).to(w.device)
    group = dist.group.WORLD._get_backend(w.device)
    for call in (group.send, group.recv):
        with pytest.raises(ValueError, match=rf"rank {w.rank} is the caller itself.*copy the tensor"):
            call([x], w.rank, 0)
    adds_up(w)


@check(gloo="it has no connection to itself")
def messages_to_oneself_in_a_batch(w: Rank) -> None:
    """As a group's first call: a batch of messages joins as a collective does, and goes over the driver's links."""
    group = dist.new_group()
    sent = [numbers(w.rank, seed=i).to(w.device) for i in range(3)]
    out = [torch.zeros(5, 3, device=w.device) for _ in sent]
    receives = [dist.P2POp(dist.irecv, out[i], w.rank, group) for i in range(2)]
    sends = [dist.P2POp(dist.isend, sent[i], w.rank, group) for i in range(2)]
    other = [dist.P2POp(dist.isend, sent[2], w.next, group), dist.P2POp(dist.irecv, out[2], w.previous, group)]
    exchanged(*receives, *sends, *other)
    for i, of in enumerate((w.rank, w.rank, w.previous)):
        same(out[i], numbers(of, seed=i), i)


@check(gloo="it has no connection to itself")
def messages_to_oneself_with_tags(w: Rank) -> None:
    out = [torch.zeros(5, 3, device=w.device) for _ in range(2)]
    sent = [numbers(w.rank, seed=i).to(w.device) for i in range(2)]
    operations = [dist.P2POp(dist.irecv, out[i], w.rank, tag=i + 1) for i in range(2)]
    operations += [dist.P2POp(dist.isend, sent[i], w.rank, tag=i + 1) for i in (1, 0)]
    exchanged(*operations)
    for i in range(2):
        same(out[i], numbers(w.rank, seed=i), i)


@check(gloo="it has no connection to itself", native="a send waits for its receive, on the stream of both")
def a_message_to_oneself_is_received_in_a_later_batch(w: Rank) -> None:
    x, out = numbers(w.rank).to(w.device), torch.zeros(5, 3, device=w.device)
    for operation, tensor in ((dist.isend, x), (dist.irecv, out)):
        exchanged(dist.P2POp(operation, tensor, w.rank))
        x.zero_()  # which was sent
    same(out, numbers(w.rank))


@check(gloo="it has no connection to itself")
def a_batch_of_some_ranks_behind_a_barrier(w: Rank) -> None:
    """A barrier of the device's backend is a collective as others: it joins, so that the others need not take part."""
    group = dist.new_group()
    group._get_backend(w.device).barrier().wait()
    if w.rank == 0:
        x, out = numbers(0).to(w.device), torch.zeros(5, 3, device=w.device)
        exchanged(dist.P2POp(dist.isend, x, 0, group), dist.P2POp(dist.irecv, out, 0, group))
        same(out, numbers(0))


@check()
def messages_with_tags(w: Rank) -> None:
    """A tag's message is found, whichever comes first."""
    if w.rank == 0:
        works = [dist.isend(numbers(0, seed=tag).to(w.device), 1, tag=tag) for tag in (7, 8)]
        for work in works:
            work.wait()
    elif w.rank == 1:
        out = torch.zeros(2, 5, 3, device=w.device)
        works = [dist.irecv(out[i], 0, tag=tag) for i, tag in enumerate((8, 7))]
        for work in works:
            work.wait()
        same(out, torch.stack([numbers(0, seed=8), numbers(0, seed=7)]))


@check(native="a message from any rank goes through the host, by a tag")
def messages_from_anyone(w: Rank) -> None:
    if w.rank != 0:
        dist.send(numbers(w.rank).to(w.device), 0)
        return
    seen = set()
    for _ in range(w.size - 1):
        out = torch.zeros(5, 3, device=w.device)
        source = dist.recv(out)
        same(out, numbers(source), source)
        seen.add(source)
    assert seen == set(range(1, w.size))


@check()
def messages_from_anyone_with_a_tag(w: Rank) -> None:
    if w.rank != 0:
        dist.send(numbers(w.rank).to(w.device), 0, tag=3)
        return
    out = torch.zeros(5, 3, device=w.device)
    assert {dist.recv(out, tag=3) for _ in range(w.size - 1)} == set(range(1, w.size))


@check(native="each send waits for its receive, in the order of the stream")
def many_messages_in_order(w: Rank) -> None:
    out = torch.zeros(10, 4, device=w.device)
    works = [dist.isend(numbers(w.rank, (4,), seed=i).to(w.device), w.next) for i in range(10)]
    works += [dist.irecv(out[i], w.previous) for i in range(10)]
    for work in works:
        work.wait()
    same(out, torch.stack([numbers(w.previous, (4,), seed=i) for i in range(10)]))


@check()
def several_at_once(w: Rank) -> None:
    """batch_isend_irecv around the ring: of mutual sends, which would wait for each other one by one."""
    sent, out = ([numbers(r, (1000, 7), seed=i).to(w.device) for i in range(2)] for r in (w.rank, w.next))
    sends = [dist.P2POp(dist.isend, x, w.next) for x in sent]
    exchanged(*sends, *(dist.P2POp(dist.irecv, x, w.previous) for x in out))
    same(out, [numbers(w.previous, (1000, 7), seed=i) for i in range(2)])


@check()
def a_message_of_nothing_and_a_scalar(w: Rank) -> None:
    scalar = torch.zeros((), device=w.device)
    nothing = torch.zeros(0, device=w.device)
    if w.rank == 0:
        dist.send(numbers(0, ()).to(w.device), 1)
        dist.send(nothing, 1)
    elif w.rank == 1:
        dist.recv(scalar, 0)
        dist.recv(nothing, 0)
        same(scalar, numbers(0, ()))
