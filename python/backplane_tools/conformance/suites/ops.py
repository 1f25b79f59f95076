"""Every operator of PyTorch's own database, every sample, every dtype that the CPU supports, compared with the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import torch

from backplane_tools.conformance import samples as variations
from backplane_tools.conformance.case import Outcome
from backplane_tools.conformance.checker import cotangent, seeded
from backplane_tools.conformance.lazy import check_lazy_clones
from backplane_tools.conformance.routes import route
from backplane_tools.conformance.samples import Sample
from backplane_tools.conformance.sparse import sparse_samples
from backplane_tools.conformance.suites.database import DatabaseSuite, Run
from torch_backplane.ops.ways import worst
from torch_backplane.testing.compare import Rules
from torch_backplane.testing.observe import Observation, tensors
from torch_backplane.testing.transfer import Transfer

DTYPES = ("float32", "float64", "bfloat16", "float16", "int64", "int32", "uint8", "bool", "complex64")
"""The dtypes of a run that names none."""

# Their results hold memory as it was found.
_UNINITIALISED = frozenset(
    "empty empty_like empty_permuted empty_strided new_empty new_empty_strided resize_ resize_as_".split()
)

# Operators that say where a value was found, and which argument behind the first is their dim. Of equal values they may
# name any.
_FINDERS = {"topk": 1, "kthvalue": 1, "mode": 0, "median": 0, "nanmedian": 0, "sort": 0, "argsort": 0}

# Samples that get all forms of out=; the others get the first.
_ALL_OUTS = 6
# Samples that are called with copy-on-write clones, in one dtype.
_LAZY = 4
# A sample that takes longer on the CPU, in seconds, gets no variations.
_SLOW = 0.5
# Samples whose way is looked at; the case has the worst of them.
_ROUTES = 4
# Samples whose operators are compared with their fakes, and which are run with their dimensions in another order: in
# the operator's first dtype, and in the others, on which little of that depends.
_PLANNED, _PLANNED_TOO = 6, 2


class OpsRun(Run):
    """One operator, one dtype."""

    def __init__(self, op: Any, dtype: torch.dtype, device: torch.device, seed: int) -> None:
        super().__init__(op, dtype, device, seed)
        self.op = op
        self.rules = Rules(values=op.name not in _UNINITIALISED, tolerance=_tolerance(op, dtype))
        self.way = ""

    def outcome(self) -> Outcome:
        check = self.checker.check
        samples = self.samples(requires_grad=False)
        for sample in samples:
            self.check_sample(sample)
        for sample in self.sparse(samples, requires_grad=False):
            check("sparse", sample, partial(self.forward, sample))
        if self.has_backward:
            samples = self.samples(requires_grad=True)
            for sample in samples:
                seen = check("backward", sample, partial(self.backward, sample))
                if seen is not None and seen.error is None:
                    self.check_plans(sample, self.gradients(sample))
            for sample in samples[:_LAZY] if self.is_first_dtype and not self.op.skip_cow_input_backward else []:
                check("copy_on_write", f"{sample}: backward", partial(self.lazy_backward, sample))
            for sample in self.sparse(samples, requires_grad=True):
                check("sparse_backward", sample, partial(self.backward, sample))
        if self.is_first_dtype:
            for sample in self.error_samples():
                check("errors", sample, partial(self.forward, sample))
        return self.checker.outcome(self.way)

    # The database's samples

    def samples(self, *, requires_grad: bool) -> list[Sample]:
        seeded(self.seed)
        found = self.op.sample_inputs("cpu", self.dtype, requires_grad=requires_grad)
        return [Sample.of(i, sample) for i, sample in enumerate(found)]

    def sparse(self, dense: list[Sample], *, requires_grad: bool) -> list[Sample]:
        seeded(self.seed)
        return list(sparse_samples(self.op, self.dtype, dense, requires_grad=requires_grad))

    def error_samples(self) -> list[Sample]:
        if self.op.error_inputs_func is None:
            return []
        seeded(self.seed)
        return [Sample.of(i, error.sample_input) for i, error in enumerate(self.op.error_inputs("cpu"))]

    @property
    def has_backward(self) -> bool:
        """Whether the CPU has gradients of the operator in this dtype."""
        return self.op.supports_autograd and self.dtype in self.op.supported_backward_dtypes("cpu")

    @cached_property
    def is_first_dtype(self) -> bool:
        """Whether checks that one dtype is enough for are made in this one: error inputs have their dtypes."""
        return self.dtype is next((d for name in DTYPES if (d := getattr(torch, name)) in self.op.dtypes), self.dtype)

    @property
    def planned(self) -> int:
        """How many samples are compared with their fakes, and run with their dimensions in another order."""
        return _PLANNED if self.is_first_dtype else _PLANNED_TOO

    # The checks of a sample

    def check_sample(self, sample: Sample) -> None:
        check = self.checker.check
        if sample.index < _ROUTES:
            self.way = worst(self.way, self.find_way(sample))
        cpu = check("forward", sample, partial(self.forward, sample))
        if cpu is None or cpu.error is not None:
            return
        if cpu.seconds > _SLOW:
            return
        if self.op.supports_out:
            self.check_out(sample, cpu)
        if self.is_first_dtype and sample.index < _LAZY and tensors(sample.arguments):
            self.check_lazy(sample, cpu)
        if self.op.inplace_variant is not None:
            check("inplace", sample, partial(self.inplace, sample))
        if tensors(sample.arguments):
            seeded(self.seed)
            with_gaps = variations.with_gaps(sample)
            check("noncontiguous", with_gaps, partial(self.forward, with_gaps))
        self.check_plans(sample, _calling(self.op))
        if sample.index < self.planned and (other := variations.reordered(sample)):
            check("reordered", other, partial(self.forward, other))
        seeded(self.seed)
        if odd := variations.odd_bools(sample):
            check("odd_bools", odd, partial(self.forward, odd, plain=sample.arguments))
        if self.op.test_conjugated_samples and (lazy := variations.lazy_conjugates(sample)):
            check("conj_neg", lazy, partial(self.forward, lazy, plain=sample.arguments))
        if self.op.test_neg_view and (lazy := variations.lazy_negatives(sample)):
            check("conj_neg", lazy, partial(self.forward, lazy, plain=sample.arguments))

    def forward(self, sample: Sample, plain: Any = None) -> Observation:
        return self.checker.both(self.values(self.op), sample.arguments, rules=self.rules, plain=plain)

    def values(self, op: Any) -> Any:
        """Results as a function of a sample's arguments, by the operator or its substitute."""

        def call(input: Any, args: Any, kwargs: Any) -> Any:
            return self.of_equal_values(op(input, *args, **kwargs), input, args, kwargs)

        return call

    def of_equal_values(self, results: Any, input: torch.Tensor, args: Any, kwargs: Any) -> Any:
        """The same whichever of equal values was found: what lies at the places, and whether they are distinct."""
        dim = self.found_along(input, args, kwargs)
        if dim is None or not (isinstance(results, tuple) or self.op.name == "argsort"):
            return results
        values, places = results if isinstance(results, tuple) else (None, results)
        rows = places if places.dim() == input.dim() else places.unsqueeze(dim)
        are_distinct = (rows.sort(dim).values.diff(dim=dim) > 0).all()
        return values, torch.zeros_like(places), input.detach().gather(dim, rows), are_distinct

    def found_along(self, input: Any, args: Any, kwargs: Any) -> int | None:
        """The dim in which one of equal values is found; None if there is none, or the call says which."""
        place = _FINDERS.get(self.op.name)
        if place is None or input.dim() == 0 or kwargs.get("stable"):
            return None
        return kwargs.get("dim", args[place] if len(args) > place else -1)

    def check_plans(self, sample: Sample, call: Any) -> None:
        """Strides and devices of the results, and of what they are made of, are those of torch's fakes."""
        if sample.index >= self.planned:
            return
        for like in (sample, variations.reordered(sample)):
            if like is not None:
                self.checker.check("fake", like, partial(self.checker.planned, call, like.arguments))

    def inplace(self, sample: Sample) -> Observation:
        return self.checker.both(_calling(self.op.inplace_variant), sample.arguments, rules=self.rules)

    def check_out(self, sample: Sample, cpu: Observation) -> None:
        results = _out_results(cpu)
        call = self.calling_with_out(single=isinstance(cpu.value, torch.Tensor))
        forms = list(variations.outs(results)) if results else []
        for text, out in forms if sample.index < _ALL_OUTS else forms[:1]:
            arguments = (*sample.arguments, out)
            # Some of the CPU's kernels leave an out with gaps as it was: the right answer is that without gaps.
            plain = (*sample.arguments, forms[0][1]) if text in variations.OUTS_WITH_GAPS else None
            run = partial(self.checker.both, call, arguments, rules=self.rules, plain=plain)
            self.checker.check("out", f"{sample}: {text}", run)

    def calling_with_out(self, *, single: bool) -> Any:
        return lambda input, args, kwargs, out: self.op(input, *args, **kwargs, out=out[0] if single else out)

    def check_lazy(self, sample: Sample, cpu: Observation) -> None:
        check = self.checker.check
        stays = self.op.supports_cow_input_no_materialize_forward and not self.op.allow_cow_input_materialize_forward
        check("copy_on_write", sample, partial(self.lazily, _calling(self.op), sample.arguments, stays_lazy=stays))
        if self.op.inplace_variant is not None:
            run = partial(self.lazily, _calling(self.op.inplace_variant), sample.arguments, stays_lazy=False)
            check("copy_on_write", f"{sample}: in place", run)
        if self.op.supports_out and (results := _out_results(cpu)):
            call = self.calling_with_out(single=isinstance(cpu.value, torch.Tensor))
            _, out = next(variations.outs(results))
            run = partial(self.lazily, call, (*sample.arguments, out), stays_lazy=False)
            check("copy_on_write", f"{sample}: out=", run)

    def lazily(self, function: Any, arguments: Any, *, stays_lazy: bool) -> Observation:
        device, seed = self.checker.device, self.seed
        rules = self.rules.but(near=False)
        return check_lazy_clones(function, arguments, device, seed, rules, stays_lazy=stays_lazy)

    def lazy_backward(self, sample: Sample) -> Observation:
        op = self.op
        stays = op.supports_cow_input_no_materialize_backward and not op.allow_cow_input_materialize_backward
        stays = stays and op.supports_cow_input_no_materialize_forward and not op.allow_cow_input_materialize_forward
        return self.lazily(self.gradients(sample), sample.arguments, stays_lazy=stays)

    def backward(self, sample: Sample) -> Observation:
        # The strides of a gradient, and what it shares memory with, are not specified.
        rules = self.rules.but(strides=False, aliases=False, chain=True)
        return self.checker.both(self.gradients(sample), sample.arguments, rules=rules)

    def gradients(self, sample: Sample, op: Any = None) -> Any:
        """Results and gradients as a function of the sample's arguments, by the operator or its substitute."""
        values = self.values(op or self.op)

        def call(input: Any, args: Any, kwargs: Any) -> Any:
            inputs = [t for t in tensors((input, args, kwargs)) if t.requires_grad]
            results = values(input, args, kwargs)
            roots = [t for t in tensors(sample.for_gradient(results)) if t.requires_grad]
            gradients: Any = (None,) * len(inputs)
            if roots:
                cotangents = [cotangent(t, self.seed) for t in roots]
                gradients = torch.autograd.grad(roots, inputs, cotangents, allow_unused=True)
                if isinstance(results, tuple) and (dim := self.found_along(input, args, kwargs)) is not None:
                    gradients = tuple(g if g is None else g.sort(dim).values for g in gradients)
            return [(t.detach(), t.requires_grad) for t in tensors(results)], gradients

        return call

    def find_way(self, sample: Sample) -> str:
        copies = Transfer(self.checker.device)(sample.arguments)
        return route(lambda: _calling(self.op)(*copies))


