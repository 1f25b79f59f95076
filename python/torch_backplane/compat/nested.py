"""Attention of jagged nested tensors: torch only uses fused kernels on CUDA, and has no others for ``is_causal``."""

from __future__ import annotations

from typing import Any

from torch.nn.attention import SDPBackend

from torch_backplane.compat import replaces
from torch_backplane.imports import after_import


def install(name: str) -> None:
    """Let the device's memory-efficient attention (backend/aten/varlen_attention.cpp) compute what CUDA's does.

    Seen on 2.11 to 2.15; unnecessary once torch asks the device for its choice, as it does for dense tensors.
    """
    after_import("torch.nested._internal.sdpa", lambda: _choose_fused(name))


def _choose_fused(name: str) -> None:
    from torch.nested._internal import sdpa

    fits = getattr(sdpa, "_can_use_efficient_sdpa_jagged", None)

    @replaces(sdpa, "_select_sdp_backend")
    def select(choose: Any, query: Any, key: Any, value: Any, attn_mask: Any, *rest: Any) -> Any:
        enabled = sdpa.flash_sdp_enabled() or sdpa.mem_efficient_sdp_enabled() or sdpa.cudnn_sdp_enabled()
        if enabled and fits is not None and query.device.type == name and attn_mask is None:
            params = sdpa.SDPAParams(query, key, value, attn_mask, *rest)
            if fits(params):
                return SDPBackend.EFFICIENT_ATTENTION
        return choose(query, key, value, attn_mask, *rest)
