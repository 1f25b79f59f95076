"""Options of Inductor for the device, beside ``torch._inductor.config`` and with the same functions: ``patch``, ..."""

import sys

from torch.utils._config_module import install_config_module

aot_targets: list[str] = []
"""Targets that an AOTInductor package has kernels for beside that of the device at hand: names of
``torch_backplane.compiler.targets()``. Loaded on one of them, it compiles none of its kernels."""

install_config_module(sys.modules[__name__])