_REFUSED = {("_foreach_abs", torch.bool)}
"""What the database lists for the CPU, which refuses it. CUDA and the device take it."""


class OneSample(OpsRun):
    """The largest sample of at most ``elements`` elements: it fills several groups of a kernel, the last one partly."""

    elements = 2000

    def samples(self, *, requires_grad: bool) -> list[Sample]:
        """One, or none if there are none of this dtype."""
        found = super().samples(requires_grad=requires_grad)
        fitting = [sample for sample in found if elements(sample) <= self.elements]
        return [max(fitting, key=self.worth)] if fitting else found[:1]

    def worth(self, sample: Sample) -> Any:
        """The sample of the largest is taken."""
        return elements(sample)

    def sparse(self, dense: list[Sample], *, requires_grad: bool) -> list[Sample]:
        """None."""
        return []

    def error_samples(self) -> list[Sample]:
        """None."""
        return []


class OpsSuite(DatabaseSuite):
    """One case is a dtype of an operator of ``op_db`` or of the foreach databases."""

    name = "ops"
    checks: type[OpsRun] = OpsRun
    dtypes: Sequence[str] = DTYPES
    foreach = True
    """Whether the foreach databases are part of it."""

    @cached_property
    def entries(self) -> dict[str, Any]:
        from torch.testing._internal import common_methods_invocations as database

        # The database fixes the seed of random operators around each call; here the seeds are the checks' own.
        database.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
        foreach = sorted(n for n in vars(database) if n.startswith("foreach_") and n.endswith("_op_db"))
        lists = [database.op_db, *(getattr(database, name) for name in foreach if self.foreach)]
        return {op.full_name: op for of_one in lists for op in of_one}

    def has(self, entry: Any, dtype: torch.dtype) -> bool:
        """What the CPU supports."""
        return dtype in entry.dtypes and (entry.full_name, dtype) not in _REFUSED


