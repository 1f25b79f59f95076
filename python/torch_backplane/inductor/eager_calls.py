"""Without kernels that the driver compiles, a graph calls its operators one by one: Inductor's lite mode."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from torch_backplane import _backend
from torch_backplane.inductor import language, registration


@cache
def _lite() -> dict[str, Any]:
    """Options of the mode in which operators are called as they are; empty if torch has no such mode."""
    from torch._inductor import list_mode_options

    modes: Any = list_mode_options()
    if "lite" not in modes:
        return {}
    return {
        **modes["lite"],
        # No code depends on a result's strides, and torch's fake of an operator may return a gradient that was not
        # requested, such as that of attention's bias.
        "size_asserts": False,
        # Otherwise a short constant is a kernel.
        "always_keep_tensor_constants": True,
    }


def options_for(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> dict[str, Any]:
    """Inductor's options for a graph that uses the device: those of eager calls if it has no kernels."""
    if not _is_of_device(graph, inputs) or registration.is_anothers():
        return {}
    why = language.why_none()
    if not why:
        return language.options()
    options = _lite()
    if options:
        _warn(why)
    return options


def _is_of_device(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Whether a graph of Dynamo's has a tensor of the device."""
    made = [node.meta.get("example_value") for node in graph.graph.nodes]
    return any(isinstance(one, torch.Tensor) and one.device.type == _backend.device for one in (*inputs, *made))


@cache
def _warn(why: str) -> None:
    """Once in a process."""
    how = f"torch.compile calls the operators of {_backend.device} one by one, and fuses nothing"
    text = f'{how}: {why}; backend="aot_eager" runs the same calls without Inductor'
    warnings.warn(text, stacklevel=2)
