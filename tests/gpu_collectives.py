"""Collectives by value over the driver's own links: a part of ``make gpu-check``, and any device's under torchrun.

``torchrun --nproc-per-node N tests/gpu_collectives.py DEVICE``; one rank is enough. The last line says what was run.
"""

from __future__ import annotations

import importlib
import sys

import torch
import torch.distributed as dist

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.int32, torch.int64)
COUNT = 1003


def same(got: torch.Tensor, want: torch.Tensor, what: str) -> None:
    """Raise AssertionError unless the bits on the device are those on the CPU."""
    assert torch.equal(got.cpu(), want), f"{what}: {got.cpu()[:8].tolist()}... is not {want[:8].tolist()}..."


def given(rank: int, dtype: torch.dtype, count: int = COUNT) -> torch.Tensor:
    """What a rank has: whole numbers of which all dtypes hold the sums of eight ranks."""
    return ((torch.arange(count) + 3 * rank) % 7).to(dtype)


def reductions(device: torch.device, rank: int, size: int) -> int:
    """all_reduce, reduce, reduce_scatter: SUM, MIN and MAX of each dtype. How many."""
    runs = 0
    combine = {dist.ReduceOp.SUM: torch.sum, dist.ReduceOp.MIN: torch.amin, dist.ReduceOp.MAX: torch.amax}
    for dtype in DTYPES:
        everyone = torch.stack([given(other, dtype, COUNT * size) for other in range(size)])
        for op, how in combine.items():
            want = how(everyone, 0).to(dtype)
            x = given(rank, dtype, COUNT * size).to(device)
            dist.all_reduce(x, op)
            same(x, want, f"all_reduce {dtype} {op}")
            x, part = given(rank, dtype, COUNT * size).to(device), torch.empty(COUNT, dtype=dtype, device=device)
            dist.reduce_scatter_tensor(part, x, op)
            same(part, want[rank * COUNT : (rank + 1) * COUNT], f"reduce_scatter {dtype} {op}")
            dist.reduce(x, size - 1, op)
            if rank == size - 1:
                same(x, want, f"reduce {dtype} {op}")
            runs += 3
    return runs


def moves(device: torch.device, rank: int, size: int) -> int:
    """broadcast, all_gather, all_to_all, and messages around a ring. How many."""
    ranks = range(size)
    x = given(rank, torch.float32).to(device)
    out = torch.empty(COUNT * size, device=device)
    dist.all_gather_into_tensor(out, x)
    same(out, torch.cat([given(other, torch.float32) for other in ranks]), "all_gather")
    sent = torch.cat([given(rank * size + other, torch.float32) for other in ranks]).to(device)
    dist.all_to_all_single(out, sent)
    same(out, torch.cat([given(other * size + rank, torch.float32) for other in ranks]), "all_to_all")
    got = torch.empty_like(x)
    ring = [
        dist.P2POp(dist.isend, x, (rank + 1) % size),
        dist.P2POp(dist.irecv, got, (rank - 1) % size),
    ]
    for work in dist.batch_isend_irecv(ring) if size > 1 else []:
        work.wait()
    if size > 1:
        same(got, given((rank - 1) % size, torch.float32), "isend and irecv")
    dist.broadcast(x, size - 1)
    same(x, given(size - 1, torch.float32), "broadcast")
    dist.barrier()
    return 5 if size > 1 else 4


def parts(device: torch.device, rank: int, size: int) -> int:
    """A group of the even ranks. How many."""
    even = list(range(0, size, 2))
    group = dist.new_group(even)
    x = torch.full((COUNT,), float(rank), device=device)
    if rank in even:
        dist.all_reduce(x, group=group)
        same(x, torch.full((COUNT,), float(sum(even))), "all_reduce of a part")
    return 1


def main() -> None:
    """Run all of it as one rank."""
    name = sys.argv[1]
    module = importlib.import_module(name)
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device(name, rank % getattr(torch, name).device_count())
    getattr(torch, name).set_device(device)
    engine = getattr(torch, name).distributed.engine()
    assert engine == "native", f"{module.__name__}: the process group is {engine}, not native: is NCCL installed?"
    runs = sum(check(device, rank, size) for check in (reductions, moves, parts))
    dist.destroy_process_group()
    if rank == 0:
        print(f"{runs} collectives of {size} rank{'s' if size > 1 else ''}, {engine}: right")


if __name__ == "__main__":
    main()
