"""Torch's Triton templates of matrix products as further choices of ``max_autotune``, where Triton is installed.

torch offers them for devices of its list of GPUs. Here its template, with its configurations for a product, is added to
the choices of this device, so no list changes. Uses private classes of torch, ``BaseConfigHeuristic`` and
``MMTemplateConfigMixin``; tested on torch 2.13.
"""

from __future__ import annotations

from typing import Any

from torch._inductor import config, ir
from torch._inductor.select_algorithm import ExternKernelCaller, TritonTemplateCaller

from torch_backplane.inductor import triton

# Rows, columns and depth of a block, for groups of one item and of several; torch shrinks them to small products.
_BLOCKS = ((32, 64, 32), (64, 64, 32), (128, 128, 32))
_BLOCKS_OF_GROUPS = ((32, 32, 32), (64, 64, 16))


def why_none() -> str:
    """Why templates are no choices; "" if they are."""
    if why := triton.why_none():
        return why
    if config.cpp_wrapper:
        return "C++ has none"
    return ""


def _configurations(operator: ExternKernelCaller, nodes: list[Any], group_size: int) -> list[dict[str, Any]]:
    """The template's arguments for each size of blocks, by torch's own rules."""
    from torch._inductor.kernel_inputs import MMKernelInputs
    from torch._inductor.template_heuristics import triton as heuristics
    from torch._inductor.template_heuristics.triton_addmm import AddMMConfigMixin

    class Blocks(heuristics.MMTemplateConfigMixin, heuristics.BaseConfigHeuristic):
        def __init__(self) -> None:
            super().__init__()
            sizes = _BLOCKS if group_size == 1 else _BLOCKS_OF_GROUPS
            self.mm_configs = [heuristics.GemmConfig(*size, num_stages=1, num_warps=4) for size in sizes]

    class WithAdded(AddMMConfigMixin, Blocks):
        """Of a product to which a matrix is added."""

    scalars = {name: operator.kwargs.get(name, 1) for name in ("alpha", "beta")} if len(nodes) == 3 else None
    inputs = MMKernelInputs(nodes, scalars=scalars, out_dtype=operator.layout.dtype)
    known = WithAdded() if scalars else Blocks()
    more = known.get_extra_kwargs(inputs, operator.name)
    return [{**more, **one.to_kwargs()} for one in known.get_template_configs(inputs, operator.name)]


def offers(operator: ExternKernelCaller, group_size: int) -> list[TritonTemplateCaller]:
    """Templates for a product that torch's choice computes, a call of ``mm``, ``addmm``, ``bmm`` or ``baddbmm``."""
    from torch._inductor.kernel.bmm import bmm_template
    from torch._inductor.kernel.mm import mm_template

    *added, a, b = operator.input_nodes
    template = bmm_template if len(operator.layout.size) == 3 else mm_template
    size = list(operator.layout.size)
    nodes = [*(ir.ExternKernel.realize_input(ir.ExpandView.create(one, size)) for one in added), a, b]
    found: list[TritonTemplateCaller] = []
    for arguments in _configurations(operator, nodes, group_size):
        template.maybe_append_choice(found, input_nodes=nodes, layout=operator.layout, **arguments)
    return found
