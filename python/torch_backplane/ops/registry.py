"""What the dispatcher knows of an operator: its schema, its direct kernels by key, and where each was registered.

Direct means registered for that key itself. With a fallback for the whole device, the computed table has an answer for
every operator, and tells nothing.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Kernel", "has_kernel", "kernels", "name_of", "nearest", "overload", "schema"]


@dataclass(frozen=True)
class Kernel:
    """One direct registration of an operator."""

    key: str
    """The dispatch key, ``"PrivateUse1"``; an alias key by its name, ``"CompositeImplicitAutograd"``."""
    site: str
    """``file:line``, or the text that was given at registration."""
    active: bool
    """False if a later registration for the same key goes before it."""


def schema(op: str) -> Any:
    """The operator's schema.

    Args:
        op: ``"aten::gelu"``, or with its overload ``"aten::add.Tensor"``.

    Raises:
        ValueError: there is no such operator; it names the nearest.
    """
    if op in torch._C._dispatch_get_all_op_names():
        name, _, overload_name = op.partition(".")
        return torch._C._get_schema(name, overload_name)
    near = nearest(op)
    hint = f"did you mean {', '.join(near)}?" if near else "the form is aten::name or aten::name.overload"
    raise ValueError(f"there is no operator '{op}': {hint}")


def nearest(op: str) -> list[str]:
    """The operators that a wrong name may have meant: the overloads of the same name, or up to four like it."""
    known = torch._C._dispatch_get_all_op_names()
    base = (op if "::" in op else f"aten::{op}").partition(".")[0]
    near = sorted(name for name in known if name.partition(".")[0] == base)
    return near or difflib.get_close_matches(base, known, n=4, cutoff=0.7)


def overload(op: str) -> torch._ops.OpOverload:
    """The operator as a Python object.

    Raises:
        ValueError: there is no such operator.
    """
    found = schema(op)
    namespace, _, name = found.name.partition("::")
    return getattr(getattr(getattr(torch.ops, namespace), name), found.overload_name or "default")


def name_of(func: torch._ops.OpOverload) -> str:
    """As the dispatcher writes it, without ``.default``: ``"aten::add.Tensor"``, ``"aten::gelu"``."""
    return func._schema.name + (f".{func._schema.overload_name}" if func._schema.overload_name else "")


def has_kernel(op: str, key: str) -> bool:
    """Whether the operator has a direct kernel for a key. A key that this torch does not have is an error of torch."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(op, key))


def kernels(op: str) -> list[Kernel]:
    """The operator's direct registrations, in torch's order; empty for an unknown operator."""
    pattern = r"^(\w+)(?:\[alias\])?( \(inactive\))?: (?:registered at )?(.+?) ::"
    found = re.findall(pattern, torch._C._dispatch_dump(op), re.MULTILINE)
    return [Kernel(key, site, not inactive) for key, inactive, site in found]
