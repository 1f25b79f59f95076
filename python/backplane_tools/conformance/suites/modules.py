"""Every module of PyTorch's own database: state moved, forward and backward, in training and in evaluation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any

import torch

from backplane_tools.conformance.case import Outcome
from backplane_tools.conformance.checker import cotangent, seeded
from backplane_tools.conformance.samples import Sample, with_gaps
from backplane_tools.conformance.suites.database import DatabaseSuite, Run
from torch_backplane.testing.compare import Rules
from torch_backplane.testing.observe import Observation, tensors
from torch_backplane.testing.transfer import Transfer

# Samples of a module that get all checks; the others, some modules have hundreds, run forward and backward.
_VARIED = 40


class ModulesRun(Run):
    """One module, one dtype."""

    def outcome(self) -> Outcome:
        for training in (True, False):
            for sample, build in self.samples(training):
                what = f"{'training' if training else 'evaluation'}, {sample}"
                check = partial(self.check, build)
                self.checker.check("train" if training else "eval", what, partial(check, sample))
                if sample.index >= _VARIED:
                    continue
                self.checker.check("state_dict", what, partial(self.state_dict, build))
                if tensors(sample.arguments):
                    seeded(self.seed)
                    self.checker.check("noncontiguous", what, partial(check, with_gaps(sample)))
        return self.checker.outcome()

    def samples(self, training: bool) -> Iterator[tuple[Sample, Callable[[], torch.nn.Module]]]:
        """Yield the arguments of forward, with what makes the module on the CPU."""
        seeded(self.seed)
        inputs = self.entry.module_inputs_func(
            self.entry, device="cpu", dtype=self.dtype, requires_grad=True, training=training
        )
        for i, sample in enumerate(inputs):
            call = sample.forward_input
            yield Sample(i, None, call.args, call.kwargs), partial(self.build, sample, training)

    def build(self, sample: Any, training: bool) -> torch.nn.Module:
        seeded(self.seed)
        call = Transfer("cpu")(sample.constructor_input.args), Transfer("cpu")(sample.constructor_input.kwargs)
        module: torch.nn.Module = self.entry.module_cls(*call[0], **call[1]).to(self.dtype).train(training)
        if self.entry.is_lazy:
            with torch.no_grad():  # makes the parameters
                module(*sample.forward_input.args, **sample.forward_input.kwargs)
        return module

    # The checks

    def state_dict(self, build: Callable[[], torch.nn.Module]) -> Observation:
        """Move a module, and load the state of another into it: the state is the CPU's."""
        master = build()

        def moved(device: torch.device) -> Any:
            module = copy.deepcopy(master).to(device)
            before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter.zero_()
            module.load_state_dict(master.state_dict())
            return before, dict(module.state_dict())

        return self.checker.both(moved, (torch.device("cpu"),))

    def check(self, build: Callable[[], torch.nn.Module], sample: Sample) -> Observation:
        master = build()

        def call(device: torch.device, input: Any, args: Any, kwargs: Any) -> Any:
            module = copy.deepcopy(copy.deepcopy(master).to(device))
            leaves = [t for t in tensors((args, kwargs)) if t.requires_grad]
            leaves += [p for p in module.parameters() if p.requires_grad]
            results = module(*args, **kwargs)
            roots = [t for t in tensors(results) if t.requires_grad]
            gradients: Any = (None,) * len(leaves)
            if roots and leaves:
                cotangents = [cotangent(t, self.seed) for t in roots]
                gradients = torch.autograd.grad(roots, leaves, cotangents, allow_unused=True)
            return [(t.detach(), t.requires_grad) for t in tensors(results)], gradients, list(module.buffers())

        arguments = (torch.device("cpu"), *sample.arguments)
        return self.checker.both(call, arguments, rules=Rules(strides=False, aliases=False, chain=True))


class ModulesSuite(DatabaseSuite):
    """One case is a dtype of a module of ``module_db``."""

    name = "modules"
    checks = ModulesRun

    @cached_property
    def entries(self) -> dict[str, Any]:
        from torch.testing._internal.common_modules import module_db

        return {info.name: info for info in module_db}

    @cached_property
    def dtypes(self) -> list[str]:  # type: ignore[override]
        found = dict.fromkeys(dtype for info in self.entries.values() for dtype in info.dtypes)
        return [str(dtype).removeprefix("torch.") for dtype in found]

    def has(self, entry: Any, dtype: torch.dtype) -> bool:
        """Each module has its own dtypes."""
        return dtype in entry.dtypes
