"""Makes kernels of Inductor's fused nodes by :class:`GroupKernel`, and writes them into Inductor's module.

Uses a private class of torch, ``SIMDScheduling``; tested on torch 2.11, 2.12, 2.13 and 2.15.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch._inductor import config, ir
from torch._inductor.codegen.common import BackendFeature
from torch._inductor.codegen.simd import SIMDScheduling
from torch._inductor.utils import get_fused_kernel_name, get_kernel_metadata
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

from torch_backplane import _backend, compiler
from torch_backplane.compat import inductor
from torch_backplane.inductor import language, observer
from torch_backplane.inductor.combined import MOST_BUFFERS, PartKernel, launches
from torch_backplane.inductor.kernel import GroupKernel
from torch_backplane.inductor.triton_code import DeviceTritonScheduling

# With fewer cores, one kernel finishes a long row before a second one could combine results of its parts.
MANY_CORES = 8


def require_kernels() -> None:
    """Raise NotImplementedError if kernels cannot be compiled."""
    if lacks := language.why_none():
        raise NotImplementedError(
            f"torch.compile cannot generate code for {_backend.device}: {lacks}. Compile with "
            'backend="aot_eager" or backend="eager", which run on the device\'s kernels, or omit torch.compile'
        )


def splits_reductions(device: torch.device) -> bool:
    """Whether several groups share a long row, and a second kernel combines their results."""
    if not compiler.has_target():
        return False
    properties = getattr(torch, device.type).get_device_properties(device)
    return compiler.target(device.index or 0).group_size > 1 or properties.multi_processor_count >= MANY_CORES


def _sums_into_what_is_read(reader: Any, writer: Any) -> bool:
    """Whether a node adds to places of memory that another one reads before it.

    Inductor fuses the two where both places are one, which another lane of the kernel may have added to.
    """
    if all(getattr(dep, "mode", None) != "atomic_add" for dep in writer.read_writes.writes):
        return False
    written = {name for output in writer.get_outputs() for name in output.get_mutations()}
    return not written.isdisjoint(dep.name for dep in reader.read_writes.reads)


def _is_of_triton(node: Any) -> bool:
    return node.is_template() and isinstance(node.get_template_node(), ir.TritonTemplateBuffer)


class GroupScheduling(SIMDScheduling):
    """The scheduling of the device; kernels need ``bp.compiler`` and ``bp.module``, torch's own templates Triton."""

    kernel_type: type[Any] = GroupKernel
    keeps_buffers = False
    parts: dict[PartKernel, Any] | None = None  # of combined launches in progress, with their nodes

    def __init__(self, scheduler: Any) -> None:
        super().__init__(scheduler)
        if scheduler is not None:  # otherwise only its features are queried
            inductor.leave_out(scheduler)
        self._triton = DeviceTritonScheduling(None)
        self._triton.scheduler = scheduler

    @classmethod
    def get_backend_features(cls, device: torch.device) -> OrderedSet[BackendFeature]:
        features = [
            BackendFeature.FOREACH,
            BackendFeature.INPLACE_BUFFERS,
            BackendFeature.MASKED_SCATTER_WITH_INDEX,
            BackendFeature.SCAN,
            BackendFeature.TUPLE_REDUCTION,
        ]
        if not splits_reductions(device):
            features.append(BackendFeature.REDUCE_TO_SINGLE_ELEMENT)
        return OrderedSet(features)

    def can_fuse(self, node1: Any, node2: Any) -> bool:
        """Within the limits of a launch. Only later nodes over the same axes are fused with a product."""
        scheduler: Any = self.scheduler
        if node1.is_foreach() or node2.is_foreach():  # their pairs are queried one by one
            return bool(super().can_fuse(node1, node2))
        if _is_of_triton(node1):
            return not node2.is_template() and self._triton.can_fuse(node1, node2)
        if scheduler.fusion_prevent_too_many_reads_and_writes(node1, node2, MOST_BUFFERS):
            return False
        if node2.is_template() or not super().can_fuse(node1, node2) or _sums_into_what_is_read(node1, node2):
            return False
        product = node1.get_template_node()
        if product is None:
            return True
        axes = [*product.get_size(), sympy.S.One]
        return all(GroupKernel.is_compatible(axes, node.get_ranges()) for node in node2.get_nodes())

    can_fuse_vertical = can_fuse_horizontal = can_fuse

    def codegen_template(self, template_node: Any, *nodes: Any, **how: Any) -> str | None:
        """A product of tiles, or a template of Triton."""
        if _is_of_triton(template_node):
            return self._triton.codegen_template(template_node, *nodes, **how)
        return super().codegen_template(template_node, *nodes, **how)

    def codegen_combo_kernel(self, combo_kernel_node: Any) -> None:
        """Independent nodes, in as few launches as the limits of a launch allow."""
        nodes = combo_kernel_node.get_subkernel_nodes()
        self.keeps_buffers = True
        if config.generate_intermediate_hooks or config.cpp.enable_kernel_profile:  # they apply to each kernel
            for node in nodes:
                self.codegen_node(node)
        else:
            self._codegen_together(nodes)
        self.keeps_buffers = False
        self.free_buffers_in_scheduler()

    def _codegen_together(self, nodes: Sequence[Any]) -> None:
        parts = self.parts = {}
        for node in nodes:
            self.codegen_node(node)
        self.parts = None
        for kernel in launches(parts):
            code = kernel.codegen_kernel()
            name = self.define_kernel(code, [node for part in kernel.parts for node in parts[part]], kernel)
            kernel.call_kernel(name)
            if config.nan_asserts:
                kernel.codegen_nan_check()

    def create_kernel_choices(self, kernel_features: Any, kernel_args: Any, kernel_kwargs: Any) -> list[Any]:
        """A kernel, or a part of one."""
        kind = GroupKernel if self.parts is None else PartKernel
        return [kind(*kernel_args, **kernel_kwargs)]

    def free_buffers_in_scheduler(self) -> None:
        """Free buffers after their last use; for several kernels of one scheduler node, after all of them."""
        if not self.keeps_buffers:
            super().free_buffers_in_scheduler()

    def codegen_node_schedule(self, kernel_features: Any) -> None:
        """Keep axes apart along which operands are contiguous: a remainder in a place prevents vectors."""
        require_kernels()
        with config.patch({"triton.prefer_nd_tiling": True}):
            super().codegen_node_schedule(kernel_features)

    def define_kernel(self, src_code: str, node_schedule: Any, kernel: Any) -> str:
        """Write the kernel into the module, once for equal texts, and return its name. A part waits for the others."""
        if self.parts is not None:
            self.parts[kernel] = node_schedule
            return ""
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
        if seen_by := observer.current():
            seen_by.kernel(V.graph, name, node_schedule)
        origins, details = get_kernel_metadata(node_schedule, wrapper)
        if V.graph.cpp_wrapper:
            wrapper.define_dialect_kernel(name, kernel.text, f"{origins}\n{details}", **kernel.facts)
        else:
            wrapper.define_kernel(name, src_code.replace("{name}", name, 1), f"{origins}\n{details}", gpu=False)
        return name
