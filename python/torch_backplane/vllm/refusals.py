"""What vLLM can do and this plugin does not serve: refused by its name when the engine starts."""

from __future__ import annotations

from typing import Any

from torch_backplane import _backend

SPECULATION = ("ngram", "draft_model")


def refused(config: Any) -> list[str]:
    """The settings of a ``VllmConfig`` that are not served, each with what to change."""
    from vllm.triton_utils import HAS_TRITON

    model, parallel, offload = config.model_config, config.parallel_config, config.offload_config
    workers, devices = parallel.world_size * parallel.data_parallel_size_local, _backend.C.devices.count()
    found = {
        f"{workers} workers on {devices} devices (data_, pipeline_ and tensor_parallel_size)": parallel.nnodes == 1
        and workers > devices,
        "the V2 model runner: unset VLLM_USE_V2_MODEL_RUNNER": config.use_v2_model_runner,
        "decode_context_parallel_size": parallel.decode_context_parallel_size > 1,
        "prefill_context_parallel_size": parallel.prefill_context_parallel_size > 1,
        "enable_eplb": parallel.enable_eplb,
        "enable_dbo": parallel.enable_dbo,
        "several nodes (nnodes)": parallel.nnodes > 1,
        "kv_transfer_config": config.kv_transfer_config is not None,
        "ec_transfer_config": config.ec_transfer_config is not None,
        "offloaded weights (cpu_offload_gb and the like)": offload is not None
        and bool(offload.uva.cpu_offload_gb or offload.prefetch.offload_group_size),
        "an additional_config that is not a dict": not isinstance(config.additional_config, dict),
    }
    if model is not None:
        found |= {
            "latent attention (MLA): unset VLLM_MLA_DISABLE": model.use_mla,
            "models with a recurrent state (Mamba, linear attention)": model.is_hybrid or model.has_inner_state,
            "experts of quantized weights": model.is_moe and model.quantization is not None,
            "models that attend to images in both directions (mm_prefix)": model.is_mm_prefix_lm,
        }
    if config.speculative_config is not None:
        method = config.speculative_config.method
        found[f"speculation by {method}: {' and '.join(SPECULATION)} are"] = method not in SPECULATION
        found["speculation without Triton: pip install triton==3.7.1"] = not HAS_TRITON
    return [name for name, is_there in found.items() if is_there]


def check(config: Any) -> None:
    """Raise for the first look at a configuration that asks for such a thing."""
    if found := refused(config):
        raise NotImplementedError(f"not served on {_backend.device}: {'; '.join(found)} (docs/vllm.md)")
