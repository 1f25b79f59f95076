"""Sharding of attention by DTensor: torch only has strategies for the operators of the CPU and of CUDA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_backplane.imports import after_import


def complete_sharding() -> None:
    """Register, once DTensor is imported, how ``_scaled_dot_product_fused_attention_overrideable`` can be sharded.

    ``scaled_dot_product_attention`` calls it on a PrivateUse1 device, and DTensor refuses it. It can be sharded along
    batches and along heads. Seen on 2.11 to 2.15; unnecessary once torch has a strategy for it.
    """
    after_import("torch.distributed.tensor", _register)  # whose import would cost each program a second


def _register() -> None:
    from torch.distributed.tensor import Partial, Replicate, Shard
    from torch.distributed.tensor.experimental import register_sharding

    aten = torch.ops.aten
    whole, none = Replicate(), None

    def of_bias(bias: Any, dim: int) -> Any:
        """A bias may have fewer dimensions, or be broadcast along them."""
        own = -1 if bias is None else dim - 4 + bias.ndim
        return Shard(own) if own >= 0 and bias.shape[own] > 1 else whole

    @register_sharding(aten._scaled_dot_product_fused_attention_overrideable.default)
    def forward(query: Any, key: Any, value: Any, attn_bias: Any = None, *rest: Any, **kwargs: Any) -> Any:
        def one(cut: Any, bias: Any) -> Any:
            inputs = [cut, cut, cut, *([] if attn_bias is None else [bias])]
            # output, logsumexp, lengths, seed and offset of random numbers, debug mask
            return [cut, cut, none, none, none, none, whole, whole, none], inputs

        return [one(whole, whole), *(one(Shard(dim), of_bias(attn_bias, dim)) for dim in (0, 1))]

    @register_sharding(aten._scaled_dot_product_fused_attention_overrideable_backward.default)
    def backward(
        grad_out: Any, query: Any, key: Any, value: Any, attn_bias: Any, mask: Sequence[bool], *rest: Any, **kwargs: Any
    ) -> Any:
        # of the rest, without out and logsumexp: the lengths, seed and offset
        others = [whole for one in rest[2:] if hasattr(one, "placements")]

        def one(cut: Any, bias: Any) -> Any:
            inputs = [cut, cut, cut, cut, *([] if attn_bias is None else [bias]), cut, cut, *others]
            sum_of_bias = Partial() if cut != whole and bias == whole else bias
            grads = [cut if asked else none for asked in mask[:3]]
            return [*grads, sum_of_bias if mask[3] else none], inputs

        return [one(whole, whole), *(one(Shard(dim), of_bias(attn_bias, dim)) for dim in (0, 1))]
