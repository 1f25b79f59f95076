"""The suites by name. A suite's module is imported when the suite is used: the large ones import much of torch."""

from __future__ import annotations

import importlib

from torch_backplane.conformance.case import Suite

__all__ = ["ON_REQUEST", "SUITES", "load"]

SUITES: dict[str, str] = {
    "driver": "torch_backplane.conformance.suites.driver:DriverSuite",
    "registration": "torch_backplane.conformance.suites.registration:RegistrationSuite",
    "runtime": "torch_backplane.conformance.suites.runtime:RuntimeSuite",
    "ops": "torch_backplane.conformance.suites.ops:OpsSuite",
    "modules": "torch_backplane.conformance.suites.modules:ModulesSuite",
    "optimizers": "torch_backplane.conformance.suites.optimizers:OptimizersSuite",
    "autograd": "torch_backplane.conformance.suites.autograd:AutogradSuite",
    "serialization": "torch_backplane.conformance.suites.serialization:SerializationSuite",
    "ops-sample": "torch_backplane.conformance.suites.ops:OpsSampleSuite",
    "compiled": "torch_backplane.conformance.suites.compiled:CompiledSuite",
    "compiled-dynamic": "torch_backplane.conformance.suites.compiled:CompiledDynamicSuite",
    "distributed": "torch_backplane.conformance.suites.distributed:DistributedSuite",
    "dtensor": "torch_backplane.conformance.suites.dtensor:DTensorSuite",
    "device-share": "torch_backplane.conformance.suites.device_share:DeviceShareSuite",
    "cuda-dtypes": "torch_backplane.conformance.suites.cuda_dtypes:CudaDtypesSuite",
}
"""Suite -> ``module:Class``, in the order in which they run: what later ones need comes first."""

ON_REQUEST = frozenset(
    {"ops-sample", "compiled", "compiled-dynamic", "distributed", "dtensor", "device-share", "cuda-dtypes"}
)
"""They run when they are named: a part of another suite, two that need a compiler, two that need several devices, one
that only measures, and one of which the CPU's part is that of ``ops``."""


def load(name: str, where: str | None = None) -> Suite:
    """Import and make a suite.

    Args:
        name: its name.
        where: ``module:Class`` of a suite that is not in ``SUITES``.
    """
    module, attribute = (where or SUITES[name]).split(":")
    suite: Suite = getattr(importlib.import_module(module), attribute)()
    return suite
