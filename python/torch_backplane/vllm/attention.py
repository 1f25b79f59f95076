"""Attention over vLLM's paged cache by the SDK's operators for one: docs/operators.md."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionCGSupport,
    AttentionImpl,
    AttentionMetadataBuilder,
    AttentionType,
)
from vllm.v1.kv_cache_interface import EncoderOnlyAttentionSpec, KVCacheLayout

from torch_backplane import _backend

FLOAT8 = {"fp8": torch.float8_e4m3fn, "fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}
SCALED = {"int8_per_token_head": torch.int8, "fp8_per_token_head": torch.float8_e4m3fn}
"""Each head of a token has a scale of its own, in float32 behind its elements."""


class PagedAttentionBackend(AttentionBackend):
    """What vLLM may ask of :class:`PagedAttention`."""

    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.float16, torch.bfloat16, torch.float32]
    supported_kv_cache_dtypes: ClassVar[list[str]] = ["auto", "float16", "bfloat16", *FLOAT8, *SCALED]
    forward_includes_kv_cache_update = False
    supports_sliding_window = supports_sink = classmethod(lambda cls: True)

    @staticmethod
    def get_name() -> str:
        """The name that vLLM keeps for backends of others."""
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type[PagedAttention]:
        """The computation."""
        return PagedAttention

    @staticmethod
    def get_builder_cls() -> type[Builder]:
        """The preparation of a step."""
        return Builder

    @classmethod
    def customize_spec(cls, spec: Any) -> Any:
        """With memory for the scales of heads."""
        if spec.state_content_bytes is not None or not spec.kv_quant_mode.is_per_token_head:
            return spec
        return replace(spec, state_content_bytes=2 * (spec.head_size + torch.float32.itemsize))

    @classmethod
    def supported_kv_cache_layouts(cls) -> tuple[KVCacheLayout, ...]:
        """The lines of a head in a page are together, keys beside values."""
        return (KVCacheLayout.LBHNC,)

    @classmethod
    def supports_device_cpu_query_lens_mismatch(cls) -> bool:
        """The longest query is known on the host."""
        return False

    @classmethod
    def supports_attn_type(cls, attn_type: str) -> bool:
        """Of decoders, also to an encoder's output in the cache, and of encoders for embeddings."""
        return attn_type != AttentionType.ENCODER


@dataclass
class Step:
    """What layers of one kind share in a step."""

    table: torch.Tensor  # pages by request
    lengths: torch.Tensor  # of a request: its tokens so far, with those of this step
    starts: torch.Tensor  # of its tokens of this step
    longest: int
    causal: bool


class Builder(AttentionMetadataBuilder[Step]):
    """Prepares a step."""

    _cudagraph_support = AttentionCGSupport.UNIFORM_BATCH

    def __init__(self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False) -> Step:
        """Collect what the operators read."""
        common, count = common_attn_metadata, common_attn_metadata.num_reqs
        if isinstance(common.causal, torch.Tensor):
            raise NotImplementedError(f"requests of which some are causal are not served on {_backend.device}")
        starts, table = common.query_start_loc[: count + 1], common.block_table_tensor[:count]
        if isinstance(self.kv_cache_spec, EncoderOnlyAttentionSpec):  # each token of the step is a page
            table = starts[:-1, None] + torch.arange(common.max_query_len, device=starts.device, dtype=starts.dtype)
        return Step(table, common.seq_lens[:count], starts, common.max_query_len, common.causal)


class PagedAttention(AttentionImpl[Step]):
    """One layer."""

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int | None = None,
        alibi_slopes: list[float] | None = None,
        sliding_window: int | None = None,
        kv_cache_dtype: str = "auto",
        logits_soft_cap: float | None = None,
        attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None,
        sinks: torch.Tensor | None = None,
        **others: Any,
    ) -> None:
        if others := {name: value for name, value in others.items() if value not in (None, False, -1)}:
            raise NotImplementedError(f"attention with {', '.join(others)} is not served on {_backend.device}")
        self.num_heads, self.num_kv_heads, self.head_size = num_heads, num_kv_heads or num_heads, head_size
        self.scale, self.attn_type, self.kv_cache_dtype = float(scale), attn_type, kv_cache_dtype
        self.kv_sharing_target_layer_name = kv_sharing_target_layer_name
        if kv_cache_dtype in SCALED and head_size % torch.float32.itemsize:
            raise NotImplementedError(f"{kv_cache_dtype} with heads of {head_size} is not served on {_backend.device}")
        slopes = None if alibi_slopes is None else torch.tensor(alibi_slopes, device=_backend.device)
        self.options: dict[str, Any] = {"window": sliding_window or 0, "softcap": logits_soft_cap or 0.0}
        self.options |= {"sinks": sinks, "alibi_slopes": slopes}

    def _caches(
        self, layer: Any, cache: torch.Tensor, rows: tuple[torch.Tensor, ...]
    ) -> tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]:
        """Keys and values, (pages, tokens of a page, heads, size) each, and their scales."""
        if self.attn_type == AttentionType.ENCODER_ONLY:
            return tuple(one[:, None] for one in rows), {}
        lines, kind = cache.transpose(1, 2), FLOAT8.get(self.kv_cache_dtype)
        if self.kv_cache_dtype in SCALED:
            keys, k_scale, values, v_scale = lines.split([self.head_size, torch.float32.itemsize] * 2, -1)
            kind = SCALED[self.kv_cache_dtype]
            scales = {"k_scale": k_scale.view(torch.float32)[..., 0], "v_scale": v_scale.view(torch.float32)[..., 0]}
            return (keys.view(kind), values.view(kind)), scales
        if kind is None:
            return lines.split(self.head_size, -1), {}
        return lines.view(kind).split(self.head_size, -1), {"k_scale": layer._k_scale, "v_scale": layer._v_scale}

    def do_kv_cache_update(
        self, layer: Any, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor, slot_mapping: torch.Tensor
    ) -> None:
        """Write the step's keys and values into their slots."""
        if self.attn_type != AttentionType.ENCODER_ONLY:  # of which nothing is kept
            caches, scales = self._caches(layer, kv_cache, (key, value))
            torch.ops.backplane.paged_write(key, value, *caches, slot_mapping, **scales)

    def forward(
        self,
        layer: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: Step | None,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Compute attention of the step's tokens into ``output``, (tokens, heads, head size)."""
        if attn_metadata is None:  # while memory is measured
            return output.fill_(0)
        step = attn_metadata
        caches, scales = self._caches(layer, kv_cache, (key, value))
        torch.ops.backplane.paged_attention(
            query,
            *caches,
            step.table,
            step.lengths,
            step.starts,
            output.view_as(query),
            scale=self.scale,
            max_query_len=step.longest,
            causal=step.causal,
            **self.options,
            **scales,
        )
        return output
