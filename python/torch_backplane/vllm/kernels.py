"""vLLM's Triton kernels that every model needs, by torch's operators."""

from __future__ import annotations

import torch

from torch_backplane import _backend


def compute_slot_mapping(
    num_tokens: int,
    max_num_tokens: int,
    query_start_loc: torch.Tensor,
    positions: torch.Tensor,
    block_table: torch.Tensor,
    block_table_stride: int,
    slot_mapping: torch.Tensor,
    KV_CACHE_BLOCK_SIZE: int,
    TOTAL_CP_WORLD_SIZE: int,
    TOTAL_CP_RANK: int,
    CP_KV_CACHE_INTERLEAVE_SIZE: int,
    PAD_ID: int,
    BLOCK_SIZE: int,
) -> None:
    """Where in the cache the keys and values of each token go; the names are those of vLLM's kernel."""
    if TOTAL_CP_WORLD_SIZE != 1:
        raise NotImplementedError(f"context parallelism is not served on {_backend.device}")
    tokens = torch.arange(num_tokens, device=positions.device, dtype=query_start_loc.dtype)
    requests = torch.searchsorted(query_start_loc[1:], tokens, right=True).clamp_(max=block_table.shape[0] - 1)
    position = positions[:num_tokens]
    pages = block_table[requests, position // KV_CACHE_BLOCK_SIZE].long()
    slot_mapping[:num_tokens] = pages * KV_CACHE_BLOCK_SIZE + position % KV_CACHE_BLOCK_SIZE
    slot_mapping[num_tokens:max_num_tokens].fill_(PAD_ID)


def register() -> None:
    """In place of vLLM's. Not by ``register_kernels``, whose search of all modules fails at objects of cffi."""
    from vllm.triton_utils.dispatcher import KernelOverride
    from vllm.v1.worker.block_table import ComputeSlotMappingKernel as Original

    if not isinstance(Original.kernel, KernelOverride):
        Original.kernel = KernelOverride(Original.kernel, compute_slot_mapping)
