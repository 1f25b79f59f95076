"""Where the driver compiles no kernels, a graph is its operators' calls, one after another: Inductor's lite mode."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from torch_backplane import _backend, compiler
from torch_backplane.inductor import registration


@cache
def _lite() -> dict[str, Any]:
    """Options of the mode in which operators are called as they are; empty where torch has no such mode."""
    from torch._inductor import list_mode_options

    modes: Any = list_mode_options()
    if "lite" not in modes:
        return {}
    return {
        **modes["lite"],
        # Nothing is computed from how a result lies; and torch's fake of an operator may promise a gradient that nobody
        # asked for, as that of attention's bias.
        "size_asserts": False,
        # Else a short constant is a kernel.
        "always_keep_tensor_constants": True,
    }


def options_for(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> dict[str, Any]:
    """Inductor's options for a graph: those of eager calls if it is of the device, which has no kernels."""
    if not _is_of_device(graph, inputs) or registration.is_anothers() or not compiler.why_none():
        return {}
    options = _lite()
    if options:
        _tell()
    return options


def _is_of_device(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Whether a graph of Dynamo's has a tensor of the device."""
    made = [node.meta.get("example_value") for node in graph.graph.nodes]
    return any(isinstance(one, torch.Tensor) and one.device.type == _backend.device for one in (*inputs, *made))


@cache
def _tell() -> None:
    """Once in a process."""
    how = f"torch.compile calls the operators of {_backend.device} one by one, and fuses nothing"
    text = f'{how}: {compiler.why_none()}; backend="aot_eager" runs the same calls without Inductor'
    warnings.warn(text, stacklevel=2)
