"""Collectives and the device's streams: what was queued before is seen, what is queued after wait() sees the result."""

from __future__ import annotations

import os
import time
from typing import Any

import torch
import torch.distributed as dist
from rank import Rank

from checks import check, numbers, same, total

ON_A_STREAM = "the CPU has no streams"
LARGE = (40 << 20) // 4 + 3  # elements: 40 MiB and an odd rest; the staged engine cuts from 16 MiB on


@check()
def twenty_at_once(w: Rank) -> None:
    """In the order of calls, each on what the operator before it has left."""
    xs = [numbers(w.rank, (100, 10), seed=i).to(w.device) for i in range(20)]
    works = []
    for x in xs:
        x.mul_(3)
        works.append(dist.all_reduce(x, async_op=True))
    for i, (x, work) in enumerate(zip(xs, works, strict=True)):
        work.wait()
        x.add_(1)
        same(x, total(w, (100, 10), seed=i) * 3 + 1, i)


AT_ONCE = "its threads run at once"


@check(gloo=AT_ONCE)
def one_after_the_other_on_one_tensor(w: Rank) -> None:
    """Without a wait between them: they are in order among themselves."""
    for turn in range(10):
        x = torch.ones(1000, device=w.device)
        works = [dist.all_reduce(x, async_op=True) for _ in range(8)]
        works[-1].wait()
        same(x, torch.full((1000,), float(w.size**8)), turn)
        for work in works:
            work.wait()


@check(gloo=AT_ONCE)
def each_on_what_another_has_written(w: Rank) -> None:
    """Other collectives, a factor, and views of one storage: contiguous ones, and one with gaps."""
    twice = dist._make_nccl_premul_sum(2.0)
    x = torch.zeros(w.size, 6, device=w.device)
    for turn in range(10):
        x.fill_(w.rank + 1)
        dist.broadcast(x, 0, async_op=True)  # 1
        dist.all_reduce(x[w.size - 1], async_op=True)  # the last row: the number of ranks
        dist.all_reduce(x[:, ::2], async_op=True)
        dist.all_reduce(x[0], twice, async_op=True)
        work = dist.all_gather_into_tensor(out := torch.empty(w.size * w.size, 6, device=w.device), x, async_op=True)
        last = dist.broadcast(x, 0, async_op=True)
        work.wait()
        expected = torch.ones(w.size, 6)
        expected[-1] = w.size
        expected[:, ::2] *= w.size
        expected[0] *= 2 * w.size
        same(out, expected.repeat(w.size, 1), turn)
        last.wait()  # it writes what the next turn fills


@check(gloo=AT_ONCE)
def who_waits_for_one_sees_those_before(w: Rank) -> None:
    """The last of several calls, and a barrier."""
    xs = [torch.ones(1 << (18 - 2 * i), device=w.device) for i in range(4)]
    works = [dist.all_reduce(x, async_op=True) for x in xs]
    works[-1].wait()
    same(xs, [torch.full(x.shape, float(w.size)) for x in xs])
    for x in xs:
        dist.all_reduce(x, async_op=True)
    dist.barrier(device_ids=[w.device.index])
    same(xs, [torch.full(x.shape, float(w.size**2)) for x in xs])


@check(sizes=(2,), gloo=AT_ONCE)
def a_message_of_what_another_brings(w: Rank) -> None:
    """Rank 1 sends back what it is about to receive, and rank 0 takes it to the place that it sends from."""
    x = torch.full((1 << 16,), float(w.rank), device=w.device)
    if w.rank == 0:
        works = [dist.isend(x, 1, tag=1), dist.irecv(x, 1, tag=2)]
    else:
        works = [dist.irecv(x, 0, tag=1), dist.isend(x, 0, tag=2)]
    for work in works:
        work.wait()
    same(x, torch.zeros(1 << 16))


@check(gloo=ON_A_STREAM)
def wait_orders_the_current_stream(w: Rank) -> None:
    """Work, collective and use on a stream of the program's; the default stream sees it by wait_stream."""
    module = torch.get_device_module(w.device)
    stream = module.Stream(w.device)
    x = numbers(w.rank, (512, 512)).to(w.device)
    stream.wait_stream(module.current_stream(w.device))
    with module.stream(stream):
        y = x
        for _ in range(20):
            y = y + 1
        work = dist.all_reduce(y, async_op=True)
        work.wait()
        z = y * 2
    y.record_stream(stream)
    module.current_stream(w.device).wait_stream(stream)
    same(z, (total(w, (512, 512)) + 20 * w.size) * 2)


@check()
def a_lazy_clone_gets_its_memory_first(w: Rank) -> None:
    """The copy that separates it from its source is before the collective's own."""
    for seed in range(5):
        source = numbers(w.rank, seed=seed).to(w.device)
        x = torch._lazy_clone(source)
        dist.all_reduce(x)
        same(x, total(w, seed=seed), seed)
        same(source, numbers(w.rank, seed=seed), seed)


@check(gloo=ON_A_STREAM)
def wait_on_another_stream_than_the_call(w: Rank) -> None:
    module = torch.get_device_module(w.device)
    stream = module.Stream(w.device)
    x = numbers(w.rank, (300, 300)).to(w.device)
    work = dist.all_reduce(x, async_op=True)
    with module.stream(stream):
        work.wait()
        y = x + 1
    x.record_stream(stream)
    stream.synchronize()
    same(y, total(w, (300, 300)) + 1)
    work.wait()


