"""DistributedDataParallel and what goes with it: parameters become those of one process that has all batches."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from rank import Rank
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from checks import check

STEPS = 3
State = dict[str, torch.Tensor]


def make_net() -> nn.Sequential:
    """The same on every rank, on the CPU."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


def batches(size: int, steps: int = STEPS, per_rank: int = 4) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """What all ranks together learn from, on the CPU."""
    generator = torch.Generator().manual_seed(2)
    for _ in range(steps):
        yield (
            torch.randn(per_rank * size, 10, generator=generator),
            torch.randn(per_rank * size, 4, generator=generator),
        )


def sgd(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)


def adam(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(net.parameters(), lr=0.01)


def alone(
    w: Rank, make: Callable[[], nn.Module] = make_net, optimizer: Callable[..., Any] = sgd, rounds: int = 1
) -> State:
    """What one process makes of all batches, so many times, on the CPU."""
    net = make()
    step = optimizer(net)
    for x, y in [*batches(w.size)] * rounds:
        F.mse_loss(net(x), y).backward()
        step.step()
        step.zero_grad()
    return {name: p.detach() for name, p in net.state_dict().items()}


def part(w: Rank, t: torch.Tensor, device: Any = None, dtype: torch.dtype | None = None) -> torch.Tensor:
    """This rank's rows."""
    return t.chunk(w.size)[w.rank].to(device or w.device, dtype)


def train(w: Rank, net: nn.Module, optimizer: Any, device: Any = None, dtype: torch.dtype | None = None) -> None:
    """On this rank's part of each batch."""
    for x, y in batches(w.size):
        F.mse_loss(net(part(w, x, device, dtype)), part(w, y, device, dtype)).backward()
        optimizer.step()
        optimizer.zero_grad()


def close(found: State, expected: State, within: float = 1e-5) -> None:
    """Each tensor as far as its largest number allows."""
    found = {name.removeprefix("module."): t for name, t in found.items()}
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        scale = max(value.abs().max().item(), 1e-3)
        torch.testing.assert_close(
            found[name].detach().cpu().float(),
            value.float(),
            rtol=within,
            atol=within * scale,
            msg=lambda t, n=name: f"{n}: {t}",
        )


def gradients(net: nn.Module) -> State:
    return {name: p.grad for name, p in net.named_parameters()}


def ddp(w: Rank, net: nn.Module, **options: Any) -> DistributedDataParallel:
    """With the device's number, as programs for one accelerator a process give it."""
    options.setdefault("device_ids", None if w.is_cpu else [w.device.index])
    return DistributedDataParallel(net.to(w.device), **options)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"device_ids": None},
    {"bucket_cap_mb": 0.0002, "gradient_as_bucket_view": True},  # many buckets
    {"static_graph": True},
]


@check()
def plain(w: Rank) -> None:
    for options in OPTIONS:
        net = ddp(w, make_net(), **options)
        train(w, net, sgd(net))
        close(net.state_dict(), alone(w))


@check()
def parameters_of_rank_0_are_everyones(w: Rank) -> None:
    net = make_net()
    for parameter in net.parameters():
        parameter.data += w.rank
    close(ddp(w, net).state_dict(), make_net().state_dict())


@check()
def gradients_that_accumulate_without_synchronisation(w: Rank) -> None:
    net, reference = ddp(w, make_net()), make_net()
    everything = list(batches(w.size))
    for i, (x, y) in enumerate(everything):
        F.mse_loss(reference(x), y).backward()
        with contextlib.nullcontext() if i == len(everything) - 1 else net.no_sync():
            F.mse_loss(net(part(w, x)), part(w, y)).backward()
    close(gradients(net), gradients(reference))


