"""Parameters in parts: FSDP, tensor parallelism, DTensor, pipelines. Values are those of one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from rank import Rank
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor import randn as distributed_randn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from checks import check, same
from checks.training import State, adam, alone, as_over_gloo, batches, close, gradients, make_net, part, sgd, train


def mesh_of(w: Rank, *shape: int, names: tuple[str, ...] | None = None) -> DeviceMesh:
    return init_device_mesh(w.device.type, shape or (w.size,), mesh_dim_names=names)


def sharded(net: nn.Module, **options: Any) -> nn.Module:
    """FSDP2 of each layer with parameters, and of the rest."""
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, **options)
    return fully_shard(net, **options)


def whole(net: nn.Module) -> dict[str, torch.Tensor]:
    """The full parameters; a collective."""
    return {name: p.full_tensor() for name, p in net.state_dict().items()}


@check()
def fsdp2(w: Rank) -> None:
    for reshards in (True, False):
        net = sharded(make_net().to(w.device), mesh=mesh_of(w), reshard_after_forward=reshards)
        assert all(isinstance(p, DTensor) and p.to_local().device == w.device for p in net.parameters())
        assert sum(p.to_local().numel() for p in net.parameters()) < sum(p.numel() for p in make_net().parameters())
        train(w, net, adam(net))
        close(whole(net), alone(w, optimizer=adam))


@check(gloo="it is what the device is compared with", bound=False)
def fsdp2_in_mixed_precision(w: Rank) -> None:
    """Computed in bfloat16, reduced in float32, as the same program does on the CPU over Gloo."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)

    def trained(device: torch.device) -> State:
        net = sharded(make_net().to(device), mesh=init_device_mesh(device.type, (w.size,)), mp_policy=policy)
        seen: list[Any] = []
        net[2].register_forward_hook(lambda module, args, out: seen.append((args[0].dtype, out.dtype)))
        if device.type == "cpu":
            for module in net.modules():  # Gloo has no AVG
                getattr(module, "set_force_sum_reduction_for_comms", lambda _: None)(True)
        train(w, net, sgd(net), device)
        assert set(seen) == {(torch.bfloat16, torch.bfloat16)}
        assert {p.dtype for p in net.parameters()} == {torch.float32}
        return whole(net)

    as_over_gloo(w, trained)


@check(gloo="there is nothing to offload", bound=False)
def fsdp2_with_parameters_on_the_host(w: Rank) -> None:
    net = sharded(make_net(), mesh=mesh_of(w), offload_policy=CPUOffloadPolicy())
    train(w, net, adam(net))
    assert {p.device.type for p in net.parameters()} == {"cpu"}
    close({name: p.to(w.device).full_tensor() for name, p in net.state_dict().items()}, alone(w, optimizer=adam))


@check()
def fsdp2_clips_gradients(w: Rank) -> None:
    """By the norm of all parts."""
    net, reference = sharded(make_net().to(w.device), mesh=mesh_of(w)), make_net()
    x, y = next(iter(batches(w.size)))
    F.mse_loss(net(part(w, x)), part(w, y)).backward()
    F.mse_loss(reference(x), y).backward()
    norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
    expected = torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.1)
    torch.testing.assert_close(norm.full_tensor().cpu(), expected)
    close({name: grad.full_tensor() for name, grad in gradients(net).items()}, gradients(reference))


@check(sizes=(4,))
def fsdp2_on_a_mesh_of_two_by_two(w: Rank) -> None:
    """HSDP: replicated along the first dimension, sharded along the second."""
    net = sharded(make_net().to(w.device), mesh=mesh_of(w, 2, 2, names=("replicate", "shard")))
    train(w, net, adam(net))
    close(whole(net), alone(w, optimizer=adam))


PLAN = {"0": ColwiseParallel(), "2": RowwiseParallel()}


