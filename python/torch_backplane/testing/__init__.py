"""For tests of a backend: a pytest plugin, capabilities of the loaded driver, kernel counters, fresh processes."""

from __future__ import annotations

from torch_backplane.testing.capabilities import CAPABILITIES, capabilities
from torch_backplane.testing.kernels import kernel_calls
from torch_backplane.testing.process import run_in_process

__all__ = ["CAPABILITIES", "capabilities", "kernel_calls", "run_in_process"]
