"""Mixtures of experts: tokens are sorted by expert and multiplied in groups."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod

from torch_backplane import _backend
from torch_backplane.integrations._library import Patch

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
}


class GroupedExperts(UnquantizedFusedMoEMethod):
    """In place of vLLM's method for experts whose weights are not quantized."""

    is_monolithic = False  # vLLM's router chooses the experts

    def process_weights_after_loading(self, layer: Any) -> None:
        """Refuse what is not computed here."""
        wrong = {
            f"the activation {layer.activation.value}": layer.activation.value not in ACTIVATIONS,
            "LoRA of experts": self.moe.is_lora_enabled,
            "a router with a bias and without groups": getattr(layer, "e_score_correction_bias", None) is not None
            and not getattr(layer, "num_expert_group", None),
        }
        if any(wrong.values()):
            names = ", ".join(name for name in wrong if wrong[name])
            raise NotImplementedError(f"mixtures of experts on {_backend.device}: {names} is not served")
        super().process_weights_after_loading(layer)

    def forward_native(
        self,
        layer: Any,
        x: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        shared_experts: Any,
        shared_experts_input: torch.Tensor | None,
    ) -> torch.Tensor:
        """The sum of each token's experts by their weights; (tokens, hidden)."""
        count, chosen = topk_ids.shape
        here = layer.w13_weight.shape[0]
        if layer.expert_map is not None:  # -1 for experts of other devices, which are last here, without weights
            topk_ids = layer.expert_map[topk_ids]
            topk_ids = torch.where(topk_ids < 0, here, topk_ids)
        experts, order = topk_ids.flatten().sort(stable=True)
        numbers = torch.arange(here, device=x.device, dtype=experts.dtype)
        ends = torch.searchsorted(experts, numbers, right=True).to(torch.int32)
        weights = topk_weights.flatten()[order, None].to(x.dtype)
        rows = x[order // chosen]
        if layer.apply_router_weight_on_input:
            rows = rows * weights
        gate, up = self._product(rows, layer, "w13", experts, ends).chunk(2, -1)
        rows = self._product(ACTIVATIONS[layer.activation.value](gate) * up, layer, "w2", experts, ends)
        if not layer.apply_router_weight_on_input:
            rows = rows * weights
        if layer.expert_map is not None:
            rows = torch.where((experts < here)[:, None], rows, 0)
        return torch.empty_like(rows).index_copy_(0, order, rows).view(count, chosen, rows.shape[1]).sum(1)

    def _product(
        self, rows: torch.Tensor, layer: Any, name: str, experts: torch.Tensor, ends: torch.Tensor
    ) -> torch.Tensor:
        found = F.grouped_mm(rows, getattr(layer, f"{name}_weight").transpose(1, 2), offs=ends)
        return found + getattr(layer, f"{name}_bias")[experts.clamp(max=len(ends) - 1)] if self.moe.has_bias else found


def register() -> None:
    """By vLLM's registry of operators of other platforms; its router calls compiled operators: see docs/upstream.md."""
    from vllm.model_executor.custom_op import op_registry_oot
    from vllm.model_executor.layers.fused_moe.router import fused_topk_router

    if UnquantizedFusedMoEMethod.__name__ in op_registry_oot:
        return
    UnquantizedFusedMoEMethod.register_oot(GroupedExperts)
    patch, takes = Patch("vllm"), "topk_weights topk_indices token_expert_indices gating_output renormalize"
    for name, score in {"softmax": partial(torch.softmax, dim=-1), "sigmoid": torch.sigmoid}.items():

        @patch(fused_topk_router, f"vllm_topk_{name}", takes)
        def choose(
            _: Any, weights: Any, ids: Any, places: Any, logits: Any, renormalize: bool = False, score: Any = score
        ) -> Any:
            values, indices = score(logits.float()).topk(ids.shape[1], -1)
            weights.copy_(values / values.sum(-1, keepdim=True) if renormalize else values)
            return weights, ids.copy_(indices)