class OpsSampleSuite(OpsSuite):
    """As ``ops``, with one sample a case: for devices on which all of them take too long, such as a chip's emulator."""

    name = "ops-sample"
    checks = OneSample


def elements(sample: Sample) -> int:
    """Of all its tensors together."""
    return sum(tensor.numel() for tensor in tensors(sample.arguments))


def _tolerance(op: Any, dtype: torch.dtype) -> tuple[float, float]:
    """The (rtol, atol) that the database allows other implementations of an operator: the largest."""
    from torch.testing._internal.common_device_type import toleranceOverride

    found = [
        override.d[dtype]
        for info in op.decorators
        if getattr(info, "cls_name", None) == "TestCommon"
        for override in info.decorators
        if isinstance(override, toleranceOverride) and dtype in override.d
    ]
    return max((t.rtol for t in found), default=0.0), max((t.atol for t in found), default=0.0)


def _out_results(seen: Observation) -> tuple[torch.Tensor, ...]:
    """The results that ``out=`` can take; none if there are others."""
    results = tuple(tensors(seen.value))
    count = len(seen.value) if isinstance(seen.value, tuple) else 1
    fits = len(results) == count and all(result.layout is torch.strided for result in results)
    return results if fits else ()


def _calling(op: Any) -> Any:
    return lambda input, args, kwargs: op(input, *args, **kwargs)
