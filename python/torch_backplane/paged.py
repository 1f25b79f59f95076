"""Attention over a cache of keys and values in pages, and writing to the cache, for programs that serve models.

``torch.ops.backplane.paged_attention`` and ``paged_write``: docs/operators.md. On a device whose driver compiles, each
is one portable kernel (kernels/portable/nn/paged.cpp). Elsewhere, and for operands that those do not support, they are
the compositions of torch's operators here, which read lengths on the host.
"""

from __future__ import annotations

from typing import Any

import torch

LIMIT = 1 << 25
"""The most scores that the composition computes at a time."""

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
MOST = {torch.int8: 127.0, **{one: torch.finfo(one).max for one in FLOAT8}}
"""The largest number of an element of 8 bits."""

_library = torch.library.Library("backplane", "FRAGMENT")


def _need(is_right: bool, what: str, found: object) -> None:
    if not is_right:
        raise ValueError(f"{what}, found {found}")


def _need_tensor(
    name: str, tensor: torch.Tensor, shape: tuple[int | None, ...], dtypes: tuple[torch.dtype, ...]
) -> None:
    is_right = tensor.dtype in dtypes and tensor.dim() == len(shape)
    for wanted, size in zip(shape, tensor.shape, strict=False):
        is_right = is_right and (wanted is None or wanted == size)
    sizes = ", ".join("any" if one is None else str(one) for one in shape)
    kinds = " or ".join(str(one).removeprefix("torch.") for one in dtypes)
    _need(is_right, f"{name} must be ({sizes}) of {kinds}", f"{tuple(tensor.shape)} of {tensor.dtype}")


def _check_cache(key_cache: torch.Tensor, value_cache: torch.Tensor, size: int) -> None:
    _need_tensor("key_cache", key_cache, (None, None, None, size), (*FLOATS, *MOST))
    _need_tensor("value_cache", value_cache, tuple(key_cache.shape), (key_cache.dtype,))


def _check_scales(cache: torch.Tensor, k_scale: torch.Tensor | None, v_scale: torch.Tensor | None) -> None:
    if _are_of_rows(k_scale, v_scale):
        _need(cache.dtype in MOST, "scales of rows need a cache of 8 bits", cache.dtype)
        for name, one in {"k_scale": k_scale, "v_scale": v_scale}.items():
            _need(one is not None, "k_scale and v_scale must both be of rows", f"no {name}")
            _need_tensor(name, one, tuple(cache.shape[:3]), (torch.float32,))  # type: ignore[arg-type]
    else:
        _need(cache.dtype != torch.int8, "a cache of int8 needs a k_scale and a v_scale of rows", k_scale)
        _check_numbers(1, k_scale=k_scale, v_scale=v_scale)


def _are_of_rows(*scales: torch.Tensor | None) -> bool:
    return any(one is not None and one.dim() == 3 for one in scales)


def _check_numbers(count: int, **numbers: torch.Tensor | None) -> None:
    for name, one in numbers.items():
        if one is not None:
            _need(one.numel() == count and one.is_floating_point(), f"{name} must be {count} floats", tuple(one.shape))


def _check_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    out: torch.Tensor,
    *,
    scale: float,
    max_query_len: int,
    causal: bool = True,
    window: int = 0,
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> None:
    integers = (torch.int32, torch.int64)
    _need_tensor("query", query, (None, None, None), FLOATS)
    _need_tensor("out", out, tuple(query.shape), FLOATS)
    _check_cache(key_cache, value_cache, query.shape[2])
    heads, shared = query.shape[1], key_cache.shape[2]
    _need(
        shared > 0 and heads % shared == 0, f"the heads of query must be a multiple of the {shared} of a cache", heads
    )
    _need_tensor("seq_lens", seq_lens, (None,), integers)
    _need_tensor("block_table", block_table, (seq_lens.shape[0], None), integers)
    _need_tensor("query_starts", query_starts, (seq_lens.shape[0] + 1,), integers)
    _need(window >= 0, "window must be 0, for none, or more", window)
    _need(softcap >= 0, "softcap must be 0, for none, or more", softcap)
    _check_numbers(heads, sinks=sinks, alibi_slopes=alibi_slopes)
    _check_scales(key_cache, k_scale, v_scale)


