"""Decomposition of flex_attention in a graph: scores, their modification, the mask, softmax and two products.

Without Triton, and for calls that torch's templates do not compute (attention_template.py), torch's formulas
(``sdpa_dense``, which eager calls run) are traced into the graph before Inductor lowers it, and Inductor fuses the
operators between the products. Memory use is proportional to the scores, and blocks that a mask excludes are computed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch._higher_order_ops.flex_attention import (
    flex_attention,
    flex_attention_backward,
    sdpa_dense,
    sdpa_dense_backward,
)
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes.post_grad import remove_noop_ops
from torch._inductor.virtualized import V
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from torch_backplane import _backend
from torch_backplane.inductor import attention_template

_ORIGIN = ("original_aten", "stack_trace")  # for names of kernels and for errors


def decompose(gm: GraphModule) -> None:
    """Replace by the formula each call on this device that is no template."""
    calls = {flex_attention: sdpa_dense, flex_attention_backward: _backward}
    options = {flex_attention: 6, flex_attention_backward: 11}  # positions of kernel_options, behind block_mask, scale
    found = [node for node in gm.graph.nodes if node.op == "call_function" and node.target in calls]
    found = [node for node in found if node.args[0].meta["val"].device.type == _backend.device]
    for node in found:
        at = options[node.target]
        chosen = attention_template.options_of(node, node.args[at], node.args[at - 2])
        if chosen is None:
            _inline(gm, node, calls[node.target])
        else:
            node.update_arg(at, chosen)
    if found:
        gm.graph.eliminate_dead_code()
        gm.recompile()


def _backward(*args: Any) -> Any:
    """The formula; captured tensors require a gradient if torch's graph computes it, as fake tensors do not show."""
    joint, captured = args[8], list(args[12])
    has_gradient = joint.graph.output_node().args[0][5:]
    for i, (one, gradient) in enumerate(zip(captured, has_gradient, strict=True)):
        if isinstance(one, torch.Tensor) and gradient is not None:
            captured[i] = one.detach().requires_grad_()
    with torch.no_grad():
        return sdpa_dense_backward(*(*args[:12], tuple(captured), *args[13:]))


def _inline(gm: GraphModule, node: Node, formula: Callable[..., Any]) -> None:
    flat, spec = pytree.tree_flatten(node.args)
    nodes = list(dict.fromkeys(one for one in flat if isinstance(one, Node)))
    graphs = {one: getattr(gm, str(one.target)) for one in nodes if one.op == "get_attr"}
    graphs = {one: graph for one, graph in graphs.items() if isinstance(graph, GraphModule)}
    inputs = [one for one in nodes if one not in graphs]
    promised = node.meta["val"]

    def call(*values: Any) -> Any:
        known = {**graphs, **dict(zip(inputs, values, strict=True))}
        operands = [known[one] if isinstance(one, Node) else one for one in flat]
        # even with float64 operands, a graph keeps the logarithms of sums in float32
        results = formula(*pytree.tree_unflatten(operands, spec))
        return pytree.tree_map(lambda one, like: None if one is None else one.to(like.dtype), results, promised)

    with V.fake_mode:
        traced = make_fx(call, select_decomp_table())(*[one.meta["val"] for one in inputs])
    _drop_copies(traced)
    remove_noop_ops(traced.graph)
    _replace(gm, node, traced, inputs)


def _name(node: Node) -> str:
    name: str = node.target._schema.name  # type: ignore[union-attr]
    return name.split("::")[1]


def _drop_copies(traced: GraphModule) -> None:
    """Remove the formulas' final copies to tensors of eager's layout; Inductor chooses its own layout."""
    new = {"empty", "new_empty", "new_empty_strided", "empty_strided", "convert_element_type"}
    for node in traced.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default):
        to, value = node.args
        made = to
        while _name(made) == "as_strided":
            made = made.args[0]
        if _name(made) not in new:
            raise AssertionError(f"the formula of attention writes into {to}, which it has not created")
        with traced.graph.inserting_before(node):
            dtype = to.meta["val"].dtype
            same = traced.graph.call_function(torch.ops.prims.convert_element_type.default, (value, dtype))
        same.meta = dict(node.meta)
        node.replace_all_uses_with(same)
        traced.graph.erase_node(node)


def _replace(gm: GraphModule, node: Node, traced: GraphModule, inputs: list[Node]) -> None:
    known = dict(zip(traced.graph.find_nodes(op="placeholder"), inputs, strict=True))
    with gm.graph.inserting_before(node):
        for one in traced.graph.nodes:
            if one.op == "get_attr":
                known[one] = _number(gm, getattr(traced, one.target), one)
            elif one.op not in ("placeholder", "output"):
                known[one] = gm.graph.node_copy(one, known.__getitem__)
                known[one].meta.update({key: node.meta[key] for key in _ORIGIN if key in node.meta})
    results = torch.fx.map_arg(traced.graph.output_node().args[0], known.__getitem__)
    _give(gm, node, results)


def _give(gm: GraphModule, node: Node, results: Any) -> None:
    """Replace users of parts of a tuple by its members."""
    for user in list(node.users):
        if user.target is not operator.getitem:
            raise AssertionError(f"{user} uses all results of {node} as one")
        part = results[user.args[1]]
        if isinstance(part, Node):
            user.replace_all_uses_with(part)
            gm.graph.erase_node(user)
        else:
            _give(gm, user, part)
    gm.graph.erase_node(node)


def _number(gm: GraphModule, value: torch.Tensor, like: Node) -> Node:
    """A constant tensor of the formula, computed in the graph from its number."""
    if value.dim() != 0:
        raise AssertionError(f"the formula of attention has a constant of shape {tuple(value.shape)}")
    full = torch.ops.aten.full.default
    node = gm.graph.call_function(full, ([], value.item()), {"dtype": value.dtype, "device": value.device})
    node.meta = dict(like.meta)
    return node