@check(gloo=ON_A_STREAM)
def memory_that_is_dropped_at_once(w: Rank) -> None:
    """The group keeps what it uses: tensors made meanwhile are others."""
    works, kept = [], []
    for i in range(10):
        x = numbers(w.rank, (64, 64), seed=i).to(w.device)
        out = torch.empty(w.size, 64, 64, device=w.device)
        works.append(dist.all_gather_into_tensor(out, x, async_op=True))
        kept.append(out)
        del x
        torch.full((64, 64), -1.0, device=w.device)
    for i, (work, out) in enumerate(zip(works, kept, strict=True)):
        work.wait()
        same(out, torch.stack([numbers(r, (64, 64), seed=i) for r in w.ranks]), i)


@check(sizes=(2,), gloo=ON_A_STREAM)
def a_strided_result_that_is_dropped_at_once(w: Rank) -> None:
    """It is written behind the collective, which a late rank holds back; a tensor made meanwhile is another one.

    With DETAIL no rank is held: torch lets none begin a collective before all have come.
    """
    come = w.folder / "come"
    dist.all_reduce(torch.ones(1, device=w.device))  # the first joins, which waits for all
    torch.get_device_module(w.device).synchronize()
    dist.barrier()
    x = numbers(w.rank, (64, 64)).to(w.device).t()
    if w.rank == 1:
        while not come.exists() and os.environ.get("TORCH_DISTRIBUTED_DEBUG") != "DETAIL":
            time.sleep(0.01)
        dist.all_reduce(x)
        dist.barrier()
        return
    work = dist.all_reduce(x, async_op=True)
    del x, work
    others = [torch.full((64, 64), -1.0, device=w.device) for _ in range(4)]
    come.touch()
    dist.barrier()
    torch.get_device_module(w.device).synchronize()
    for other in others:
        same(other, torch.full((64, 64), -1.0))


@check()
def wait_twice_and_is_completed(w: Rank) -> None:
    x = numbers(w.rank).to(w.device)
    work = dist.all_reduce(x, async_op=True)
    assert work.wait()
    assert work.wait()
    if not w.is_cpu:
        torch.get_device_module(w.device).synchronize()
    assert work.is_completed()
    same(x, total(w))


@check()
def futures(w: Rank) -> None:
    """What follows in ``then`` is in order with the collective, and its value with who waits for it."""
    x = numbers(w.rank, (200, 200)).to(w.device)
    work = dist.all_reduce(x, async_op=True)
    after = work.get_future().then(lambda f: f.value()[0] / w.size)
    expected = total(w, (200, 200))
    same(after.wait(), expected / w.size)
    assert work.get_future().wait()[0].data_ptr() == x.data_ptr()
    same(x, expected)


@check()
def a_future_whose_callback_waits_for_another_collective(w: Rank) -> None:
    """As the hook of PowerSGD does: a thread that runs callbacks is not the one that ends the next call."""
    first, second = (numbers(w.rank, seed=seed).to(w.device) for seed in (0, 1))

    def then(future: torch.futures.Future[Any]) -> torch.Tensor:
        inner = dist.all_reduce(second, async_op=True).get_future().wait()[0]
        return future.value()[0] + inner

    found = dist.all_reduce(first, async_op=True).get_future().then(then).wait()
    same(found, sum(numbers(r) + numbers(r, seed=1) for r in w.ranks))


@check(sizes=(2,))
def large_tensors(w: Rank) -> None:
    """Cut into parts: the ends of each are in place, and the odd rest."""
    x = torch.arange(LARGE, device=w.device, dtype=torch.float32).remainder_(1021).add_(w.rank)
    expected = torch.arange(LARGE, dtype=torch.float32).remainder_(1021).mul_(w.size).add_(sum(w.ranks))
    dist.all_reduce(x)
    same(x, expected)


@check(sizes=(2,), gloo="it takes a result of as many dimensions as the argument")
def large_moves(w: Rank) -> None:
    out = torch.empty(w.size, LARGE // 2, dtype=torch.float32, device=w.device)
    mine = torch.arange(LARGE // 2, dtype=torch.float32).remainder_(1021)
    dist.all_gather_into_tensor(out, (mine + w.rank).to(w.device))
    same(out.unbind(), [mine + r for r in w.ranks])
    own = torch.empty(LARGE // 2, device=w.device)
    dist.reduce_scatter_tensor(own, out.view(-1))
    same(own, (mine + w.rank) * w.size)
    dist.broadcast(own, 1)
    same(own, (mine + 1) * w.size)


@check()
def barriers(w: Rank) -> None:
    """None passes before the last has come: each writes a file before, and finds all of them after."""
    for turn in range(3):
        (w.folder / f"barrier{turn}-{w.rank}").touch()
        if turn == 1:
            dist.barrier(async_op=True).wait()
        else:
            dist.barrier(device_ids=None if w.is_cpu else [w.device.index])
        assert len(list(w.folder.glob(f"barrier{turn}-*"))) == w.size
    dist.barrier()


@check(gloo="the CPU is one device", bound=False)
def a_barrier_is_of_the_device_that_was_used(w: Rank) -> None:
    """Programs that place tensors by index leave device 0 the current one, on all ranks."""
    module = torch.get_device_module(w.device)
    x = numbers(w.rank).to(w.device)
    dist.all_reduce(x)
    module.set_device(0)
    dist.barrier()
    module.set_device(w.device)
    same(x, total(w))


@check(sizes=(2,), gloo=ON_A_STREAM, native="ranks come to their devices in the same order", bound=False)
def tensors_on_two_devices(w: Rank) -> None:
    """A group that is bound to no device takes those of each in turn."""
    count = torch.get_device_module(w.device).device_count()
    for index in [w.device.index] if w.device_id else range(count):
        x = numbers(w.rank).to(torch.device(w.device.type, index))
        dist.all_reduce(x)
        assert x.device.index == index
        same(x, total(w), index)
    cpu = numbers(w.rank)
    dist.all_reduce(cpu)
    same(cpu, total(w))