def train_rows(w: Rank, net: nn.Module, rows: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """On this rank's part of each batch, with an optimizer for layers of which some are whole."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, foreach=False)
    for x, y in batches(w.size):
        F.mse_loss(net(rows(x).to(w.device)), rows(y).to(w.device)).backward()
        optimizer.step()
        optimizer.zero_grad()


@check(sizes=(2,))
def tensor_parallel(w: Rank) -> None:
    """All ranks have the whole batch, and parts of the layers."""
    net = parallelize_module(make_net().to(w.device), mesh_of(w), PLAN)
    train_rows(w, net, lambda t: t)
    assert net[0].weight.to_local().shape == (16 // w.size, 10)
    found = {name: p.full_tensor() if isinstance(p, DTensor) else p for name, p in net.state_dict().items()}
    close(found, alone(w))


@check(sizes=(4,))
def fsdp2_and_tensor_parallel(w: Rank) -> None:
    mesh = mesh_of(w, 2, 2, names=("dp", "tp"))
    net = parallelize_module(make_net().to(w.device), mesh["tp"], PLAN)
    net = sharded(net, mesh=mesh["dp"])
    train_rows(w, net, lambda t: t.chunk(2)[mesh["dp"].get_local_rank()])
    close(whole(net), alone(w))


@check(gloo="FSDP1 takes the accelerator, if there is one")
def fsdp1(w: Rank) -> None:
    for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.NO_SHARD):
        net = FullyShardedDataParallel(
            make_net().to(w.device),
            device_id=None if w.is_cpu else w.device,
            sharding_strategy=strategy,
            use_orig_params=True,
        )
        train(w, net, adam(net))
        with FullyShardedDataParallel.summon_full_params(net):
            close(net.module.state_dict(), alone(w, optimizer=adam))


@check()
def dtensors_move(w: Rank) -> None:
    mesh = mesh_of(w)
    x = torch.arange(6 * 5 * w.size, dtype=torch.float32).reshape(6 * w.size, 5)
    tensor = distribute_tensor(x.to(w.device), mesh, [Shard(0)])
    assert tensor.to_local().shape == (6, 5)
    for placement in (Replicate(), Shard(1), Shard(0), Replicate(), Shard(1), Replicate()):
        tensor = tensor.redistribute(mesh, [placement])
        same(tensor.full_tensor(), x)
    partial = DTensor.from_local(x.to(w.device), mesh, [Partial()])
    same(partial.redistribute(mesh, [Shard(0)]).full_tensor(), x * w.size)
    uneven = distribute_tensor(x[: 4 * w.size - 1].to(w.device), mesh, [Shard(0)])
    same(uneven.full_tensor(), x[: 4 * w.size - 1])


@check()
def dtensors_multiply(w: Rank) -> None:
    mesh = mesh_of(w)
    generator = torch.Generator().manual_seed(3)
    a, b = (torch.randn(6 * w.size, 6 * w.size, generator=generator) for _ in range(2))
    for left, right in ((Shard(0), Replicate()), (Shard(1), Shard(0)), (Replicate(), Shard(1)), (Shard(0), Shard(1))):
        x = distribute_tensor(a.to(w.device), mesh, [left]).requires_grad_()
        y = distribute_tensor(b.to(w.device), mesh, [right])
        z = x @ y
        torch.testing.assert_close(z.full_tensor().detach().cpu(), a @ b, rtol=1e-4, atol=1e-4)
        z.sum().backward()
        expected = b.sum(1).expand(6 * w.size, 6 * w.size)
        torch.testing.assert_close(x.grad.full_tensor().cpu(), expected, rtol=1e-4, atol=1e-4)


@check(gloo="torch draws random DTensors on accelerators alone")
def dtensors_are_random(w: Rank) -> None:
    """Shards differ, replicas agree, and the same seed draws the same."""
    mesh, drawn = mesh_of(w), []
    for _ in range(2):
        torch.manual_seed(11)
        drawn.append(distributed_randn(8 * w.size, 4, device_mesh=mesh, placements=[Shard(0)]).full_tensor().cpu())
    torch.testing.assert_close(*drawn, rtol=0, atol=0)
    assert len({tuple(t.flatten().tolist()) for t in drawn[0].chunk(w.size)}) == w.size
    same_everywhere = distributed_randn(5, device_mesh=mesh, placements=[Replicate()]).to_local().cpu()
    seen = [None] * w.size
    dist.all_gather_object(seen, same_everywhere.tolist())
    assert len({tuple(values) for values in seen}) == 1


@check(sizes=(2,))
def a_pipeline(w: Rank) -> None:
    """1F1B of two stages: a step by the gradients of four microbatches, averaged."""
    net, reference = make_net(), make_net()
    stage = PipelineStage((net[:2] if w.rank == 0 else net[2:]).to(w.device), w.rank, 2, w.device)
    schedule = Schedule1F1B(stage, 4, loss_fn=F.mse_loss)
    x, y = next(iter(batches(w.size)))
    losses: list[torch.Tensor] = []
    if w.rank == 0:
        schedule.step(x.to(w.device))
    else:
        out = schedule.step(target=y.to(w.device), losses=losses)
        torch.testing.assert_close(out.detach().cpu(), reference(x).detach(), rtol=1e-4, atol=1e-5)
        assert len(losses) == 4
    F.mse_loss(reference(x), y).backward()
    mine = (0, 1) if w.rank == 0 else (2, 3, 4)
    for module in (net, reference):
        sgd(module).step()
    expected = {n: p.detach() for n, p in reference.named_parameters() if int(n[0]) in mine}
    close({n: p for n, p in net.named_parameters() if int(n[0]) in mine}, expected)
