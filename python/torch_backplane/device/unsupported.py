"""The names of ``torch.cuda`` that this device module does not have, each with the reason.

The docs print this table; a test holds it.
"""

from __future__ import annotations

_LIBRARY = "belongs to an NVIDIA library; a vendor's own library has its own Python package"
_ALLOCATOR = "an allocator is replaced in C++, at load: derive from backplane::CachingAllocator (backplane/extend.h)"
_ALWAYS_ON = "stream order rests on the caching allocator; it cannot be switched off"
_GRAPHS = "reads NVIDIA's graphs by NVIDIA's Python package; CUDAGraph.debug_dump writes a graph of this device"
_TELEMETRY = "board telemetry: the driver interface has none; use the vendor's own tool"
_TENSOR_TYPES = "torch makes these legacy tensor types itself, for CUDA alone; use dtype= and device="

UNSUPPORTED: dict[str, str] = {
    # NVIDIA's runtime and libraries
    "CudaError": "an error of the CUDA runtime; this device raises torch.AcceleratorError",
    "check_error": "checks a status of the CUDA runtime; every call of this device does so itself",
    "cudaStatus": "status numbers of the CUDA runtime",
    "cudart": "the CUDA runtime itself",
    "current_blas_handle": _LIBRARY,
    "current_solver_handle": _LIBRARY,
    "has_magma": _LIBRARY,
    "jiterator": "compiles CUDA C++ by NVRTC",
    "nccl": "NVIDIA's collectives; use torch.distributed",
    "nvtx": "marks for NVIDIA's profilers; use torch.<device>.profiler.range and mark",
    "tunable": "chooses between NVIDIA's and AMD's matrix libraries",
    "GreenContext": "a context of the CUDA driver",
    # how CUDA binaries are made
    "get_arch_list": "compute capabilities that a CUDA build of torch carries code for; ask get_device_capability",
    "get_gencode_flags": "flags of nvcc",
    "is_tf32_supported": "a number format of NVIDIA's; ask get_device_properties().dtypes",
    "has_half": "a constant of old CUDA builds; ask get_device_properties().dtypes",
    # laziness of torch.cuda
    "DeferredCudaCallError": "calls before initialisation are not deferred here, so none can fail later",
    # graphs
    "export_dot": _GRAPHS,
    "export_graph_data": _GRAPHS,
    "graph_annotations": _GRAPHS,
    # allocator
    "CUDAPluggableAllocator": _ALLOCATOR,
    "change_current_allocator": _ALLOCATOR,
    "caching_allocator_enable": _ALWAYS_ON,
    "caching_allocator_disabled": _ALWAYS_ON,
    # telemetry
    "clock_rate": _TELEMETRY,
    "list_gpu_processes": _TELEMETRY,
    "memory_usage": _TELEMETRY + "; mem_get_info gives the occupied bytes",
    "power_draw": _TELEMETRY,
    "temperature": _TELEMETRY,
    "utilization": _TELEMETRY,
    # diagnosis
    "get_sync_debug_mode": "reports operators that wait; torch's switch knows CUDA alone",
    "set_sync_debug_mode": "reports operators that wait; torch's switch knows CUDA alone",
    # legacy types
    "sparse": "a module of legacy sparse tensor types; use torch.sparse",
    **{
        f"{name}Tensor": _TENSOR_TYPES
        for name in ("BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short")
    },
}
