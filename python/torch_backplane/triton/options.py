"""What a launch of a Triton kernel may set beside its arguments."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields, make_dataclass
from functools import cache
from typing import Any

from torch_backplane import compiler


@dataclass(frozen=True)
class _Known:
    """Those that are read here, or by Triton of any backend."""

    num_warps: int = 4
    num_ctas: int = 1
    num_stages: int = 2
    warp_size: int = 1
    extern_libs: Any = None
    debug: bool = False
    sanitize_overflow: bool = False
    arch: str | None = None
    supported_fp8_dtypes: tuple[str, ...] = ("fp8e4nv", "fp8e5", "fp8e4b8", "fp8e5b16")
    deprecated_fp8_dot_operand_dtypes: tuple[str, ...] = ()
    default_dot_input_precision: str = "ieee"
    allowed_dot_input_precisions: tuple[str, ...] = ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6")
    max_num_imprecise_acc_default: int = 0
    enable_fp_fusion: bool = True
    launch_cooperative_grid: bool = False
    launch_pdl: bool = False
    cluster_dims: tuple[int, ...] = (1, 1, 1)
    ir_override: str | None = None
    backend_name: str = "backplane"
    items: int = field(default=1)
    """Of a group: the target's."""

    def hash(self) -> str:
        """For Triton's cache."""
        return hashlib.sha256(repr(self).encode()).hexdigest()


@cache
def _options() -> type[_Known]:
    """With the options of this Triton's own backends, which users' kernels and Triton itself name."""
    from triton.backends.amd.compiler import HIPOptions
    from triton.backends.nvidia.compiler import CUDAOptions

    known = {one.name for one in fields(_Known)}
    more = {one.name: one for theirs in (CUDAOptions, HIPOptions) for one in fields(theirs) if one.name not in known}
    added = [(name, Any, field(default=None)) for name in more]
    return make_dataclass("Options", added, bases=(_Known,), frozen=True)


def parse(given: dict[str, Any], arch: str) -> _Known:
    """The options of a launch. Those of other chips are accepted, and have no effect."""
    kind = _options()
    known = {one.name for one in fields(kind)}
    chosen = {name: value for name, value in given.items() if name in known and value is not None}
    return kind(**{**chosen, "arch": arch, "items": compiler.target().group_size, "warp_size": 1})
