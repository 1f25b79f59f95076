"""Inductor's own Triton code, in place of kernels of the dialect (language.py).

Uses private classes of torch, ``TritonScheduling``, ``TritonKernel`` and ``DeviceCodegen``; tested on torch 2.13.
"""

from __future__ import annotations

from typing import Any

from torch._inductor.codegen import common
from torch._inductor.codegen.triton import TritonKernel, TritonKernelOverrides, TritonScheduling
from torch._inductor.virtualized import V

from torch_backplane import _backend
from torch_backplane.compat import inductor
from torch_backplane.inductor import observer
from torch_backplane.inductor.language import language
from torch_backplane.inductor.random import random_elements


class SequenceOverrides(TritonKernelOverrides):
    """Random numbers by their place in the device's sequence, as in eager mode."""

    @staticmethod
    def rand(seed: Any, offset: Any) -> str:
        return f"triton_random.uniform({seed}, {offset})"

    @staticmethod
    def randn(seed: Any, offset: Any) -> str:
        return f"triton_random.normal({seed}, {offset})"

    @staticmethod
    def randint64(seed: Any, offset: Any, low: Any, high: Any) -> str:
        return f"triton_random.between({seed}, {offset}, {low}, {high})"


class SequenceKernel(TritonKernel):
    """A kernel with these numbers. It imports the backend, which a process that compiles it may not have loaded."""

    overrides = SequenceOverrides

    @classmethod
    def gen_common_triton_imports(cls) -> str:  # type: ignore[override]
        ours = f"import {_backend.package}\nfrom torch_backplane.inductor import triton_random\n"
        return super().gen_common_triton_imports() + ours


def _draws(node: Any) -> bool:
    return any(one.target is random_elements for part in node.get_nodes() for one in part.node.get_origins())


class DeviceTritonScheduling(TritonScheduling):
    """Torch's scheduling of Triton for the device."""

    kernel_type: type[Any] = SequenceKernel

    def __init__(self, scheduler: Any) -> None:
        super().__init__(scheduler)
        if scheduler is not None:  # otherwise only its features are queried
            inductor.leave_out(scheduler)

    def can_fuse(self, node1: Any, node2: Any) -> bool:
        """Random numbers stay out of templates, whose kernels have torch's own."""
        if (node1.is_template() or node2.is_template()) and (_draws(node1) or _draws(node2)):
            return False
        return bool(super().can_fuse(node1, node2))

    can_fuse_vertical = can_fuse_horizontal = can_fuse

    def define_kernel(self, src_code: str, node_schedule: Any, kernel: Any) -> Any:
        known = src_code in V.graph.wrapper_code.src_to_kernel
        name = super().define_kernel(src_code, node_schedule, kernel)
        if (seen_by := observer.current()) and not known:
            seen_by.kernel(V.graph, name, node_schedule)
        return name


class ChosenCodegen(common.DeviceCodegen):
    """The device's classes; torch looks the scheduling up for each graph."""

    @property
    def scheduling(self) -> Any:
        return DeviceTritonScheduling if language() == "triton" else self._of_dialect

    @scheduling.setter
    def scheduling(self, of_dialect: Any) -> None:
        self._of_dialect = of_dialect
