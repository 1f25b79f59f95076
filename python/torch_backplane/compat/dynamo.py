"""``x.is_mydevice`` in a graph: of a tensor that the graph makes, Dynamo knows ``is_cuda`` and its kin alone."""

from __future__ import annotations

from typing import Any

from torch_backplane import imports


def install(name: str) -> None:
    """Let Dynamo answer it from the device of the tensor, once it is imported.

    Seen on 2.11 to 2.15; unnecessary once Dynamo asks for the property of a renamed device. Where torch has no such
    class the graph breaks, as before.
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
