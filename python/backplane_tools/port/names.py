"""Counterparts of the names of ``torch.cuda`` on torch 2.13: names of torch.accelerator, of torch, or the device's."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import torch_backplane

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

# torch.amp takes the device's type as well.
AMP = {"autocast", "GradScaler", "custom_fwd", "custom_bwd"}

# Modules below torch.cuda whose names torch.cuda has itself.
SUBMODULES = {"memory", "random", "streams", "graphs"}

# Those that the device's module has as well; the counterpart of amp is torch.amp.
MODULES = SUBMODULES | {"sparse"}

# Names of torch.cuda that programs call where there is no CUDA: they do nothing there, or return what is true.
WITHOUT_CUDA = set(
    "manual_seed manual_seed_all seed seed_all get_rng_state_all set_rng_state_all "
    "is_initialized is_bf16_supported device_of".split()
)

_GROUP = "names NVIDIA's collectives: use the backend that torch.distributed.get_default_backend_for_device gives"
_BUILT = "whether torch was built with CUDA: ask torch.accelerator.is_available()"

# Full names that have no counterpart, and what to do.
LEFT = {
    **{
        f"torch.utils.cpp_extension.{name}": "compiles CUDA C++: kernels are written anew in the device's language"
        for name in ("CUDAExtension", "CUDA_HOME")
    },
    **{
        f"torch.cuda.graphs.register_graph_{event}_hook": "a hook of torch 2.14 for all of CUDA's graphs"
        for event in ("capture_start", "capture_end", "instantiate", "replay_start", "replay_end", "destroy")
    },
    "torch.cuda.comm": "copies between several GPUs of CUDA's: use to(device=...), or torch.distributed",
    "torch.cuda.gds": "files by NVIDIA's cuFile",
    "torch.cuda.green_contexts": "contexts of the CUDA driver",
    "torch.cuda.profiler": "switches NVIDIA's profilers: use torch.profiler, or the vendor's own tool",
    "torch.distributed.is_nccl_available": _GROUP,
    "torch.distributed.ProcessGroupNCCL": _GROUP,
    "torch.backends.cuda.is_built": _BUILT,
    "torch.has_cuda": _BUILT,
}

# Attributes of any object that CUDA's alone has.
ATTRIBUTES = {
    "cuda_stream": "the CUDA runtime's handle of a stream: native_handle is the device's own",
    "cuda_event": "the CUDA runtime's handle of an event",
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


_NAMES_CUDA = re.compile("cuda(?!graph)|Cuda|CUDA|nccl|NCCL")  # cudagraphs are torch.compile's, of any device


def reason_to_leave(dotted: str) -> tuple[str, bool] | None:
    """Why a full name of torch's stays as it is, and whether that counts; None: it names no CUDA, or has a rule.

    ``torch.cuda``'s and ``ProfilerActivity.CUDA`` have rules.
    """
    for table, counts in ((LEFT, True), (NOTES, False)):
        for known, reason in table.items():
            if dotted == known or dotted.startswith(known + "."):
                return reason, counts
    first, _, rest = dotted.partition(".")
    if first != "torch" or not _NAMES_CUDA.search(rest):
        return None
    if rest == "cuda" or rest.startswith("cuda.") or rest.endswith("ProfilerActivity.CUDA"):
        return None
    return "a name of CUDA's, which has no known counterpart", True


def unsupported() -> dict[str, str]:
    """The names of torch.cuda that a device module does not support, with reasons; torch need not be installed."""
    path = Path(str(torch_backplane.__file__)).parent / "device" / "unsupported.py"
    spec = importlib.util.spec_from_file_location("torch_backplane_device_unsupported", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.UNSUPPORTED
