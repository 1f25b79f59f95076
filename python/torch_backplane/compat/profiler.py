"""The end of a profile: torch waits for the device without a timeout before it switches the profiler off.

Here a refusal of the native profiler also becomes a warning: torch starts a profile where warnings of C++ do not reach
Python. Unnecessary once torch ends the profile first, or waits with a timeout (2.11 to 2.15 do not).
"""

from __future__ import annotations

import warnings
from typing import Any

import torch.autograd.profiler as profiler
from torch._C._profiler import ProfilerState

from torch_backplane import _backend
from torch_backplane.compat import replaces


def install(device: str) -> None:
    """Let the end of a profile of this device return, whatever the device does."""

    @replaces(profiler.profile, "__exit__")
    def end(original: Any, self: Any, *error: Any) -> Any:
        if not self.enabled or self.use_device != device:
            return original(self, *error)
        if why := _backend.C.profiler.take_refusal():
            warnings.warn(why, stacklevel=2)
        older = self.profiler_kind == ProfilerState.KINETO_PRIVATEUSE1_FALLBACK  # events instead of a recording
        if not older and not _backend.C.profiler.is_recording():
            return original(self, *error)
        why = "the wait was interrupted"
        try:
            why = _backend.C.profiler.wait_for_recorded()
        finally:  # also after Ctrl-C: the profiler is on, and has to end
            if why:
                self.use_device = None  # so that the original does not wait
            try:
                result = original(self, *error)
            finally:
                self.use_device = device
        if why:
            warnings.warn(f"{why}: the profile has no times of that work", stacklevel=2)
        return result