def _check_write(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slots: torch.Tensor,
    *,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> None:
    _need_tensor("key", key, (None, None, None), FLOATS)
    _check_cache(key_cache, value_cache, key.shape[2])
    _need_tensor("key", key, (None, key_cache.shape[2], None), FLOATS)
    _need_tensor("value", value, tuple(key.shape), (key.dtype,))
    _need_tensor("slots", slots, (None,), (torch.int32, torch.int64))
    _need(slots.shape[0] <= key.shape[0], f"slots must be at most {key.shape[0]}, one for each row", slots.shape[0])
    _check_scales(key_cache, k_scale, v_scale)


def _attend(*operands: torch.Tensor, **options: Any) -> None:
    """Request by request, in pieces of its queries."""
    _check_attention(*operands, **options)
    query, key_cache, value_cache, block_table, seq_lens, query_starts, out = operands
    scales = options.pop("k_scale", None), options.pop("v_scale", None)
    slots, starts = block_table.shape[1] * key_cache.shape[1], query_starts.tolist()
    for request, (seen, start, stop) in enumerate(zip(seq_lens.tolist(), starts, starts[1:], strict=False)):
        if not (0 <= seen <= slots and 0 <= start <= stop <= query.shape[0]):
            raise IndexError(
                f"paged_attention: request {request} has {seen} keys in {slots} slots, and the queries {start} to "
                f"{stop} of {query.shape[0]}"
            )
        pages = block_table[request, : -(-seen // key_cache.shape[1])]
        caches = zip((key_cache, value_cache), scales, strict=True)
        keys, values = (_lines(cache, scale, pages, seen) for cache, scale in caches)
        piece = max(1, LIMIT // max(1, query.shape[1] * seen))
        for first in range(start, stop, piece):
            rows = slice(first, min(first + piece, stop))
            places = torch.arange(rows.start, rows.stop, device=query.device) - stop + seen
            out[rows] = _attended(query[rows].float(), keys, values, places, **options).to(out.dtype)


def _lines(cache: torch.Tensor, scale: torch.Tensor | None, pages: torch.Tensor, count: int) -> torch.Tensor:
    """The first ``count`` of a request's keys or values, (heads, count, size) in float32."""
    is_wide = cache.dtype not in FLOAT8
    found = (cache if is_wide else cache.view(torch.uint8)).index_select(0, pages)
    found = (found if is_wide else found.view(cache.dtype)).float()
    if scale is not None:
        found = found * (scale.index_select(0, pages)[..., None] if _are_of_rows(scale) else scale.float())
    return found.flatten(0, 1)[:count].transpose(0, 1)


def _attended(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    places: torch.Tensor,
    *,
    scale: float,
    max_query_len: int = 0,
    causal: bool = True,
    window: int = 0,
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
) -> torch.Tensor:
    """Queries (queries, heads, size) at these places among the keys."""
    queries = query.transpose(0, 1).unflatten(0, (keys.shape[0], -1)) * scale  # (heads of the cache, sharing, ...)
    scores = (queries @ keys[:, None].transpose(-1, -2)).flatten(0, 1)  # (heads, queries, keys)
    if softcap:
        scores = torch.tanh(scores / softcap) * softcap
    away = torch.arange(keys.shape[1], device=query.device) - places[:, None]
    if alibi_slopes is not None:
        scores = scores + alibi_slopes.float().view(-1, 1, 1) * away
    hidden = away > 0 if causal else torch.zeros_like(away, dtype=torch.bool)
    if window:
        hidden = hidden | (away >= window) | (away <= -window)
    scores = scores.masked_fill(hidden, float("-inf"))
    if sinks is not None:  # a key of value 0
        scores = torch.cat([scores, sinks.float().view(-1, 1, 1).expand(*scores.shape[:2], 1)], -1)
    weights = torch._safe_softmax(scores, -1)[..., : keys.shape[1]]
    return (weights.unflatten(0, (keys.shape[0], -1)) @ values[:, None]).flatten(0, 1).transpose(0, 1)


def _write(*operands: torch.Tensor, k_scale: torch.Tensor | None = None, v_scale: torch.Tensor | None = None) -> None:
    _check_write(*operands, k_scale=k_scale, v_scale=v_scale)
    key, value, key_cache, value_cache, slots = operands
    kept = slots != -1
    pages, places = slots[kept] // key_cache.shape[1], slots[kept] % key_cache.shape[1]
    for rows, cache, scale in ((key, key_cache, k_scale), (value, value_cache, v_scale)):
        found, most = rows[: slots.shape[0]][kept], MOST.get(cache.dtype, torch.inf)
        if scale is not None and _are_of_rows(scale):  # that of a row that is not finite is infinite: it reads as NaN
            largest = found.float().abs().nan_to_num(torch.inf, torch.inf).amax(-1, keepdim=True) / most
            scale.index_put_((pages, places), largest[..., 0])
            found = torch.where((largest > 0) & (largest < torch.inf), found.float() / largest, 0)
        elif scale is not None:
            found = found.float() / scale.float()
        if cache.dtype in MOST:
            found = (found if cache.dtype in FLOAT8 else found.round()).clamp(-most, most).to(cache.dtype)
        if cache.dtype in FLOAT8:
            found, cache = found.view(torch.uint8), cache.view(torch.uint8)
        cache.index_put_((pages, places), found.to(cache.dtype))


_library.impl("paged_attention", _attend, "CompositeExplicitAutograd")
_library.impl("paged_write", _write, "CompositeExplicitAutograd")
_library.impl("paged_attention", _check_attention, "Meta")
_library.impl("paged_write", _check_write, "Meta")
