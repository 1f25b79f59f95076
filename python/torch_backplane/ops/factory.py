"""Operators without a tensor among their arguments: the argument ``device`` chooses the kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_backplane import compat


def is_factory(schema: Any) -> bool:
    """Whether no argument may hold a tensor."""
    return not any("Tensor" in str(argument.type) for argument in schema.arguments)


def device_argument(schema: Any) -> Any:
    """The argument ``device``, of type Device or optional; None if there is none."""
    types = ("Device", "Optional[Device]")
    return next((a for a in schema.arguments if a.name == "device" and str(a.type) in types), None)


def select(op: torch._ops.OpOverload) -> Callable[..., Any]:
    """The kernel for BackendSelect; unlike torch's own, it takes a ``device`` that is keyword-only or omitted.

    If omitted, ``device`` is the schema's default. None is torch's default device; that of a block ``with
    torch.device(...)`` applies only to a keyword-only ``device``, as in PyTorch's own operators.
    """
    arguments = op._schema.arguments
    argument = device_argument(op._schema)
    position = [a.name for a in arguments].index("device")  # never reached by positions if it is keyword-only
    if argument.kwarg_only:
        compat.follow_default_device(op)
    default = argument.default_value if argument.has_default_value() else None

    def backend_select(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        device = args[position] if position < len(args) else kwargs.get("device", default)
        device = torch.get_default_device() if device is None else torch.device(device)
        key = getattr(torch._C.DispatchKey, torch._C._dispatch_key_for_device(device.type))
        return op.redispatch(torch._C.DispatchKeySet(key), *args, **kwargs)

    return backend_select
