"""The end of a profile in torch: it waits for the device without a limit, before it has switched the profiler off.

It also is where what C++ has to say of the profile becomes a warning: torch starts one outside of what makes warnings
of those in C++. Unnecessary where torch ends the profile first, or waits with a limit (2.11 to 2.15 do not).
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch.autograd.profiler as profiler
from torch._C._profiler import ProfilerState

from torch_backplane import _backend


def install(device: str) -> None:
    """Let the end of a profile of this device return, whatever the device does.

    Args:
        device: its name.
    """
    original = profiler.profile.__exit__
    if hasattr(original, "_of_backplane"):
        return

    @functools.wraps(original)
    def end(self: Any, *error: Any) -> Any:
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
                self.use_device = None  # what the wait of the original is for
            try:
                result = original(self, *error)
            finally:
                self.use_device = device
        if why:
            warnings.warn(f"{why}: the profile has no times of that work", stacklevel=2)
        return result

    end._of_backplane = True  # type: ignore[attr-defined]
    profiler.profile.__exit__ = end  # type: ignore[method-assign]
