"""Every operator of PyTorch's own database under ``torch.compile``, one sample of each: the CPU's eager results.

A case that the CPU's Inductor fails as well is skipped, with its reason; a wrong result only if the CPU's result is
wrong, too, not for an error. This requires a compilation for the CPU, which is made only if the device fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial

import torch

from backplane_tools.conformance.case import Case, Outcome
from backplane_tools.conformance.checker import all_warnings
from backplane_tools.conformance.samples import Sample
from backplane_tools.conformance.suites.ops import OneSample, OpsSuite
from torch_backplane.testing.compare import Difference, FormDifference, ValueDifference
from torch_backplane.testing.observe import Observation, observe

DTYPES = ("float32", "float16", "int64", "bool")
"""The dtypes of a run that names none."""


class _Compiled(OneSample):
    """One operator, one dtype, one graph: that of training where there are gradients, else that of inference."""

    dynamic = False
    is_wrong = False
    """Whether results were computed, and were not eager's."""

    def outcome(self) -> Outcome:
        from torch._inductor import metrics

        metrics.reset()
        name = "backward" if self.has_backward else "forward"
        for sample in self.samples(requires_grad=self.has_backward):
            self.checker.check(name, sample, partial(self.compiled, sample))
        return self.checker.outcome("generated" if metrics.generated_kernel_count else "composite")

    def compiled(self, sample: Sample) -> Observation:
        """Compiled as one graph; where Dynamo breaks it on the CPU, too, as several."""
        from torch._dynamo.exc import Unsupported

        try:
            try:
                return self.both(sample, fullgraph=True)
            except Difference as error:
                if not isinstance(error.__cause__, Unsupported) or not self.breaks_on_cpu(sample):
                    raise
            return self.both(sample, fullgraph=False)
        except (ValueDifference, FormDifference):
            self.is_wrong = True
            raise

    def both(self, sample: Sample, *, fullgraph: bool) -> Observation:
        torch.compiler.reset()
        whole = torch.compile(self.op.get_op(), backend="inductor", dynamic=self.dynamic, fullgraph=fullgraph)
        eager, on_device = (
            self.gradients(sample, op) if self.has_backward else self.values(op) for op in (self.op, whole)
        )
        # Inductor's results need not have the strides of eager ones, nor share memory as these do.
        rules = self.rules.but(strides=False, aliases=False)
        return self.checker.both(eager, sample.arguments, on_device=on_device, rules=rules, fused=True)

    def breaks_on_cpu(self, sample: Sample) -> bool:
        from torch._dynamo.exc import Unsupported

        torch.compiler.reset()
        whole = torch.compile(self.op.get_op(), backend="eager", dynamic=self.dynamic, fullgraph=True)
        return isinstance(observe(self.values(whole), sample.arguments, "cpu", self.seed).error, Unsupported)


class _CompiledDynamic(_Compiled):
    """With sizes, and numbers of Python, that are arguments of the compiled program."""

    dynamic = True


class CompiledSuite(OpsSuite):
    """As ``ops-sample``, compiled whole: results, and gradients of the dtypes that have them."""

    name = "compiled"
    checks: type[_Compiled] = _Compiled
    dtypes = DTYPES

    def run(self, case: Case, device: str, seed: int) -> Outcome:
        """Run one operator and dtype. A failure that the CPU's Inductor shares is a skipped case."""
        with all_warnings(), _in_process():
            ours = self.made(case, device, seed)
            found: Outcome = ours.outcome()
            if found.status == "fail" and _cpu_compiles():
                cpus = self.made(case, "cpu", seed)
                theirs = cpus.outcome()
                if theirs.status == "fail" and (cpus.is_wrong or not ours.is_wrong):
                    return Outcome("skip", f"Inductor's own, the CPU's: {theirs.message}. Here: {found.message}")
        return found


class CompiledDynamicSuite(CompiledSuite):
    """With dynamic shapes."""

    name = "compiled-dynamic"
    checks = _CompiledDynamic


@contextmanager
def _in_process() -> Iterator[None]:
    """Compile in this process, and never take what was compiled before: its kernels would be there, not generated."""
    from torch._inductor import config

    with config.patch(compile_threads=1, force_disable_caches=True):
        yield


@cache
def _cpu_compiles() -> bool:
    """Whether the CPU's Inductor works at all: it needs a C++ compiler, and without one excuses nothing."""
    torch.compiler.reset()
    try:
        return bool((torch.compile(lambda x: x + 1)(torch.ones(3)) == 2).all())
    except Exception:
        return False
