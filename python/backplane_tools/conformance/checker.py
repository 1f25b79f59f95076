"""Runs a call on the CPU and on the device, compares, and counts: what the suites of operators and modules share."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from backplane_tools.conformance.case import Outcome
from backplane_tools.conformance.fakes import FakeMode, planned_apart
from backplane_tools.conformance.randomness import check_random
from backplane_tools.conformance.routes import Recorder
from torch_backplane import compiler
from torch_backplane.ops.ways import Watch, worst
from torch_backplane.testing.compare import (
    Difference,
    FormDifference,
    Rules,
    ValueDifference,
    compare_observations,
    describe,
)
from torch_backplane.testing.observe import Observation, observe, seed_generators, tensors
from torch_backplane.testing.transfer import Transfer

# Calls whose distribution is compared, over many draws each.
_DISTRIBUTIONS = 4
_HALF = (torch.float16, torch.bfloat16)


class Checker:
    """The checks of one case."""

    def __init__(self, device: torch.device, seed: int) -> None:
        self.device = device
        self.seed = seed
        self._passed: dict[str, int] = {}
        self._failed: dict[str, list[tuple[str, str]]] = {}
        self._device_seconds = 0.0
        self._cpu_seconds = 0.0
        self._distributions = 0
        self._way = ""

    def check(self, name: str, what: object, run: Callable[[], Observation]) -> Observation | None:
        """Count one sample of one check; ``what`` calls it in a message. None if it failed."""
        try:
            seen = run()
        except Exception as error:
            text = str(error) if isinstance(error, Difference) else describe(error)
            cause = error.__cause__ if error.__cause__ is not None else error
            trace = "".join(traceback.format_exception(cause))
            self._failed.setdefault(name, []).append((f"{what}: {text}", trace))
            return None
        self._passed[name] = self._passed.get(name, 0) + 1
        return seen

    def both(
        self,
        function: Callable[..., Any],
        arguments: Any,
        *,
        on_device: Callable[..., Any] | None = None,
        rules: Rules | None = None,
        plain: Any = None,
        fused: bool = False,
    ) -> Observation:
        """Call on the CPU and on the device, and compare; gives the CPU's.

        Args:
            function: what is called with copies of the arguments.
            arguments: a tuple of trees of CPU tensors.
            on_device: what is called on the device, if not the same.
            rules: what must be equal; values are not where the call draws random numbers.
            plain: arguments of the same values. A result that is equal to theirs is right, whatever the CPU makes of
                ``arguments``.
            fused: the device's call runs kernels of several operators each, whose last bits are their own.
        """
        on_device = on_device or function
        cpu = observe(function, arguments, "cpu", self.seed)
        found = self._timed(on_device, arguments)
        self._cpu_seconds += cpu.seconds
        rules = rules or Rules()
        draws = cpu.drew or any(isinstance(leaf, torch.Generator) for leaf in tree_leaves(arguments))
        if draws:
            rules = rules.but(values=False)
        calls = function, function if fused else on_device  # a compiled program takes no fake tensors
        try:
            self._compare(cpu, found, rules, calls, arguments)
        except ValueDifference:
            if plain is not None:
                cpu = observe(function, plain, "cpu", self.seed)
                rules = rules.but(aliases=False, arguments=False, strides=False)
            floats = [t.dtype for t in cpu.arguments if t.is_floating_point() or t.is_complex()]
            rules = rules.but(precision=max(floats, key=lambda dtype: torch.finfo(dtype).eps, default=None))
            if fused or (kernels := self._kernels(on_device, arguments)):
                rules = rules.but(near=False, scale=largest(cpu), chain=rules.chain or fused or len(kernels) > 1)
                if rules.chain and rules.precision in _HALF:
                    rules = rules.but(spread=2 * self._rounding(function, arguments, cpu))
            self._compare(cpu, found, rules, calls, arguments)
        if draws and cpu.error is None:
            self._distributions += 1
            check_random(
                lambda seed: observe(function, arguments, "cpu", seed),
                lambda seed: observe(on_device, arguments, self.device, seed),
                self.device,
                distribution=self._distributions <= _DISTRIBUTIONS,
            )
        return cpu

    def _compare(
        self,
        cpu: Observation,
        found: Observation,
        rules: Rules,
        calls: tuple[Callable[..., Any], Callable[..., Any]],
        arguments: Any,
    ) -> None:
        """Compare, without the results whose fakes differ, which are removed from both."""
        try:
            compare_observations(cpu, found, self.device, rules)
        except FormDifference:
            apart = planned_apart(calls, arguments, (cpu.value, found.value), self.device)
            if not apart:
                raise
            cpu.value, found.value = (_without(value, apart) for value in (cpu.value, found.value))
            compare_observations(cpu, found, self.device, rules)

    def planned(self, function: Callable[..., Any], arguments: Any) -> Observation:
        """Call on the device, and compare every ATen operator in it with its fake. Errors are left to other checks."""
        copies = Transfer(self.device)(arguments)
        seed_generators(self.device, self.seed)
        seen = Observation()
        with FakeMode(self.device) as mode:
            try:
                seen.value = function(*copies)
            except Exception as error:
                seen.error = error
        mode.check()
        return seen

    def outcome(self, route: str = "") -> Outcome:
        """The outcome of the case: the first failure of each check.

        Args:
            route: the way that a single operator took; by default that of all calls together.
        """
        counts = {name: self._passed.get(name, 0) for name in {**self._passed, **self._failed}}
        if not counts:
            return Outcome("skip", "the database has no sample of this dtype")
        lines, traces = [], []
        for name, failures in self._failed.items():
            lines.append(f"{name} ({len(failures)} of {len(failures) + counts[name]}): {failures[0][0]}")
            traces.append(failures[0][1])
        message = " | ".join(" ".join(line.split()) for line in lines)
        status = "fail" if lines else "pass"
        return Outcome(
            status, message, "\n".join(traces), counts, route or self._way, self._device_seconds, self._cpu_seconds
        )

    def _timed(self, function: Callable[..., Any], arguments: Any) -> Observation:
        """Call on the device, and keep how long that took and whether the CPU had a part in it."""
        made = _kernels_made()
        with Watch() as watch:
            found = observe(function, arguments, self.device, self.seed)
        if found.error is None:
            self._way = worst(self._way, "fallback" if watch.on_cpu else "composite")
        # A call that makes kernels takes the compiler's time: that of another one counts.
        again = found if _kernels_made() == made else observe(function, arguments, self.device, self.seed)
        self._device_seconds += again.seconds
        return found

    def _rounding(self, function: Callable[..., Any], arguments: Any, cpu: Observation) -> float:
        """The largest distance of the CPU's results in half precision from those in float64; 0 if it is not known."""

        def wide(leaf: Any) -> Any:
            if isinstance(leaf, torch.dtype) and leaf in _HALF:
                return torch.float64
            if isinstance(leaf, torch.Tensor) and leaf.dtype in _HALF:
                return leaf.detach().double().requires_grad_(leaf.requires_grad)
            return leaf

        exact = observe(function, tree_map(wide, arguments), "cpu", self.seed)
        pairs = list(zip(tensors(cpu.value), tensors(exact.value), strict=False))
        if exact.error is not None or any(a.shape != b.shape or a.layout is not torch.strided for a, b in pairs):
            return 0.0
        far = [(a.detach().double() - b.detach().double()).abs() for a, b in pairs if a.is_floating_point()]
        return max((float(f[f.isfinite()].max()) for f in far if f.isfinite().any()), default=0.0)

    def _kernels(self, function: Callable[..., Any], arguments: Any) -> set[str]:
        """The device's own kernels that have a part in the result, so that its last bits are its own."""
        with Recorder() as recorder:
            observe(function, arguments, self.device, self.seed)
        return recorder.on_device


