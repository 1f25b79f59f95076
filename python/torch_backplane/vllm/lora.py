"""Adapters of LoRA by torch's operators, for batches whose requests have different ones, or none.

vLLM's wrapper for the CPU takes weights by index, and so gives a request without an adapter, index -1, the last one.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU


def _chosen(indices: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Which slot of the stacked weights each row has, as (rows, slots, 1); none for -1."""
    return (indices[:, None] == torch.arange(weights.shape[0], device=indices.device))[..., None]


def _shrink(y: torch.Tensor, x: torch.Tensor, weights: torch.Tensor, scale: float, indices: torch.Tensor) -> None:
    stacked = weights.flatten(0, -2)  # (slots * rank, inputs)
    found = (x.to(stacked.dtype) @ stacked.t()).unflatten(1, (weights.shape[0], -1))
    found = torch.where(_chosen(indices, weights), found, 0).sum(1)
    y[:, : found.shape[1]] = found.to(y.dtype) * scale


def _expand(y: torch.Tensor, x: torch.Tensor, weights: torch.Tensor, indices: torch.Tensor, add: bool) -> None:
    weights = weights.squeeze(1) if weights.dim() == 4 else weights  # (slots, outputs, rank)
    spread = torch.where(_chosen(indices, weights), x[:, None], 0).flatten(1)
    found = (spread.to(weights.dtype) @ weights.transpose(1, 2).flatten(0, 1)).to(y.dtype)
    width = min(found.shape[1], y.shape[1])  # they may be padded differently
    y[:, :width] = y[:, :width] + found[:, :width] if add else found[:, :width]


class Adapters(PunicaWrapperCPU):
    """What layers with adapters call; the same in prefill and decode, so that a compiled graph is right for both."""

    def _rows(self, x: torch.Tensor) -> torch.Tensor:
        return self._token_lora_indices[: x.shape[0]]

    def _apply_shrink(self, y: torch.Tensor, x: torch.Tensor, w_t_all: torch.Tensor, scale: float) -> None:
        _shrink(y.view(-1, y.shape[-1]), x, w_t_all, scale, self._rows(x))

    def _apply_expand(
        self,
        y: torch.Tensor,
        x: torch.Tensor,
        w_t_all: torch.Tensor,
        y_offset: int,
        y_slice_size: int,
        add_inputs: bool = True,
    ) -> None:
        _expand(y[:, y_offset : y_offset + y_slice_size], x, w_t_all, self._rows(x), add_inputs)

    def add_lora_embedding(
        self, y: torch.Tensor, x: torch.Tensor, lora_b_stacked: torch.Tensor, add_inputs: bool = True, **kwargs: Any
    ) -> None:
        """Of an embedding."""
        _expand(y, x, lora_b_stacked, self._rows(x), add_inputs)

    def add_lora_logits(
        self,
        y: torch.Tensor,
        x: torch.Tensor,
        lora_a_stacked: torch.Tensor,
        lora_b_stacked: torch.Tensor,
        scale: float,
        *,
        buffer: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> None:
        """Of the last layer, for the tokens that are sampled."""
        y, x = y.view(-1, y.shape[-1]), x.view(-1, x.shape[-1])
        low = torch.zeros(len(x), lora_b_stacked.shape[-1], device=x.device) if buffer is None else buffer
        _shrink(low, x, lora_a_stacked, scale, self.sampler_indices)
        _expand(y, low, lora_b_stacked, self.sampler_indices, True)
