"""Inductor's options for the device, beside ``torch._inductor.config`` and with the same functions: ``patch``, ..."""

import sys

from torch.utils._config_module import install_config_module

aot_targets: list[str] = []
"""Targets, in addition to the current device's, for which an AOTInductor package has compiled kernels: names of
``torch_backplane.compiler.targets()``. On these targets a loaded package does not compile its kernels."""

kernels: str = ""
"""The language of the kernels that Inductor writes: "dialect" (docs/dialect.md), or "triton" for torch's own Triton
code. Empty: that of ``<PREFIX>_INDUCTOR`` in the environment, or else "dialect", or "triton" if the driver
compiles TTIR alone."""

install_config_module(sys.modules[__name__])
