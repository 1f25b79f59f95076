"""Every module of PyTorch's own database: state moved, forward and backward, in training and in evaluation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import torch

from backplane_tools.conformance.case import Case, Outcome
from backplane_tools.conformance.checker import Checker, all_warnings, cotangent, seeded
from backplane_tools.conformance.samples import Sample, with_gaps
from torch_backplane.testing.compare import Rules
from torch_backplane.testing.observe import Observation, tensors
from torch_backplane.testing.transfer import Transfer

__all__ = ["ModulesSuite"]

# Samples of a module that get all checks; the others, some modules have hundreds, run forward and backward.
_VARIED = 40


class ModulesSuite:
    """One case is a dtype of a module of ``module_db``."""

    name = "modules"

    @cached_property
    def _modules(self) -> dict[str, Any]:
        from torch.testing._internal.common_modules import module_db

        return {info.name: info for info in module_db}

    def cases(self, dtypes: Sequence[str] | None) -> Iterator[Case]:
        """Yield the cases; None stands for each module's own dtypes."""
        for name, info in self._modules.items():
            for dtype in info.dtypes:
                short = str(dtype).removeprefix("torch.")
                if dtypes is None or short in dtypes:
                    yield Case(self.name, name, short)

    def run(self, case: Case, device: str, seed: int) -> Outcome:
        """Run all checks of one module and dtype."""
        assert case.dtype is not None
        with all_warnings():
            return _Run(self._modules[case.name], getattr(torch, case.dtype), torch.device(device), seed).outcome()


class _Run:
    """One module, one dtype."""

    def __init__(self, info: Any, dtype: torch.dtype, device: torch.device, seed: int) -> None:
        self.info = info
        self.dtype = dtype
        self.seed = seed
        self.checker = Checker(device, seed)

    def outcome(self) -> Outcome:
        for training in (True, False):
            for sample, build in self.samples(training):
                what = f"{'training' if training else 'evaluation'}, {sample}"
                check = partial(self.check, build, training)
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
        inputs = self.info.module_inputs_func(
            self.info, device="cpu", dtype=self.dtype, requires_grad=True, training=training
        )
        for i, sample in enumerate(inputs):
            call = sample.forward_input
            yield Sample(i, None, call.args, call.kwargs), partial(self.build, sample, training)

    def build(self, sample: Any, training: bool) -> torch.nn.Module:
        seeded(self.seed)
        call = Transfer("cpu")(sample.constructor_input.args), Transfer("cpu")(sample.constructor_input.kwargs)
        module: torch.nn.Module = self.info.module_cls(*call[0], **call[1]).to(self.dtype).train(training)
        if self.info.is_lazy:
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

    def check(self, build: Callable[[], torch.nn.Module], training: bool, sample: Sample) -> Observation:
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
