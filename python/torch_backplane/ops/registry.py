"""What the dispatcher knows of an operator: its schema, its direct kernels by key, and where each was registered.

Direct means registered for that key itself. With a fallback for the whole device, the computed table has an entry for
every operator, which proves nothing.
"""

from __future__ import annotations

import difflib
import re
from typing import Any, NamedTuple

import torch

# The functional form that ATen derives from an out= kernel: not a composite.
NON_FUNCTIONAL = "CompositeExplicitAutogradNonFunctional"
COMPOSITE = ("CompositeExplicitAutograd", "CompositeImplicitAutograd")


class Kernel(NamedTuple):
    """One direct registration of an operator."""

    key: str
    """The dispatch key, ``"PrivateUse1"``; an alias key by its name, ``"CompositeImplicitAutograd"``."""
    site: str
    """``file:line``, or the text that was given at registration."""
    active: bool
    """False if a later registration for the same key overrides it."""
    fallthrough: bool = False
    """Whether it passes each call to the next key."""


class Entry(NamedTuple):
    """What the dispatcher has computed for an operator and a key."""

    source: str
    """Why: ``"kernel"`` (a direct one), ``"autograd kernel"``, ``"math kernel"`` (CompositeImplicitAutograd),
    ``"default backend kernel"`` (CompositeExplicitAutograd and its NonFunctional form), ``"backend fallback"``."""
    site: str
    fallthrough: bool


def schema(op: str) -> Any:
    """The operator's schema.

    Args:
        op: ``"aten::gelu"``, or with its overload ``"aten::add.Tensor"``.

    Raises:
        ValueError: there is no such operator; the message names the nearest.
    """
    if exists(op):
        return schema_of(op)
    if near := nearest(op):
        hint = f"did you mean {', '.join(near)}?"
    elif "::" in op and not has_namespace(op.partition("::")[0]):
        hint = (
            f"no operator of '{op.partition('::')[0]}' is loaded; load it first: import the package that has it, or "
            "torch_backplane.ops.load_library(path)"
        )
    else:
        hint = "the form is aten::name or aten::name.overload"
    raise ValueError(f"there is no operator '{op}': {hint}")


def with_namespace(op: str) -> str:
    """Add the namespace to a name such as ``"add.Tensor"``: torch's own, else the only one that has it.

    A name that no namespace has is returned unchanged, for :func:`schema` to refuse.

    Raises:
        ValueError: several namespaces have it, but not torch's own; the message names them.
    """
    if "::" in op:
        return op
    if exists(f"aten::{op}"):
        return f"aten::{op}"
    if overloads(f"aten::{op}"):
        return op
    found = sorted(name for name in torch._C._dispatch_get_all_op_names() if name.partition("::")[2] == op)
    if len(found) > 1:
        raise ValueError(f"'{op}' is several operators: which of {', '.join(found)}?")
    return found[0] if found else op


def has_namespace(namespace: str) -> bool:
    """Whether any operator of the namespace is defined."""
    return any(name.startswith(f"{namespace}::") for name in torch._C._dispatch_get_all_op_names())


def nearest(op: str) -> list[str]:
    """The operators that a wrong name may mean: the overloads of the same name, or up to four similar names."""
    name, _, wanted = (op if "::" in op else f"aten::{op}").partition(".")
    if found := overloads(name):
        return sorted(found)
    known = {each.partition(".")[0] for each in torch._C._dispatch_get_all_op_names()}
    near = [sorted(overloads(each)) for each in difflib.get_close_matches(name, known, n=5, cutoff=0.7)]
    alike = [[each for each in group if each.partition(".")[2] == wanted] or group for group in near if group]
    return [group[0] for group in alike[:4]]


def overloads(op: str) -> list[str]:
    """The operators of a name, with or without an overload in it; empty if there is none."""
    name = op.partition(".")[0]
    namespace, _, rest = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), rest, None)
    if packet is None:
        return []
    found = [name if o == "default" else f"{name}.{o}" for o in packet.overloads()]
    return [each for each in found if exists(each)]


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


def resolve(op: Any) -> str:
    """The name of an operator that is given by its name, or as an object of torch's or of :mod:`torch_backplane.ops`.

    Raises:
        ValueError: it is no operator, or has several overloads, of which none is the default. Names are not looked up.
    """
    op = getattr(op, "overload", op)  # torch_backplane.ops.Op
    op = getattr(op, "_opoverload", op)  # torch.library.CustomOpDef
    if isinstance(op, torch._ops.OpOverloadPacket):
        name = str(op._qualified_op_name)
        found = overloads(name)
        if name in found or len(found) == 1:
            return name if name in found else found[0]
        if names := [each.partition(".")[2] for each in found]:
            raise ValueError(f"{op} has the overloads {', '.join(names)}: give one of them, torch.ops.{op}.{names[0]}")
    if isinstance(op, torch._ops.OpOverload):
        return name_of(op)
    if isinstance(op, str):
        return op.removesuffix(".default")
    raise ValueError(f"{op!r} is no operator: give a name such as 'aten::add.Tensor', or torch.ops.aten.add.Tensor")


