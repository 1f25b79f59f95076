"""Hooks through which the device is registered with Inductor, without importing Inductor before.

They run when Inductor is imported, when it looks the device up, and before each graph, for which torch has no public
hook (docs/upstream.md).
"""

from __future__ import annotations

from typing import Any

import torch

from torch_backplane import compat
from torch_backplane.compat import inductor
from torch_backplane.imports import after_import
from torch_backplane.inductor import triton

__all__ = ["NAMES", "install", "look_up"]

NAMES = (compat.INDUCTOR_HOOK, *compat.INDUCTOR_CLASSES)


def install() -> None:
    """Register the device when Inductor is imported, and set options before it compiles a graph.

    torch looks the device up only after it has read tables of operators. If the driver compiles no kernels, a graph of
    the device gets the options for eager calls.
    """
    triton.answer_by_device()
    after_import("torch._inductor.compile_fx", _register)
    inductor.ask_before_graphs(_options_for)


def look_up(name: str) -> Any:
    """Look up a name for Inductor in the device module, and register the device.

    Returns the function that registers for the hook's name. Raises AttributeError for a class: Inductor then uses the
    registered one.
    """
    if name == compat.INDUCTOR_HOOK:
        return _register
    _register()
    raise AttributeError(f"{name} is registered with Inductor, and not an attribute of the device module", name=name)


def _register() -> None:
    from torch_backplane.inductor.registration import register

    register()


def _options_for(graph: torch.fx.GraphModule, inputs: Any) -> dict[str, Any]:
    from torch_backplane.inductor.eager_calls import options_for

    annotation, context = graph.meta.get("cudagraph_annotation"), torch._guards.TracingContext.try_get()
    if annotation is not None and context is not None:  # restored at the end of the block, before Inductor asks
        context.cudagraph_annotation = annotation
    return options_for(graph, inputs)
