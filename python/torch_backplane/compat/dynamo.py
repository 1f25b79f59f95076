"""``x.is_mydevice`` in a graph: of a tensor that the graph makes, Dynamo only knows ``is_cuda`` and the like."""

from __future__ import annotations

from typing import Any

from torch_backplane import imports


def install(name: str) -> None:
    """Let Dynamo, once it is imported, evaluate it from the tensor's device.

    Seen on 2.11 to 2.15; unnecessary once Dynamo asks for the property of a renamed device. If torch has no such class
    the graph breaks, as before.
    """
    imports.after_import("torch._dynamo.variables.tensor", lambda: _add(name))


def _add(name: str) -> None:
    from torch._dynamo.variables import base, tensor

    variable: Any = getattr(tensor, "TensorVariable", None)
    build: Any = getattr(getattr(base, "VariableTracker", None), "build", None)
    property_ = f"method_attr_is_{name}"
    if build is None or not hasattr(variable, "method_attr_is_cuda") or hasattr(variable, property_):
        return

    def is_of_device(self: Any, tx: Any) -> Any:
        return None if self.device is None else build(tx, self.device.type == name)

    setattr(variable, property_, is_of_device)