def has_kernel(op: str, key: str) -> bool:
    """Whether the operator has a direct kernel for a key. torch raises for a key that it does not have."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(op, key))


def defined_at(op: str) -> str:
    """Where the operator's schema was registered, ``file:line``; empty for an unknown operator."""
    found = re.search(r"^debug: registered at (.+)$", torch._C._dispatch_dump(op), re.MULTILINE)
    return found[1] if found else ""


def exists(op: str) -> bool:
    """Whether there is such an operator, in the form of :func:`name_of`. Operators of TorchScript do not count."""
    name, _, overload_name = op.partition(".")
    try:
        torch._C._dispatch_find_schema_or_throw(name, overload_name)
    except RuntimeError:
        return False
    return True


def schema_of(op: str) -> Any:
    """The schema of an operator that exists."""
    name, _, overload_name = op.partition(".")
    return torch._C._get_schema(name, overload_name)


def kernels(op: str) -> list[Kernel]:
    """The operator's direct registrations, in torch's order; empty for an unknown operator."""
    return parse_kernels(torch._C._dispatch_dump(op))


def parse_kernels(dump: str) -> list[Kernel]:
    """The direct registrations in a text as ``torch._C._dispatch_dump`` returns it."""
    pattern = r"^(\w+)(?:\[alias\])?( \(inactive\))?: (fallthrough )?(?:registered at )?(.+?) ::"
    found = re.findall(pattern, dump, re.MULTILINE)
    return [Kernel(key, site, not inactive, bool(through)) for key, inactive, through, site in found]


def table(op: str) -> dict[str, Entry]:
    """The operator's computed table, by runtime key. It includes fallbacks: check ``source``."""
    pattern = r"^(\w+): (fallthrough )?(?:registered at )?(.+?) \[(.+)\]$"
    found = re.findall(pattern, torch._C._dispatch_dump_table(op), re.MULTILINE)
    return {key: Entry(source, site, bool(through)) for key, through, site, source in found}


def site_of(op: str, *keys: str) -> str:
    """Where the kernel in force for the first of the keys that has one was registered; empty if none has."""
    sites = {kernel.key: kernel.site for kernel in kernels(op) if kernel.active}
    return next((sites[key] for key in keys if key in sites), "")


def has_formula(op: str) -> bool:
    """Whether the operator has an autograd kernel for tensors of the device."""
    return has_kernel(op, "Autograd") or has_kernel(op, "AutogradPrivateUse1")


def out_arguments(schema: Any) -> list[Any]:
    """The arguments that an ``out=`` form writes its results into; empty for other forms."""
    return [a for a in schema.arguments if a.kwarg_only and a.alias_info is not None and a.alias_info.is_write]


def fallbacks() -> dict[str, str]:
    """The fallbacks for all operators: key -> where it was registered."""
    op = "torch_backplane::nothing"  # an operator without kernels has them all
    with torch.library._scoped_library("torch_backplane", "FRAGMENT") as library:
        library.define("nothing() -> ()")
        return {key: entry.site for key, entry in table(op).items() if entry.source == "backend fallback"}


def packet_in_use(name: str) -> Any:
    """The Python object of an operator, ``"aten::gelu"``, if ``torch.ops`` has made it; None otherwise."""
    namespace, _, bare = name.partition("::")
    operators = vars(torch.ops).get(namespace)
    return None if operators is None else vars(operators).get(bare)


def forget_dispatch(op: str) -> None:
    """Clear the Python dispatcher's cache for an operator, after a kernel was registered or removed."""
    name, _, overload_name = op.partition(".")
    packet = packet_in_use(name)
    if packet is not None and (found := vars(packet).get(overload_name or "default")) is not None:
        found._dispatch_cache.clear()


def dispatch_key(device: torch.device | str, functionality: str = "") -> str:
    """The name of a device's dispatch key.

    Args:
        device: a device, or its type; an index is ignored: all devices of a type have one key.
        functionality: ``"Autograd"``, ``"Autocast"``, ``"Sparse"``, ``"SparseCsr"``, ``"Quantized"``,
            ``"NestedTensor"``; empty for the key of the kernels.

    Returns:
        ``"PrivateUse1"``, ``"AutogradPrivateUse1"``: the name under which kernels are registered. Messages of torch use
        the device's name instead.

    Raises:
        ValueError: there is no such device type, or no such key.
    """
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise ValueError(
            f"there is no device type '{device}': the package that brings it has to be imported first ({error})"
        ) from None
    key = functionality + str(torch._C._dispatch_key_for_device(kind))
    if torch._C._parse_dispatch_key(key) is None:
        raise ValueError(f"torch has no dispatch key {key}: '{functionality}' is no functionality of '{kind}'")
    return key