def _kernels_made() -> int:
    """Kernels that were compiled or read from the cache so far."""
    counts = compiler.counts()
    return counts.compiled + counts.from_cache


def largest(seen: Observation) -> float:
    """The largest finite number among arguments and results."""
    floats = [t.detach() for t in (*seen.arguments, *tensors(seen.value)) if t.is_floating_point() or t.is_complex()]
    sizes = [t.to_dense().abs().double().nan_to_num(0, 0, 0).max() for t in floats if t.numel()]
    return max(map(float, sizes), default=0.0)


def _without(tree: Any, places: set[int]) -> Any:
    """A tree with some of its leaves left out."""
    leaves, shape = tree_flatten(tree)
    return tree_unflatten([None if i in places else leaf for i, leaf in enumerate(leaves)], shape)


def cotangent(result: torch.Tensor, seed: int) -> torch.Tensor:
    """A gradient for a result: the same numbers on every device."""
    generator = torch.Generator().manual_seed(seed)
    dtype = torch.complex128 if result.dtype.is_complex else torch.float64
    numbers = torch.randn(result.shape, generator=generator, dtype=dtype)
    return numbers.to(result.dtype).to(result.device)


@contextmanager
def all_warnings() -> Iterator[None]:
    """Warnings of C++ that come once per process come every time, on the CPU and on the device."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        yield
    finally:
        torch.set_warn_always(before)


def seeded(seed: int) -> None:
    """Seed what the databases draw their samples from."""
    seed_generators("cpu", seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
