"""The suites by name. A suite's module is imported when the suite is used: the large ones import much of torch."""

from __future__ import annotations

import importlib

from backplane_tools.conformance.case import Suite

SUITES: dict[str, str] = {
    "driver": "backplane_tools.conformance.suites.driver:DriverSuite",
    "registration": "backplane_tools.conformance.suites.registration:RegistrationSuite",
    "runtime": "backplane_tools.conformance.suites.runtime:RuntimeSuite",
    "ops": "backplane_tools.conformance.suites.ops:OpsSuite",
    "modules": "backplane_tools.conformance.suites.modules:ModulesSuite",
    "optimizers": "backplane_tools.conformance.suites.optimizers:OptimizersSuite",
    "autograd": "backplane_tools.conformance.suites.autograd:AutogradSuite",
    "serialization": "backplane_tools.conformance.suites.serialization:SerializationSuite",
    "ops-sample": "backplane_tools.conformance.suites.ops:OpsSampleSuite",
    "compiled": "backplane_tools.conformance.suites.compiled:CompiledSuite",
    "compiled-dynamic": "backplane_tools.conformance.suites.compiled:CompiledDynamicSuite",
    "distributed": "backplane_tools.conformance.suites.distributed:DistributedSuite",
    "dtensor": "backplane_tools.conformance.suites.dtensor:DTensorSuite",
    "device-share": "backplane_tools.conformance.suites.device_share:DeviceShareSuite",
    "cuda-dtypes": "backplane_tools.conformance.suites.cuda_dtypes:CudaDtypesSuite",
}
"""Suite -> ``module:Class``, in the order in which they run: what later ones need comes first."""

ON_REQUEST = frozenset(
    {"ops-sample", "compiled", "compiled-dynamic", "distributed", "dtensor", "device-share", "cuda-dtypes"}
)
"""They run when they are named: a part of another suite, two that require a compiler, two that require several devices,
one that only measures, and one whose CPU part is that of ``ops``."""


def load(name: str, where: str | None = None) -> Suite:
    """Import and make a suite.

    ``where`` is ``module:Class`` of a suite that is not in ``SUITES``.
    """
    module, attribute = (where or SUITES[name]).split(":")
    suite: Suite = getattr(importlib.import_module(module), attribute)()
    return suite