class Branches(nn.Module):
    """One of two layers is used, by the number of the call."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.branches, self.calls = nn.Linear(10, 8), nn.ModuleList(nn.Linear(8, 4) for _ in range(2)), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.branches[self.calls % 2](self.first(x).relu())


@check()
def parameters_without_a_part_in_a_step(w: Rank) -> None:
    net = ddp(w, Branches(), find_unused_parameters=True)
    train(w, net, torch.optim.SGD(net.parameters(), lr=0.05))
    close(net.state_dict(), alone(w, Branches, lambda n: torch.optim.SGD(n.parameters(), lr=0.05)))


@check()
def gradients_in_float16(w: Rank) -> None:
    net = ddp(w, make_net())
    net.register_comm_hook(None, default_hooks.fp16_compress_hook)
    train(w, net, sgd(net))
    close(net.state_dict(), alone(w), 1e-2)


def as_over_gloo(w: Rank, train_on: Callable[[torch.device], State]) -> None:
    """As the same program does on the CPU over Gloo, in the same group."""
    close(train_on(w.device), train_on(torch.device("cpu")), within=1e-2)


@check(gloo="it is what the device is compared with", bound=False)
def gradients_in_bfloat16(w: Rank) -> None:
    def trained(device: torch.device) -> State:
        net = DistributedDataParallel(make_net().to(device))
        net.register_comm_hook(None, torch.get_device_module(w.device).distributed.bf16_compress_hook)
        train(w, net, sgd(net), device)
        return net.module.state_dict()

    as_over_gloo(w, trained)


@check(gloo="it is what the device is compared with", bound=False)
def parameters_in_half_types(w: Rank) -> None:
    def trained(device: torch.device, dtype: torch.dtype) -> State:
        net = DistributedDataParallel(make_net().to(device, dtype))
        train(w, net, torch.optim.SGD(net.parameters(), lr=0.05), device, dtype)
        return net.module.state_dict()

    for dtype in (torch.bfloat16, torch.float16):
        as_over_gloo(w, functools.partial(trained, dtype=dtype))


@check()
def a_sharded_optimizer(w: Rank) -> None:
    net = ddp(w, make_net())
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.AdamW, lr=0.01)
    train(w, net, optimizer)
    close(net.state_dict(), alone(w, optimizer=adam))
    optimizer.consolidate_state_dict(to=0)
    if w.rank == 0:
        assert len(optimizer.state_dict()["state"]) == 6


@check(sizes=(2,))
def batches_of_different_numbers(w: Rank) -> None:
    """Model.join(): a rank with more batches continues with the others' shadows."""
    net = ddp(w, make_net())
    with net.join():
        for x, y in list(batches(w.size))[: 1 + w.rank]:
            net.zero_grad()
            F.mse_loss(net(part(w, x)), part(w, y)).backward()
    reference = make_net()
    x, y = list(batches(w.size))[1]
    (F.mse_loss(reference(x.chunk(2)[1]), y.chunk(2)[1]) / w.size).backward()
    if w.rank == 1:  # its second batch, which rank 0 has no part in
        close(gradients(net), gradients(reference))


def make_convnet() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 2, 3))


def images(rows: int) -> torch.Tensor:
    return torch.randn(rows, 3, 6, 6, generator=torch.Generator().manual_seed(4))


@check(gloo="the CPU has no kernels for it")
def synchronised_batch_norm(w: Rank) -> None:
    """Of parts of different sizes, also channels last: output, gradients, running statistics as of all images."""
    sizes = [2 + r for r in w.ranks]
    everything = images(sum(sizes))
    for memory_format in (torch.contiguous_format, torch.channels_last):
        reference = make_convnet()
        expected = reference(everything)
        expected.square().sum().backward()
        net = ddp(w, nn.SyncBatchNorm.convert_sync_batchnorm(make_convnet()))
        mine = everything.split(sizes)[w.rank].to(w.device).contiguous(memory_format=memory_format)
        found = net(mine)
        (found.square().sum() * w.size).backward()
        torch.testing.assert_close(found.detach().cpu(), expected.split(sizes)[w.rank].detach(), rtol=1e-4, atol=1e-5)
        for module in (net, reference):
            torch.optim.SGD(module.parameters(), lr=1e-3).step()
        close(net.module.state_dict(), reference.state_dict())


@check(gloo="the CPU has no kernels for it")
def synchronised_batch_norm_of_no_images(w: Rank) -> None:
    """One rank has none: it takes part, with nothing."""
    everything = images(4)
    net = nn.SyncBatchNorm(3).to(w.device)
    reference = nn.BatchNorm2d(3)
    weights = torch.linspace(-1, 1, everything.numel()).reshape(everything.shape)
    expected = reference(everything)
    (expected * weights).sum().backward()
    mine = everything if w.rank == 0 else everything[:0]
    x = mine.to(w.device).requires_grad_()
    found = net(x)
    (found * (weights if w.rank == 0 else weights[:0]).to(w.device)).sum().backward()
    if w.rank == 0:
        torch.testing.assert_close(found.detach().cpu(), expected.detach(), rtol=1e-5, atol=1e-5)
        close(gradients(net), gradients(reference))
    else:
        assert found.shape == (0, 3, 6, 6)
    close({"mean": net.running_mean}, {"mean": reference.running_mean})


@check(gloo="the CPU has no kernels for it")
def synchronised_batch_norm_in_half_types(w: Rank) -> None:
    everything = images(4 * w.size)
    expected = nn.BatchNorm2d(3)(everything)
    for dtype in (torch.bfloat16, torch.float16):
        found = nn.SyncBatchNorm(3).to(w.device)(part(w, everything, dtype=dtype))
        assert found.dtype == dtype
        torch.testing.assert_close(
            found.detach().cpu().float(), part(w, expected.detach(), "cpu"), rtol=2e-2, atol=2e-2
        )


@check(bound=False)
def a_model_on_the_device_and_one_on_the_cpu(w: Rank) -> None:
    """In one group: each by its own backend."""
    nets = [DistributedDataParallel(make_net().to(device)) for device in {w.device, torch.device("cpu")}]
    for net in nets:
        device = next(net.parameters()).device
        train(w, net, sgd(net), device)
        close(net.state_dict(), alone(w))


@check(sizes=(2,))
def copies_of_a_wrapped_model(w: Rank) -> None:
    net = ddp(w, make_net())
    train(w, net, sgd(net))
    close(copy.deepcopy(net.module).state_dict(), {n: t.cpu() for n, t in net.module.state_dict().items()}, 0)
