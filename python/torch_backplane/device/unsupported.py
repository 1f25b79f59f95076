"""The names of ``torch.cuda`` that this device module does not have, each with the reason.

The docs print this table, and a test checks that it is complete.
"""

from __future__ import annotations


def _names(reasons: dict[str, str]) -> dict[str, str]:
    """Name -> reason, from a reason -> names with blanks between them."""
    return {name: reason for reason, names in reasons.items() for name in names.split()}


_LIBRARY = "belongs to an NVIDIA library; a vendor's own library has its own Python package"
_GRAPHS = "reads NVIDIA's graphs by NVIDIA's Python package; CUDAGraph.debug_dump writes a graph of this device"
_TELEMETRY = "board telemetry: the driver interface has none; use the vendor's own tool"

UNSUPPORTED: dict[str, str] = _names(
    {
        # NVIDIA's runtime and libraries
        "an error of the CUDA runtime; this device raises torch.AcceleratorError": "CudaError",
        "checks a status of the CUDA runtime; every call of this device does so itself": "check_error",
        "status numbers of the CUDA runtime": "cudaStatus",
        "the CUDA runtime itself": "cudart",
        _LIBRARY: "current_blas_handle current_solver_handle has_magma",
        "compiles CUDA C++ by NVRTC": "jiterator",
        "NVIDIA's collectives; use torch.distributed": "nccl",
        "marks for NVIDIA's profilers; use torch.<device>.profiler.range and mark": "nvtx",
        "chooses between NVIDIA's and AMD's matrix libraries": "tunable",
        "a context of the CUDA driver": "GreenContext",
        # how CUDA binaries are made
        "compute capabilities that a CUDA build of torch carries code for; ask get_device_capability": "get_arch_list",
        "flags of nvcc": "get_gencode_flags",
        "a number format of NVIDIA's; ask get_device_properties().dtypes": "is_tf32_supported",
        "a constant of old CUDA builds; ask get_device_properties().dtypes": "has_half",
        # laziness of torch.cuda
        "calls before initialisation are not deferred here, so none can fail later": "DeferredCudaCallError",
        _GRAPHS: "export_dot export_graph_data graph_annotations",
        _TELEMETRY: "clock_rate list_gpu_processes power_draw temperature utilization",
        f"{_TELEMETRY}; mem_get_info gives the occupied bytes": "memory_usage",
    }
)

PRIVATE: dict[str, str] = _names(
    {
        "asks NVIDIA's or AMD's management library; the driver answers without a context": """
            _device_count_amdsmi _device_count_nvml _get_amdsmi_clock_rate _get_amdsmi_device_index
            _get_amdsmi_device_index_from_hip_index _get_amdsmi_device_memory_used _get_amdsmi_handler
            _get_amdsmi_memory_usage _get_amdsmi_power_draw _get_amdsmi_temperature _get_amdsmi_utilization
            _get_nvml_device_index _get_pynvml_handler _nvml_based_avail _raw_device_count_amdsmi
            _raw_device_count_nvml _raw_device_uuid_amdsmi _raw_device_uuid_nvml""",
        "looks at what a CUDA build of torch carries code for": """
            _CompatInterval _CompatSet _check_capability _check_cubins _code_compatible_with_device
            _device_requirement _extract_arch_version _host_arch_key _warn_unsupported_code""",
        "calls before initialisation are not deferred here": "_LazySeedTracker _lazy_call",
        "compiles CUDA C++ by NVRTC; torch_backplane.compiler compiles the device's kernels": "_compile_kernel",
        "Triton for CUDA": "_WrappedTritonKernel _register_triton_kernels",
        "a base of CUDA's legacy storages": "_CudaBase",
        "a part of CUDA's legacy storages": "_lazy_new _warn_typed_storage_removal",
        "CUDA's lock over its frees; frees of this device need none": "_free_mutex",
        "PluggableAllocator has no such base": "_CUDAAllocator",
        "ask get_device_properties().dtypes": "_check_bf16_tensor_supported",
        _GRAPHS: """
            _DlInfo _check_cuda_bindings _dump_graph_dot _parse_annotation_config _require_cuda_bindings
            _resolve_host_fn_name""",
        "a part of torch.cuda.CUDAGraph and graph(), which are separate classes here": """
            _RetainedCallbacks _get_pool_id _graph_destroy_hooks_active _is_mem_pool _register_global_hook
            _run_global_hooks _run_graph_destroy_hooks""",
        "a driver makes what it needs of a device at its first use, and pinned memory uses the current one": """
            _StrayContextCheckType _check_stray_context _primary_context_devices""",
        "the recorded history has no field for it; record_function names a part of a program": """
            _annotate_tensor _get_memory_metadata _memory_metadata_supported _set_memory_metadata""",
        "memory that migrates is CUDA's; a PluggableAllocator gives a pool memory of another kind": """
            _make_uvm_allocator _use_uvm""",
        "a part of CUDA's memory_stats": "_recurse_add_to_result",
        "the core reads <DEVICE>_VISIBLE_DEVICES, and device_count() counts what is visible": """
            _parse_visible_devices _transform_uuid_to_ordinals""",
        "the frames of an allocation are in memory_snapshot(), by its address": "_allocation_traceback",
        "torch gives no Python object of the host's allocator for this device": "_host_allocator",
        "_record_memory_history does it": "_record_memory_history_impl",
        "the arguments of old releases of torch; use those of _record_memory_history": "_record_memory_history_legacy",
    }
)
"""Names that begin with ``_``, which tests and libraries use nevertheless."""
