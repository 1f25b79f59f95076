"""Which calls of flex_attention are torch's Triton templates, and with which blocks; the others are the formula.

A template visits only the blocks that the block mask names, and its memory use does not grow with the scores.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor import config
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import guard_or_false

from torch_backplane import _backend, compiler
from torch_backplane.inductor import triton

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
LEAST = 16
"""The smallest head and block of torch's templates."""

# Blocks of queries and keys, for groups of one item and of several: the forward, the gradients of keys and values, and
# the gradient of queries.
BLOCKS = {"fwd": ("M", "N"), "bwd": ("M1", "N1", "M2", "N2")}
_SIZES = {"M": 64, "N": 64, "M1": 32, "N1": 64, "M2": 64, "N2": 32}
_SIZES_OF_GROUPS = {"M": 32, "N": 32, "M1": 16, "N1": 32, "M2": 32, "N2": 16}


def options_of(node: Any, given: dict[str, Any], block_mask: Any) -> dict[str, Any] | None:
    """The template's options for a call with these options, or None if the formula computes it."""
    backend = given.get("BACKEND", "AUTO")
    why = why_none(node, block_mask)
    if backend not in ("AUTO", "TRITON") or (why and backend != "AUTO"):
        raise NotImplementedError(
            f'flex_attention was asked for BACKEND="{backend}", which {_backend.device} does not support'
            f"{' for this call: ' + why if backend == 'TRITON' else ''}. Leave BACKEND out of kernel_options"
        )
    if why:
        return None
    chosen = dict(given)
    # The kernel for short queries asks CUDA for the number of its multiprocessors.
    chosen["FORCE_USE_FLEX_ATTENTION"] = True
    group_size = compiler.target(node.args[0].meta["val"].device.index or 0).group_size
    if config.max_autotune and group_size == 1:
        return chosen  # torch measures its own list of blocks, which need more local memory than a group has
    sizes = _SIZES if group_size == 1 else _SIZES_OF_GROUPS
    limits = dict(zip("MN", _block_sizes(block_mask), strict=True))
    for prefix, names in BLOCKS.items():
        for name in names:
            size = sizes[name]
            while limits[name[0]] % size:
                size //= 2
            if f"BLOCK_{name}" not in given:
                chosen.setdefault(f"{prefix}_BLOCK_{name}", size)
    return chosen


def _block_sizes(block_mask: Any) -> tuple[int, ...]:
    """Of queries and of keys; of a symbol, the value that the templates guard."""
    return tuple(int(one.meta["val"] if isinstance(one, Node) else one) for one in block_mask[-3:-1])


def why_none(node: Any, block_mask: Any) -> str:
    """Why a call is no template; "" if it is one."""
    query, key, value = (one.meta["val"] for one in node.args[:3])
    if config.cpp_wrapper:
        return "torch._inductor.config.cpp_wrapper"
    if why := triton.why_none():
        return why
    if query.dtype not in DTYPES or not query.dtype == key.dtype == value.dtype:
        return f"dtypes {query.dtype}, {key.dtype}, {value.dtype}"
    if any(not isinstance(one.shape[-1], int) or one.shape[-1] < LEAST for one in (query, value)):
        return f"heads of {query.shape[-1]} and {value.shape[-1]} elements; {LEAST} is the least"
    if any(size % LEAST for size in _block_sizes(block_mask)):
        return f"a block mask with blocks of {_block_sizes(block_mask)}, which {LEAST} does not divide"
    if any(guard_or_false(one.numel() == 0) for one in (query, key)):
        return "no elements"
    return ""
