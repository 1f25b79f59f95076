"""Attention of jagged nested tensors: torch takes fused kernels on CUDA alone, and has no others for ``is_causal``."""

from __future__ import annotations

from typing import Any

from torch.nested._internal import sdpa
from torch.nn.attention import SDPBackend


def install(name: str) -> None:
    """Let the device's memory-efficient attention (backend/aten/varlen_attention.cpp) compute what CUDA's does.

    Seen on 2.11 to 2.15; unnecessary once torch asks the device for its choice, as it does for dense tensors. Where
    torch has no such function any more, its own choice stands.
    """
    choose = getattr(sdpa, "_select_sdp_backend", None)
    fits = getattr(sdpa, "_can_use_efficient_sdpa_jagged", None)
    if choose is None or fits is None or choose.__module__ == __name__:
        return

    def select(query: Any, key: Any, value: Any, attn_mask: Any, dropout: Any, is_causal: Any, enable_gqa: Any) -> Any:
        if query.device.type == name and attn_mask is None and _is_fused_enabled():
            params = sdpa.SDPAParams(query, key, value, attn_mask, dropout, is_causal, enable_gqa)
            if fits(params):
                return SDPBackend.EFFICIENT_ATTENTION
        return choose(query, key, value, attn_mask, dropout, is_causal, enable_gqa)

    sdpa._select_sdp_backend = select


def _is_fused_enabled() -> bool:
    return bool(sdpa.flash_sdp_enabled() or sdpa.mem_efficient_sdp_enabled() or sdpa.cudnn_sdp_enabled())
