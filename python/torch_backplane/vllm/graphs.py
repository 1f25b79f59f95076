"""Steps in which each request decodes one token, as graphs of the device, by vLLM's wrapper for CUDA."""

from __future__ import annotations

from typing import Any

import torch
from vllm.compilation import cuda_graph
from vllm.config import CUDAGraphMode
from vllm.distributed import parallel_state

from torch_backplane import _backend, compiler, driver
from torch_backplane.integrations._library import Patch


def are_available() -> bool:
    """Whether the device records work, of kernels that are compiled: a graph holds no work of the CPU."""
    return "graph" in driver.info().capabilities and compiler.is_available() and compiler.policy() in ("wait", "strict")


def mode_of(config: Any) -> CUDAGraphMode:
    """The mode for a configuration: of those that it asks for, the one that is served."""
    asked, model = config.compilation_config.cudagraph_mode, config.model_config
    if asked is None or not asked.has_full_cudagraphs() or not are_available() or model is None:
        return CUDAGraphMode.NONE
    # the host takes part in a step of these: in collectives, a choice of experts or of adapters, draft tokens
    others = config.parallel_config.world_size > 1 or model.is_moe or config.lora_config or config.speculative_config
    return CUDAGraphMode.NONE if others or model.pooler_config else CUDAGraphMode.FULL_DECODE_ONLY


def register() -> None:
    """Where vLLM says ``torch.cuda`` for graphs: see docs/upstream.md."""
    patch = Patch("vllm")
    patch.words(cuda_graph, "CUDAGraphWrapper.__call__", cuda=_backend.device)
    patch.words(parallel_state, "graph_capture GroupCoordinator.graph_capture", cuda=_backend.device)
    # vLLM's keeps the first stream that it has seen
    patch.value(cuda_graph, "current_stream", lambda _: getattr(torch, _backend.device).current_stream)

    @patch(cuda_graph, "weak_ref_tensors", "tensors")
    def keep(_: Any, tensors: Any) -> Any:
        return tensors  # vLLM's are made by a compiled operator
