"""vLLM's Triton kernels that every model needs, by torch's operators."""

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.sample.ops import topk_topp_sampler

from torch_backplane import compiler
from torch_backplane.integrations._library import Patch

TOP_K_BYTES = 65792
"""Of local memory, for vLLM's kernel that finds the largest logits; with fewer, torch's operators sort them."""


def compute_slot_mapping(*arguments: Any) -> None:
    """Where in the cache the keys and values of each token go; takes what vLLM's kernel takes, in its order."""
    count, most, starts, positions, table, _, slots, size, _, _, _, pad, _ = arguments
    tokens = torch.arange(count, device=positions.device, dtype=starts.dtype)
    requests = torch.searchsorted(starts[1:], tokens, right=True).clamp_(max=table.shape[0] - 1)
    position = positions[:count]
    slots[:count] = table[requests, position // size].long() * size + position % size
    slots[count:most].fill_(pad)


def register() -> None:
    """In place of vLLM's. Not by ``register_kernels``, whose search of all modules fails at objects of cffi."""
    from vllm.triton_utils.dispatcher import KernelOverride
    from vllm.v1.worker.block_table import ComputeSlotMappingKernel as Original

    if not isinstance(Original.kernel, KernelOverride):
        Original.kernel = KernelOverride(Original.kernel, compute_slot_mapping)
        if compiler.is_available() and compiler.target().local_bytes < TOP_K_BYTES:
            Patch("vllm").value(topk_topp_sampler, "HAS_TRITON", lambda _: False)
