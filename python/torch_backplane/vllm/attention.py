"""Attention over vLLM's paged cache by torch's operators: pages are gathered, and the device's attention runs on them.

Requests of a step are cut into parts of equal query lengths, and long prompts into pieces, so that no part gathers or
scores more than :data:`LIMIT` elements and nothing is padded: all decoding requests together are one part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from vllm.v1.attention.backend import AttentionBackend, AttentionImpl, AttentionMetadataBuilder, AttentionType
from vllm.v1.kv_cache_interface import KVCacheLayout

from torch_backplane import _backend

LIMIT = 1 << 25
FLOAT8 = {"fp8": torch.float8_e4m3fn, "fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}


class PagedAttentionBackend(AttentionBackend):
    """What vLLM may ask of :class:`PagedAttention`."""

    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.float16, torch.bfloat16, torch.float32]
    supported_kv_cache_dtypes: ClassVar[list[str]] = ["auto", "float16", "bfloat16", *FLOAT8]
    forward_includes_kv_cache_update = False

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
    def supported_kv_cache_layouts(cls) -> tuple[KVCacheLayout, ...]:
        """Tokens of a page, heads, keys beside values."""
        return (KVCacheLayout.LBNHC,)

    @classmethod
    def supports_sliding_window(cls) -> bool:
        """By the mask."""
        return True

    @classmethod
    def supports_device_cpu_query_lens_mismatch(cls) -> bool:
        """Parts are cut by lengths on the host."""
        return False

    @classmethod
    def supports_attn_type(cls, attn_type: str) -> bool:
        """Of decoders, and of encoders for embeddings."""
        return attn_type in (AttentionType.DECODER, AttentionType.ENCODER_ONLY)


@dataclass
class Part:
    """Requests ``first`` to ``last`` of a step, whose ``new`` tokens each are in a row from ``start`` on.

    Of a long prompt, the only request of its part, it is the piece of ``length`` tokens from ``offset`` on.
    """

    first: int
    last: int
    start: int
    new: int
    offset: int
    length: int
    pages: int  # that hold what a request has seen

    def tokens(self) -> slice:
        """Its queries among the step's tokens."""
        start = self.start + self.offset
        return slice(start, start + (self.last - self.first) * self.length)


@dataclass
class Step:
    """What layers of one kind share in a step."""

    parts: list[Part]
    size: int  # of a page
    table: torch.Tensor  # pages by request
    seen: torch.Tensor  # of a request: its tokens so far, with those of this step
    before: torch.Tensor  # of a request: its tokens before this step
    causal: torch.Tensor  # of a request
    slot_mapping: torch.Tensor
    masks: dict[tuple[int, int | None], torch.Tensor] = field(default_factory=dict)

    def positions(self, part: Part) -> torch.Tensor:
        """Of a part's queries, as (requests, queries)."""
        place = torch.arange(part.offset, part.offset + part.length, device=self.seen.device)
        return self.before[part.first : part.last, None] + place

    def mask(self, index: int, window: int | None, count: int) -> torch.Tensor:
        """Which of the first ``count`` keys the queries of a part see, as (requests, 1, queries, keys)."""
        if (index, window) not in self.masks:
            part = self.parts[index]
            queries, requests = self.positions(part)[..., None], slice(part.first, part.last)
            keys = torch.arange(count, device=queries.device)
            causal = self.causal[requests, None, None]
            mask = keys <= torch.where(causal, queries, self.seen[requests, None, None] - 1)
            if window is not None:
                mask &= (keys > queries - window) & (keys < queries + window)
            self.masks[index, window] = mask[:, None]
        return self.masks[index, window]


