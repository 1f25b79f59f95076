"""How much of PyTorch's operators stays on the device: the share of their samples that need nothing of the CPU.

It compares no values: the suite ``ops`` does. What a device computes by host functions counts as its own, so the share
of compiled kernels is that of a driver without them.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import torch

from backplane_tools.conformance.case import Outcome
from backplane_tools.conformance.checker import cotangent, seeded
from backplane_tools.conformance.suites.ops import OpsRun, OpsSuite
from torch_backplane.ops.ways import Watch
from torch_backplane.testing.observe import tensors
from torch_backplane.testing.transfer import Transfer

DTYPES = ("float32", "bfloat16", "int64", "complex64")
"""The dtypes of a run that names none: integers forward, the others forward and backward."""

_MOST_SAMPLES = 150


class _Share(OpsRun):
    """One operator, one dtype."""

    def outcome(self) -> Outcome:
        """Count the samples that stay on the device; one that fails there does not, unless the CPU refuses it too."""
        seeded(self.seed)
        stays = ran = 0
        left: set[str] = set()
        samples = self.op.sample_inputs("cpu", self.dtype, requires_grad=self.has_backward)
        for sample in islice(samples, _MOST_SAMPLES):
            arguments = sample.input, sample.args, sample.kwargs
            on_device = Transfer(self.checker.device)(arguments)
            try:
                with Watch() as watch:
                    self._call(*on_device)
                stays += not watch.on_cpu
                left |= watch.on_cpu.keys()
            except Exception as error:
                if self._is_refused(arguments):
                    continue
                left.add(f"raises {type(error).__name__}")
            ran += 1
        if not ran:
            return Outcome("skip", "no sample runs")
        message = f"not on the device: {', '.join(sorted(left))}" if left else ""
        checks = {"stays": stays, "leaves": ran - stays}
        return Outcome("pass", message, checks=checks, route="native" if stays == ran else "fallback")

    def _is_refused(self, arguments: Any) -> bool:
        try:
            self._call(*Transfer("cpu")(arguments))
        except Exception:
            return True
        return False

    def _call(self, input: Any, args: Any, kwargs: Any) -> None:
        results = [x for x in tensors(self.op(input, *args, **kwargs)) if x.requires_grad]
        if results:
            torch.autograd.backward(results, [cotangent(result, self.seed) for result in results])


class DeviceShareSuite(OpsSuite):
    """One case is a dtype of an operator of ``op_db``."""

    name = "device-share"
    checks = _Share
    dtypes = DTYPES
    foreach = False
