"""The device as vLLM asks for it: names, memory, seeds, and the classes that run on it."""

from __future__ import annotations

import os
from typing import Any

import torch
import vllm
from vllm.logger import init_logger
from vllm.platforms.interface import Platform, PlatformEnum

from torch_backplane import _backend
from torch_backplane.vllm import refusals, releases

releases.check(vllm.__version__)
# The other model runner is written in Triton from end to end; vLLM would choose it wherever Triton has a driver.
os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0")
# Latent attention is computed as attention of many heads, by vLLM's own choice between the two.
os.environ.setdefault("VLLM_MLA_DISABLE", "1")
# A forked process cannot use a driver that its parent has opened; vLLM knows that of CUDA and XPU alone.
os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")

logger = init_logger(__name__)

HERE = "torch_backplane.vllm"


def _module() -> Any:
    return getattr(torch, _backend.device)


class BackplanePlatform(Platform):
    """Any device of a Backplane backend."""

    _enum = PlatformEnum.OOT
    device_name = device_type = _backend.device
    dispatch_key = "PrivateUse1"
    dist_backend = f"{_backend.device}ccl"
    device_control_env_var = _backend.env_name("VISIBLE_DEVICES")
    supported_quantization = [  # noqa: RUF012  # vLLM declares it so
        *("compressed-tensors", "gptq", "auto_gptq", "awq", "auto_awq"),
        *("fp8", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block"),
    ]

    # vLLM's compiled operators are CUDA's, and its own run by their definitions. Caches are found by a layer's name.
    import_kernels = import_ir_kernels = check_runner_kv_caches_multi_layer = classmethod(lambda cls: None)
    # For Dynamo attention is one operator, else it traces the branch that runs while memory is measured. Graphs are of
    # steps that decode (check_and_update_config), and layers with and without a window keep caches of two lengths.
    opaque_attention_op = support_static_graph_mode = support_hybrid_kv_cache = classmethod(lambda cls: True)

    @classmethod
    def register_triton_kernel_overrides(cls) -> None:
        """Called by a worker before its model runner."""
        from torch_backplane.vllm import graphs, kernels, moe, quantization

        graphs.register()
        kernels.register()
        quantization.register()
        moe.register()

    @classmethod
    def get_attn_backend_cls(cls, selected_backend: Any, attn_selector_config: Any, num_heads: Any = None) -> str:
        """The one for a paged cache, which refuses what it does not compute."""
        from torch_backplane.vllm.attention import PagedAttentionBackend

        asked = attn_selector_config._asdict()
        wrong = PagedAttentionBackend.validate_configuration(device_capability=None, **asked)
        if selected_backend is not None and selected_backend.name != PagedAttentionBackend.get_name():
            wrong.append(f"backend {selected_backend.name}")
        if wrong:
            raise ValueError(f"attention on {_backend.device}: {', '.join(wrong)}; {attn_selector_config}")
        return f"{HERE}.attention.PagedAttentionBackend"

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        """As the driver says."""
        return str(_module().get_device_properties(device_id).name)

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        """In bytes."""
        return int(_module().get_device_properties(device_id).total_memory)

    @classmethod
    def get_current_memory_usage(cls, device: Any = None) -> float:
        """In bytes."""
        return float(torch.accelerator.memory_allocated(device))

    @classmethod
    def num_compute_units(cls, device_id: int = 0) -> int:
        """Of the device, where the driver counts them."""
        return int(getattr(_module().get_device_properties(device_id), "multi_processor_count", 0) or 1)

    @classmethod
    def set_device(cls, device: torch.device) -> None:
        """Of this thread."""
        torch.accelerator.set_device_index(device)

    @classmethod
    def manual_seed_all(cls, seed: int) -> None:
        """Of every device."""
        _module().manual_seed_all(seed)

    @classmethod
    def check_if_supports_dtype(cls, dtype: torch.dtype) -> None:
        """Of a model's weights and activations."""
        if dtype not in (torch.bfloat16, torch.float16, torch.float32):
            raise ValueError(
                f"{_backend.device} serves bfloat16, float16 and float32, and the model's dtype is {dtype}"
            )

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        """Refuse what is not served, and choose the device's classes; vLLM calls it once for each configuration."""
        from vllm.config import CUDAGraphMode

        from torch_backplane.vllm import graphs

        refusals.check(vllm_config)
        parallel, compilation = vllm_config.parallel_config, vllm_config.compilation_config
        if parallel.worker_cls == "auto":
            parallel.worker_cls = f"{HERE}.worker.BackplaneWorker"
        vllm_config.additional_config["torch_backplane"] = releases.cache_key()
        compilation.cudagraph_mode = graphs.mode_of(vllm_config)
        if compilation.cudagraph_mode == CUDAGraphMode.NONE:
            compilation.cudagraph_capture_sizes, compilation.max_cudagraph_capture_size = [], 0
        compilation.compile_sizes = compilation.compile_sizes or []
        compilation.inductor_compile_config["benchmark_combo_kernel"] = False
        vllm_config.kernel_config.enable_jit_warmup = False
        for fusion in ("fuse_norm_quant", "fuse_act_quant", "fuse_attn_quant", "fuse_allreduce_rms"):
            setattr(compilation.pass_config, fusion, False)  # into vLLM's compiled operators

    @classmethod
    def get_punica_wrapper(cls) -> str:
        """LoRA by torch's operators."""
        return f"{HERE}.lora.Adapters"

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        """Collectives by torch.distributed."""
        return f"{HERE}.communicator.Communicator"

    @classmethod
    def get_static_graph_wrapper_cls(cls) -> str:
        """The one for CUDA: it runs on graphs of the device."""
        return "vllm.compilation.cuda_graph.CUDAGraphWrapper"

    @classmethod
    def get_pass_manager_cls(cls) -> str:
        """Inductor's passes of vLLM."""
        return f"{HERE}.compilation.PassManager"
