"""Where Inductor learns of the device, and nothing of it is imported before.

That is when it is imported itself, when it looks the device up, and before each graph, which torch has no public place
for (docs/upstream.md).
"""

from __future__ import annotations

from typing import Any

import torch

from torch_backplane import compat
from torch_backplane.compat import inductor
from torch_backplane.imports import after_import

__all__ = ["NAMES", "install", "look_up"]

NAMES = (compat.INDUCTOR_HOOK, *compat.INDUCTOR_CLASSES)


def install() -> None:
    """Register the device when Inductor is imported, and ask before it compiles a graph.

    Torch looks the device up only after it has read tables of operators. Where the driver compiles no kernels, a graph
    of the device gets the options for eager calls.
    """
    after_import("torch._inductor.compile_fx", _register)
    inductor.ask_before_graphs(_options_for)


def look_up(name: str) -> Any:
    """What Inductor finds when it looks a name up in the device module: the device is registered by then.

    Of the hook gives what registers. Of a class raises AttributeError: Inductor goes on with what is registered.
    """
    if name == compat.INDUCTOR_HOOK:
        return _register
    _register()
    raise AttributeError(f"{name} is registered with Inductor, and no attribute of the device module", name=name)


def _register() -> None:
    from torch_backplane.inductor.registration import register

    register()


def _options_for(graph: torch.fx.GraphModule, inputs: Any) -> dict[str, Any]:
    from torch_backplane.inductor.eager_calls import options_for

    return options_for(graph, inputs)
