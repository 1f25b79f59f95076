"""Hands Inductor's fused nodes to :class:`GroupKernel`, and its kernels to the module that Inductor writes."""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor import config
from torch._inductor.codegen.common import BackendFeature
from torch._inductor.codegen.simd import SIMDScheduling
from torch._inductor.utils import get_fused_kernel_name, get_kernel_metadata
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

from torch_backplane import _backend
from torch_backplane.inductor.kernel import GroupKernel


class GroupScheduling(SIMDScheduling):
    """Of a device with ``bp.compiler`` and ``bp.module``."""

    kernel_type: type[Any] = GroupKernel

    @classmethod
    def get_backend_features(cls, device: torch.device) -> OrderedSet[BackendFeature]:
        return OrderedSet(
            [
                BackendFeature.INPLACE_BUFFERS,
                BackendFeature.MASKED_SCATTER_WITH_INDEX,
                BackendFeature.REDUCE_TO_SINGLE_ELEMENT,
                BackendFeature.TUPLE_REDUCTION,
            ]
        )

    def codegen_node_schedule(self, kernel_features: Any) -> None:
        """Axes stay apart where operands are laid out along them: a remainder in a place is no vector's."""
        with config.patch({"triton.prefer_nd_tiling": True}):
            super().codegen_node_schedule(kernel_features)

    def define_kernel(self, src_code: str, node_schedule: Any, kernel: Any) -> str:
        """Writes the kernel into the module, once for equal texts; gives its name."""
        wrapper = V.graph.wrapper_code
        known: str | None = wrapper.src_to_kernel.get(src_code)
        if known is not None:
            return known
        what = (
            get_fused_kernel_name(node_schedule, config.triton.descriptive_names)
            if config.triton.descriptive_names
            else ""
        )
        name = "_".join(part for part in (_backend.device, what, wrapper.next_kernel_suffix()) if part)
        wrapper.src_to_kernel[src_code] = name
        origins, details = get_kernel_metadata(node_schedule, wrapper)
        wrapper.define_kernel(name, src_code.replace("{name}", name, 1), f"{origins}\n{details}", gpu=False)
        return name
