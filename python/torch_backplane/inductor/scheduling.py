"""Hands Inductor's fused nodes to :class:`GroupKernel`, and its kernels to the module that Inductor writes.

A private class of torch stands behind it: ``SIMDScheduling``; tried on torch 2.11, 2.12, 2.13 and 2.15.
"""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch._inductor import config
from torch._inductor.codegen.common import BackendFeature
from torch._inductor.codegen.simd import SIMDScheduling
from torch._inductor.utils import get_fused_kernel_name, get_kernel_metadata
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

from torch_backplane import _backend
from torch_backplane.inductor import report
from torch_backplane.inductor.eager_calls import require_kernels
from torch_backplane.inductor.kernel import GroupKernel

# Of a kernel: a launch takes 64 tensors, the report among them, and 1024 bytes (generated_kernel.cpp).
MOST_BUFFERS = 60


class GroupScheduling(SIMDScheduling):
    """Of the device; what becomes a kernel needs ``bp.compiler`` and ``bp.module``."""

    kernel_type: type[Any] = GroupKernel
    keeps_buffers = False

    @classmethod
    def get_backend_features(cls, device: torch.device) -> OrderedSet[BackendFeature]:
        return OrderedSet(
            [
                BackendFeature.INPLACE_BUFFERS,
                BackendFeature.MASKED_SCATTER_WITH_INDEX,
                BackendFeature.REDUCE_TO_SINGLE_ELEMENT,
                BackendFeature.SCAN,
                BackendFeature.TUPLE_REDUCTION,
            ]
        )

    def can_fuse(self, node1: Any, node2: Any) -> bool:
        """As long as a launch takes all buffers. What joins a product follows it, and walks over its axes."""
        scheduler: Any = self.scheduler
        if scheduler.fusion_prevent_too_many_reads_and_writes(node1, node2, MOST_BUFFERS):
            return False
        if node2.is_template() or not super().can_fuse(node1, node2):
            return False
        product = node1.get_template_node()
        if product is None:
            return True
        axes = [*product.get_size(), sympy.S.One]
        return all(GroupKernel.is_compatible(axes, node.get_ranges()) for node in node2.get_nodes())

    can_fuse_vertical = can_fuse_horizontal = can_fuse

    def codegen_combo_kernel(self, combo_kernel_node: Any) -> None:
        """With ``config.combo_kernels``: one kernel after another; torch's own one is Triton's."""
        self.keeps_buffers = True
        for node in combo_kernel_node.get_subkernel_nodes():
            self.codegen_node(node)
        self.keeps_buffers = False
        self.free_buffers_in_scheduler()

    def free_buffers_in_scheduler(self) -> None:
        """What was used last; of several kernels that the scheduler takes for one, after all of them."""
        if not self.keeps_buffers:
            super().free_buffers_in_scheduler()

    def codegen_node_schedule(self, kernel_features: Any) -> None:
        """Of kernels. Axes stay apart where operands are laid out along them: a remainder in a place is no vector's."""
        require_kernels()
        with config.patch({"triton.prefer_nd_tiling": True}):
            super().codegen_node_schedule(kernel_features)

    def define_kernel(self, src_code: str, node_schedule: Any, kernel: Any) -> str:
        """Writes the kernel into the module, once for equal texts; gives its name."""
        wrapper: Any = V.graph.wrapper_code
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
        if collector := report.current():
            collector.kernel(V.graph, name, node_schedule)
        origins, details = get_kernel_metadata(node_schedule, wrapper)
        if V.graph.cpp_wrapper:
            wrapper.define_dialect_kernel(name, kernel.text, kernel.facts, f"{origins}\n{details}")
        else:
            wrapper.define_kernel(name, src_code.replace("{name}", name, 1), f"{origins}\n{details}", gpu=False)
        return name
