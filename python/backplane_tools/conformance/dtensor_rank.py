"""A rank of the suite ``dtensor``: a process that runs the cases that it is sent.

It has one mesh over CPU tensors, by Gloo, and one over the device's. What torch's DTensor does not support on the first
is not tried on the second.
"""

from __future__ import annotations

import math
import os
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch.utils._pytree import tree_map

from backplane_tools.conformance.case import Outcome
from backplane_tools.conformance.checker import all_warnings, cotangent, largest
from backplane_tools.conformance.process import questions
from backplane_tools.conformance.samples import Sample
from backplane_tools.conformance.suites.ops import OneSample, OpsSuite, elements
from torch_backplane.testing.compare import Difference, Rules, compare, compare_observations, describe, shorten
from torch_backplane.testing.observe import Observation, observe, tensors

MOST = 12
"""Placements of a sample's tensors that are tried, evenly of all that torch gives."""
TIMEOUT = timedelta(seconds=60)
"""Of the process group: ranks that do not call the same are found after it."""
ENOUGH = 30.0
"""Seconds after which a case begins no further placement: of some operators torch looks through all placements of all
that they are made of."""

Say = Callable[[str], None]


class TorchCannot(Exception):
    """Torch's DTensor does not support it on the CPU either."""


class Run(OneSample):
    """One operator, one dtype: a sample in each of its placements, forward and backward.

    Args:
        op: of torch's database.
        dtype: of the samples.
        seed: of the samples and of the calls, the same on all ranks.
        meshes: over CPU tensors, and over the device's.
        device: this rank's.
        say: called with where the next call runs, which may end this process.
    """

    def __init__(
        self, op: Any, dtype: torch.dtype, seed: int, meshes: tuple[Any, Any], device: torch.device, say: Say
    ) -> None:
        super().__init__(op, dtype, device, seed)
        self.on_cpu, self.on_device = meshes
        self.say = say
        self.cannot: list[str] = []
        self.rules = self.rules.but(strides=False, aliases=False, arguments=False, near=False, chain=True)

    def worth(self, sample: Sample) -> Any:
        """First how many placements it has, then how large it is."""
        return len(self.placements(sample)), elements(sample)

    def outcome(self) -> Outcome:
        """The outcome of the case: skipped, if torch supports none of it on the CPU."""
        tried, begin = 0, time.monotonic()
        for sample in self.samples(requires_grad=self.has_backward):
            for placements in self.placements(sample):
                if _any_rank(time.monotonic() - begin > ENOUGH):
                    break
                tried += 1
                what = f"{sample} as {list(placements)}"
                if self.check("forward", what, sample, partial(self.results, placements)) and self.has_backward:
                    self.check("backward", what, sample, partial(self.gradients_of, sample, placements))
        found = self.checker.outcome()
        if self.cannot and not found.checks:
            return Outcome("skip", f"torch's DTensor cannot, on the CPU: {self.cannot[0]}")
        if self.cannot and found.status == "pass":
            found.message = f"torch's DTensor cannot do {len(self.cannot)} checks of {tried} placements on the CPU"
        return found

    def placements(self, sample: Sample) -> list[tuple[Any, ...]]:
        """Those that torch's converter gives: each tensor replicated, or cut in equal parts along each dimension."""
        converter = _converter(self.on_cpu, sample.arguments)
        choices = [converter.gen_sharding_choices_for_arg(tensor) for tensor in tensors(sample.arguments)]
        count = math.prod(len(of_one) for of_one in choices)
        return [_numbered(i * count // min(count, MOST), choices) for i in range(min(count, MOST))]

    def check(self, name: str, what: str, sample: Sample, on_mesh: Callable[..., Any]) -> bool:
        """Whether torch can do it on the CPU, and so the device was asked."""
        self.say("the CPU")
        plain = observe(self.plain(name, sample), sample.arguments, "cpu", self.seed)
        cpu = observe(partial(on_mesh, self.on_cpu), sample.arguments, "cpu", self.seed)
        rules = self.rules.but(scale=max(largest(plain), largest(cpu)), values=self.rules.values and not plain.drew)
        try:
            if plain.error is not None or cpu.error is not None:
                raise TorchCannot(plain.error or cpu.error)
            compare(plain.value, _alone(cpu), torch.device("cpu"), rules, "result")
        except (TorchCannot, Difference) as reason:
            self.cannot.append(shorten(f"{name} of {what}: {reason}"))
            return False
        self.say("the device")
        self.checker.check(name, what, partial(self.held, sample, on_mesh, plain, cpu, rules))
        return True

    def held(
        self, sample: Sample, on_mesh: Callable[..., Any], plain: Observation, cpu: Observation, rules: Rules
    ) -> Observation:
        """The device's answer, which is the CPU's of its mesh, and that of the operator itself."""
        device = self.checker.device
        found = observe(partial(on_mesh, self.on_device), sample.arguments, device, self.seed)
        compare_observations(cpu, found, device, rules)
        compare(plain.value, _alone(found), device, rules, "result")
        return found

    def plain(self, name: str, sample: Sample) -> Callable[..., Any]:
        """The operator as it is, without a mesh."""
        if name == "forward":
            return lambda *of: tree_map(_detached, self.values(self.op)(*of))
        return lambda *of: self.grads(sample, of, *self.called(of))

    def results(self, placements: tuple[Any, ...], mesh: Any, *of: Any) -> Any:
        """The results put together. Their placements are not compared: each device chooses its operators."""
        results, _ = self.called(of, mesh, placements)
        input, args, kwargs = of
        return self.of_equal_values(tree_map(_whole, results), input, args, kwargs)

    def gradients_of(self, sample: Sample, placements: tuple[Any, ...], mesh: Any, *of: Any) -> Any:
        """The gradients put together."""
        return self.grads(sample, of, *self.called(of, mesh, placements))

    def called(self, of: Any, mesh: Any = None, placements: tuple[Any, ...] = ()) -> tuple[Any, list[torch.Tensor]]:
        """The results of a call, and the leaves among its arguments."""
        input, args, kwargs = of
        args = (input, *args)
        if mesh is not None:
            converter = _converter(mesh, of)
            converter.sharding_combs = iter([placements])
            args, kwargs = next(converter)
            if not converter.successful():
                raise TorchCannot("a DTensor of this layout")
        leaves = [t for t in tensors((args, kwargs)) if t.requires_grad]
        return self.op(*args, **kwargs), leaves

    def grads(self, sample: Sample, of: Any, results: Any, leaves: list[torch.Tensor]) -> Any:
        """Gradients of the leaves that have one."""
        roots = [t for t in tensors(sample.for_gradient(tree_map(_whole, results))) if t.requires_grad]
        if not roots:
            return []
        cotangents = [cotangent(t, self.seed) for t in roots]
        found = [
            None if t is None else _whole(t) for t in torch.autograd.grad(roots, leaves, cotangents, allow_unused=True)
        ]
        dim = self.found_along(*of) if isinstance(results, tuple) else None
        return found if dim is None else [g if g is None else g.sort(dim).values for g in found]


def _numbered(number: int, choices: list[Any]) -> tuple[Any, ...]:
    """One of all ways to take a choice for each tensor."""
    taken = []
    for of_one in choices:
        number, place = divmod(number, len(of_one))
        taken.append(of_one[place])
    return tuple(taken)


def _any_rank(own: bool) -> bool:
    """Whether one of the ranks says so, the same on each."""
    said = torch.tensor(int(own))
    torch.distributed.all_reduce(said, torch.distributed.ReduceOp.MAX)
    return bool(said)


def _converter(mesh: Any, arguments: Any) -> Any:
    from torch.testing._internal.distributed._tensor.common_dtensor import DTensorConverter

    input, args, kwargs = arguments
    return DTensorConverter(mesh, (input, *args), kwargs)


def _whole(value: Any) -> Any:
    from torch.distributed.tensor import DTensor

    return value.full_tensor() if isinstance(value, DTensor) else value


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


def _alone(seen: Observation) -> Any:
    """What a call on a mesh gave, without a graph, which is another than the operator's."""
    return tree_map(_detached, seen.value)


def _join(device: torch.device, rank: int, size: int, folder: str) -> tuple[tuple[Any, Any], torch.device]:
    """The meshes, and the rank's device."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh

    backend = "gloo" if device.type == "cpu" else None
    if device.type != "cpu":
        module = torch.get_device_module(device.type)
        device = torch.device(device.type, ((device.index or 0) + rank) % module.device_count())
        module.set_device(device)
    store = dist.FileStore(os.path.join(folder, "store"), size)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    ranks = list(range(size))
    return (DeviceMesh("cpu", ranks), DeviceMesh(device.type, ranks)), device


def serve(pipe: Connection, device: str, rank: int, size: int, folder: str) -> None:
    """Join the other ranks, and run the cases that are asked: the name of an operator, its dtype and the seed."""
    meshes, mine = _join(torch.device(device), rank, size, folder)
    ops = OpsSuite().entries
    for name, dtype, seed in questions(pipe):
        run = Run(ops[name], getattr(torch, dtype), seed, meshes, mine, pipe.send)
        try:
            with all_warnings():
                outcome = run.outcome()
        except Exception as error:
            outcome = Outcome("fail", describe(error), traceback.format_exc())
        pipe.send(outcome)
    os._exit(0)  # without the shutdown, in which what a case left behind could hang
