"""What stands for each name of ``torch.cuda`` on torch 2.13: a name of torch.accelerator, of torch, or the device's."""

from __future__ import annotations

import importlib.util
from pathlib import Path

__all__ = ["ACCELERATOR", "AMP", "LEFT", "NOTES", "PROFILE_NAMES", "SUBMODULES", "TORCH", "unsupported"]

# torch.cuda.<name> -> torch.accelerator.<name>: the same arguments, taken by position alone.
ACCELERATOR = {
    name: name
    for name in (
        "is_available device_count synchronize current_stream set_stream empty_cache memory_stats memory_allocated "
        "max_memory_allocated memory_reserved max_memory_reserved reset_peak_memory_stats "
        "reset_accumulated_memory_stats"
    ).split()
} | {
    "current_device": "current_device_index",
    "set_device": "set_device_index",
    "mem_get_info": "get_memory_info",
}

# torch.cuda.<name> -> torch.<name>, the same for all devices.
TORCH = {
    "OutOfMemoryError": "OutOfMemoryError",
    "AcceleratorError": "AcceleratorError",
    "CudaError": "AcceleratorError",
}

# Called otherwise by torch.amp: with the device's type.
AMP = {"autocast", "GradScaler", "custom_fwd", "custom_bwd"}

# Modules below torch.cuda whose names torch.cuda has itself.
SUBMODULES = {"memory", "random", "streams", "graphs"}

# Full names that have no counterpart, and what to do.
LEFT = {
    f"torch.utils.cpp_extension.{name}": "compiles CUDA C++: kernels are written anew in the device's language"
    for name in ("CUDAExtension", "CUDA_HOME")
}

# What acts on NVIDIA's libraries alone: no harm on another device, nothing to do.
NOTES = {
    "torch.backends.cuda": "a switch of CUDA's libraries: without effect on another device",
    "torch.backends.cudnn": "a switch of cuDNN: without effect on another device",
    "torch.version.cuda": "the CUDA that torch was built with: None on another device",
}

# Names of profiles that torch has replaced by the device's: keys of tables and attributes of events.
PROFILE_NAMES = {
    f"{own}cuda_{what}": f"{own}device_{what}"
    for own in ("", "self_")
    for what in ("time", "time_total", "memory_usage")
    if (own, what) != ("self_", "time")
}


def unsupported() -> dict[str, str]:
    """The names of torch.cuda that a device module lacks, each with the reason; read where torch may be absent."""
    path = Path(__file__).parents[1] / "device" / "unsupported.py"
    spec = importlib.util.spec_from_file_location("torch_backplane_device_unsupported", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.UNSUPPORTED
