"""How much of PyTorch's operators stays on the device: the share of their samples that need nothing of the CPU.

It compares no values: the suite ``ops`` does. What a device computes by host functions counts as its own, so the share
of compiled kernels is that of a driver without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from backplane_tools.conformance.case import Case, Outcome
from backplane_tools.conformance.checker import cotangent, seeded
from torch_backplane.ops.ways import Watch
from torch_backplane.testing.transfer import Transfer

__all__ = ["DeviceShareSuite"]

DTYPES = ("float32", "bfloat16", "int64", "complex64")
"""The dtypes of a run that names none: integers forward, the others forward and backward."""

_MOST_SAMPLES = 150


class DeviceShareSuite:
    """One case is a dtype of an operator of ``op_db``."""

    name = "device-share"

    @cached_property
    def ops(self) -> dict[str, Any]:
        """The operators by name."""
        from torch.testing._internal import common_methods_invocations as database

        return {op.full_name: op for op in database.op_db}

    def cases(self, dtypes: Sequence[str] | None) -> Iterator[Case]:
        """Yield the cases, dtype by dtype."""
        for dtype in DTYPES if dtypes is None else dtypes:
            for name, op in self.ops.items():
                if getattr(torch, dtype) in op.dtypes:
                    yield Case(self.name, name, dtype)

    def run(self, case: Case, device: str, seed: int) -> Outcome:
        """Count the samples that stay on the device; one that fails there does not, unless the CPU refuses it too."""
        assert case.dtype is not None
        op, dtype = self.ops[case.name], getattr(torch, case.dtype)
        grads = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
        seeded(seed)
        stays = ran = 0
        left: set[str] = set()
        for sample in islice(op.sample_inputs("cpu", dtype, requires_grad=grads), _MOST_SAMPLES):
            arguments = Transfer(device)((sample.input, sample.args, sample.kwargs))
            try:
                with Watch() as watch:
                    self._call(op, arguments, seed)
            except Exception as error:
                if self._is_refused(op, sample, seed):
                    continue
                left.add(f"raises {type(error).__name__}")
                ran += 1
                continue
            ran += 1
            stays += not watch.on_cpu
            left |= watch.on_cpu.keys()
        if not ran:
            return Outcome("skip", "no sample runs")
        message = f"not on the device: {', '.join(sorted(left))}" if left else ""
        checks = {"stays": stays, "leaves": ran - stays}
        return Outcome("pass", message, checks=checks, route="native" if stays == ran else "fallback")

    def _is_refused(self, op: Any, sample: Any, seed: int) -> bool:
        try:
            self._call(op, Transfer("cpu")((sample.input, sample.args, sample.kwargs)), seed)
        except Exception:
            return True
        return False

    def _call(self, op: Any, arguments: Any, seed: int) -> None:
        value, args, kwargs = arguments
        results = [
            x for x in tree_leaves(op(value, *args, **kwargs)) if isinstance(x, torch.Tensor) and x.requires_grad
        ]
        if results:
            torch.autograd.backward(results, [cotangent(result, seed) for result in results])
