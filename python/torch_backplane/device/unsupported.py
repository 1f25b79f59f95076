"""The names of ``torch.cuda`` that this device module does not have, each with the reason.

The docs print this table; a test holds it.
"""

from __future__ import annotations

_LIBRARY = "belongs to an NVIDIA library; a vendor's own library has its own Python package"
_GRAPHS = "reads NVIDIA's graphs by NVIDIA's Python package; CUDAGraph.debug_dump writes a graph of this device"
_TELEMETRY = "board telemetry: the driver interface has none; use the vendor's own tool"

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
    # telemetry
    "clock_rate": _TELEMETRY,
    "list_gpu_processes": _TELEMETRY,
    "memory_usage": _TELEMETRY + "; mem_get_info gives the occupied bytes",
    "power_draw": _TELEMETRY,
    "temperature": _TELEMETRY,
    "utilization": _TELEMETRY,
}

_SMI = "asks NVIDIA's or AMD's management library; the driver answers without a context"
_BINARIES = "looks at what a CUDA build of torch carries code for"
_CUDA_LAZY = "calls before initialisation are not deferred here"
_METADATA = "the recorded history has no field for it; record_function names a part of a program"
_UVM = "memory that migrates is CUDA's; a PluggableAllocator gives a pool memory of another kind"
_CUDA_COMPILER = "compiles CUDA C++ by NVRTC; torch_backplane.compiler compiles the device's kernels"

PRIVATE: dict[str, str] = {
    **{
        name: _SMI
        for name in (
            "_device_count_amdsmi",
            "_device_count_nvml",
            "_get_amdsmi_clock_rate",
            "_get_amdsmi_device_index",
            "_get_amdsmi_device_index_from_hip_index",
            "_get_amdsmi_device_memory_used",
            "_get_amdsmi_handler",
            "_get_amdsmi_memory_usage",
            "_get_amdsmi_power_draw",
            "_get_amdsmi_temperature",
            "_get_amdsmi_utilization",
            "_get_nvml_device_index",
            "_get_pynvml_handler",
            "_nvml_based_avail",
            "_raw_device_count_amdsmi",
            "_raw_device_count_nvml",
            "_raw_device_uuid_amdsmi",
            "_raw_device_uuid_nvml",
        )
    },
    **{
        name: _BINARIES
        for name in (
            "_CompatInterval",
            "_CompatSet",
            "_check_capability",
            "_check_cubins",
            "_code_compatible_with_device",
            "_device_requirement",
            "_extract_arch_version",
            "_host_arch_key",
            "_warn_unsupported_code",
        )
    },
    "_LazySeedTracker": _CUDA_LAZY,
    "_lazy_call": _CUDA_LAZY,
    "_compile_kernel": _CUDA_COMPILER,
    "_WrappedTritonKernel": "Triton for CUDA",
    "_register_triton_kernels": "Triton for CUDA",
    "_CudaBase": "a base of CUDA's legacy storages",
    "_lazy_new": "a part of CUDA's legacy storages",
    "_warn_typed_storage_removal": "a part of CUDA's legacy storages",
    "_free_mutex": "CUDA's lock over its frees; frees of this device need none",
    "_CUDAAllocator": "PluggableAllocator has no base of its own",
    "_check_bf16_tensor_supported": "ask get_device_properties().dtypes",
    **{
        name: _GRAPHS
        for name in (
            "_DlInfo",
            "_check_cuda_bindings",
            "_dump_graph_dot",
            "_parse_annotation_config",
            "_require_cuda_bindings",
            "_resolve_host_fn_name",
        )
    },
    **{
        name: "a part of torch.cuda.CUDAGraph and graph(), which are classes of their own here"
        for name in (
            "_RetainedCallbacks",
            "_get_pool_id",
            "_graph_destroy_hooks_active",
            "_is_mem_pool",
            "_register_global_hook",
            "_run_global_hooks",
            "_run_graph_destroy_hooks",
        )
    },
    **{
        name: "a driver makes what it needs of a device at its first use, and pinned memory uses the current one"
        for name in ("_StrayContextCheckType", "_check_stray_context", "_primary_context_devices")
    },
    **{
        name: _METADATA
        for name in ("_annotate_tensor", "_get_memory_metadata", "_memory_metadata_supported", "_set_memory_metadata")
    },
    "_make_uvm_allocator": _UVM,
    "_use_uvm": _UVM,
    "_recurse_add_to_result": "a part of CUDA's memory_stats",
    "_parse_visible_devices": "the core reads <DEVICE>_VISIBLE_DEVICES, and device_count() has what it shows",
    "_transform_uuid_to_ordinals": "the core reads <DEVICE>_VISIBLE_DEVICES, and device_count() has what it shows",
    "_allocation_traceback": "the frames of an allocation are in memory_snapshot(), by its address",
    "_host_allocator": "torch gives no Python object of the host's allocator for this device",
    "_record_memory_history_impl": "_record_memory_history does it",
    "_record_memory_history_legacy": "the arguments of old releases of torch; use those of _record_memory_history",
}
"""What begins with ``_`` there, which tests and libraries use all the same."""