class Builder(AttentionMetadataBuilder[Step]):
    """Prepares a step on the host, from lengths that vLLM has there."""

    def __init__(self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self.row = 2 * kv_cache_spec.head_size * kv_cache_spec.num_kv_heads
        self.heads = vllm_config.model_config.get_num_attention_heads(vllm_config.parallel_config)

    def build(self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False) -> Step:
        """Cut the step's requests into parts."""
        common, size, count = common_attn_metadata, self.kv_cache_spec.block_size, common_attn_metadata.num_reqs
        bounds = common.seq_lens_cpu_upper_bound
        lengths = [common.max_seq_len] * count if bounds is None else bounds[:count].tolist()
        start, seen = common.query_start_loc[: count + 1].long(), common.seq_lens[:count].long()
        causal = common.causal
        if not isinstance(causal, torch.Tensor):
            causal = torch.full((count,), causal, device=self.device)
        return Step(
            parts=list(self._parts(common.query_start_loc_cpu[: count + 1].tolist(), lengths)),
            size=size,
            table=common.block_table_tensor[:count].long(),
            seen=seen,
            before=seen - start.diff(),
            causal=causal[:count],
            slot_mapping=common.slot_mapping,
        )

    def _parts(self, starts: list[int], lengths: list[int]) -> Iterator[Part]:
        size, first, count = self.kv_cache_spec.block_size, 0, len(lengths)
        while first < count:
            new, last, longest = starts[first + 1] - starts[first], first + 1, max(lengths[first], 1)
            while last < count and starts[last + 1] - starts[last] == new:
                longer = max(longest, lengths[last])
                if (last + 1 - first) * longer * max(self.row, self.heads * new) > LIMIT:
                    break
                last, longest = last + 1, longer
            piece = max(1, LIMIT // (longest * self.heads)) if last == first + 1 else max(new, 1)
            for offset in range(0, new, piece):
                yield Part(first, last, starts[first], new, offset, min(piece, new - offset), -(-longest // size))
            first = last


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
        **others: Any,
    ) -> None:
        if others := {name: value for name, value in others.items() if value not in (None, False, -1)}:
            raise NotImplementedError(f"attention with {', '.join(others)} is not served on {_backend.device}")
        self.num_heads, self.num_kv_heads, self.head_size = num_heads, num_kv_heads or num_heads, head_size
        self.scale, self.cap, self.window = float(scale), logits_soft_cap, sliding_window
        self.slopes = None if alibi_slopes is None else torch.tensor(alibi_slopes, device=_backend.device)
        self.attn_type, self.kv_cache_dtype = attn_type, kv_cache_dtype
        self.kv_sharing_target_layer_name = kv_sharing_target_layer_name

    def do_kv_cache_update(
        self, layer: Any, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor, slot_mapping: torch.Tensor
    ) -> None:
        """Write the step's keys and values into their slots."""
        if self.attn_type == AttentionType.ENCODER_ONLY:
            return  # nothing of it is kept
        count = slot_mapping.shape[0]
        key, value = key[:count], value[:count]
        if dtype := FLOAT8.get(self.kv_cache_dtype):
            most = torch.finfo(dtype).max
            key, value = (key / layer._k_scale).clamp(-most, most), (value / layer._v_scale).clamp(-most, most)
            rows = torch.cat([key, value], -1).to(dtype).view(kv_cache.dtype)
        else:
            rows = torch.cat([key, value], -1).to(kv_cache.dtype)
        slots = kv_cache.transpose(1, 2).flatten(0, 1)
        # a slot of -1 pads the batch: its row goes to page 0, which vLLM gives to no request
        slots.index_copy_(0, slot_mapping.clamp(min=0), rows)

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
        step = attn_metadata
        if step is None:  # while memory is measured
            return output.fill_(0)
        for index, part in enumerate(step.parts):
            tokens = part.tokens()
            queries = query[tokens].unflatten(0, (-1, part.length)).transpose(1, 2)
            if self.attn_type == AttentionType.ENCODER_ONLY:
                own = slice(part.start, part.start + (part.last - part.first) * part.new)
                keys, values = (one[own].unflatten(0, (-1, part.new)).transpose(1, 2) for one in (key, value))
            else:
                keys, values = self._gathered(layer, kv_cache, step, part, query.dtype)
            found = self._attend(queries, keys, values, step, index)
            output[tokens] = found.transpose(1, 2).flatten(0, 1).view_as(output[tokens])
        return output

    def _gathered(
        self, layer: Any, cache: torch.Tensor, step: Step, part: Part, dtype: torch.dtype
    ) -> tuple[torch.Tensor, ...]:
        """Keys and values of a part's requests, (requests, heads, keys, head size) each."""
        pages = cache.transpose(1, 2)[step.table[part.first : part.last, : part.pages]].flatten(1, 2).transpose(1, 2)
        kind = FLOAT8.get(self.kv_cache_dtype)
        keys, values = (pages if kind is None else pages.view(kind)).to(dtype).split(self.head_size, -1)
        return (keys, values) if kind is None else (keys * layer._k_scale.to(dtype), values * layer._v_scale.to(dtype))

    def _attend(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, step: Step, index: int
    ) -> torch.Tensor:
        mask, grouped = step.mask(index, self.window, keys.shape[2]), self.num_heads != self.num_kv_heads
        if not self.cap and self.slopes is None:
            return F.scaled_dot_product_attention(
                queries, keys, values, attn_mask=mask, scale=self.scale, enable_gqa=grouped
            )
        if grouped:
            keys, values = (one.repeat_interleave(self.num_heads // self.num_kv_heads, 1) for one in (keys, values))
        scores = (queries @ keys.transpose(-1, -2)).float() * self.scale
        if self.cap:
            scores = torch.tanh(scores / self.cap) * self.cap
        if self.slopes is not None:
            at = step.positions(step.parts[index])[:, None, :, None]
            scores += self.slopes[:, None, None] * (torch.arange(keys.shape[2], device=at.device) - at)
        scores.masked_fill_(~mask, float("-inf"))
        return scores.softmax(-1).to(values.dtype) @ values
