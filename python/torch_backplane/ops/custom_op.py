"""Define a vendor's operators from Python, and get existing ones."""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, overload

import torch
from torch._library.custom_ops import OPDEFS

from torch_backplane import compat
from torch_backplane.ops import devices, factory, missing, registry, schema, signature
from torch_backplane.ops.library import Library
from torch_backplane.ops.op import Op
from torch_backplane.ops.strict import OperatorWarning

__all__ = ["custom_op", "get"]

_lock = threading.RLock()
# By name. Reloading this module keeps them.
_ops: dict[str, Op] = globals().get("_ops", {})

_STRIDES = {
    "exact": "needs_exact_strides",
    "order": "needs_fixed_stride_order",
    "contiguous": "needs_contiguous_strides",
    "any": "flexible_layout",
}


@overload
def custom_op(
    name: str,
    function: None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: devices.DeviceTypes = None,
    schema: str | None = None,
    tags: torch.Tag | Sequence[torch.Tag] = (),
    strides: str | None = None,
) -> Callable[[Callable[..., Any]], Op]: ...


@overload
def custom_op(
    name: str,
    function: Callable[..., Any],
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: devices.DeviceTypes = None,
    schema: str | None = None,
    tags: torch.Tag | Sequence[torch.Tag] = (),
    strides: str | None = None,
) -> Op: ...


def custom_op(
    name: str,
    function: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: devices.DeviceTypes = None,
    schema: str | None = None,
    tags: torch.Tag | Sequence[torch.Tag] = (),
    strides: str | None = None,
) -> Any:
    """Define an operator; the function is its kernel for the vendor's device.

    It is ``torch.library.custom_op`` with other defaults and with checks first: a mistake that would show later, or not
    at all, is an error that says what to write.

    Args:
        name: ``"vendor::name"``, or with an overload ``"vendor::name.overload"``.
        function: the kernel. Without it, the result is a decorator.
        mutates_args: names of the arguments that it writes, ``()`` for none; ``"unknown"`` means all.
        device_types: the devices of the kernel: a device type, several, ``"default"`` for every device without a
            kernel; None is the vendor's device.
        schema: ``"(Tensor x, int n=1) -> Tensor"``; None takes it from the function's annotations.
        tags: of ``torch.Tag``.
        strides: how compiled code may change the strides of arguments, as a tag: ``"exact"`` keeps those without
            compilation, ``"order"`` keeps their order, ``"contiguous"`` makes arguments contiguous, ``"any"`` allows
            all. None is torch's setting, ``torch._functorch.config.custom_op_default_layout_constraint``: exact.

    Returns:
        The operator, or the decorator that makes it.

    Raises:
        ValueError: the name, the schema, ``mutates_args`` or a device type is wrong, or C++ has defined the name.
        TypeError: the function's signature differs from the schema.

    Example::

        @torch_backplane.ops.custom_op("vendor::scale", mutates_args=())
        def scale(x: Tensor, factor: float = 2.0) -> Tensor:
            return x * factor


        @scale.reference
        def scale_cpu(x, factor=2.0): ...
    """
    make = functools.partial(
        _define, name, mutates_args=mutates_args, device_types=device_types, text=schema, tags=tags, strides=strides
    )
    if function is not None:
        return make(function)

    def decorate(function: Callable[..., Any]) -> Op:
        _check_function_name(name, function)
        return make(function)

    return decorate


def get(op: Any) -> Op:
    """The object of an existing operator, which Python or C++ may have defined.

    Args:
        op: ``"vendor::name"``, with its overload ``"vendor::name.overload"``; an ``OpOverload``, a packet with one
            overload or a default one, what ``torch.library.custom_op`` returned, or an :class:`Op`.

    Raises:
        ValueError: there is no such operator; the message names the nearest, and what to load.
    """
    name = registry.resolve(op)
    try:
        found = registry.overload(name)
    except ValueError as error:
        if not registry.has_namespace(name.partition("::")[0]):
            raise  # the message says what to load
        stop = "" if str(error).endswith("?") else "."
        raise ValueError(
            f"{error}{stop} If a library defines it, load it first: import its package, or "
            "torch_backplane.ops.load_library(path)"
        ) from None
    with _lock:
        known = _ops.get(name)
        if known is None or known.overload is not found:  # new, or defined again by others
            known = _ops[name] = Op(name, found, OPDEFS.get(name))
        return known


def _define(
    name: str,
    function: Callable[..., Any],
    *,
    mutates_args: str | Iterable[str],
    device_types: devices.DeviceTypes,
    text: str | None,
    tags: torch.Tag | Sequence[torch.Tag],
    strides: str | None,
) -> Op:
    namespace, bare = schema.split(name)
    names = devices.device_types(device_types)
    all_tags = _with_strides(name, [tags] if isinstance(tags, torch.Tag) else list(tags), strides)
    if isinstance(mutates_args, str) and mutates_args != "unknown":
        mutates_args = (mutates_args,)
    given = text is not None
    if text is None:
        text = compat.infer_schema(inspect.unwrap(function), mutates_args, all_tags)
    parsed = schema.parse(bare, text)
    if given:
        schema.check_given(parsed, function, mutates_args)
    with _lock:
        _make_room(name, function)
        if factory.is_factory(parsed):
            # torch's own definition would only choose by a positional `device`.
            library = Library(namespace, "FRAGMENT")
            library.define(bare + text, tags=(torch.Tag.pt2_compliant_tag, *all_tags))
            op = Op(name, registry.overload(name), library=library)
        else:
            options: dict[str, Any] = {"mutates_args": schema.mutated(parsed), "schema": text, "tags": all_tags}
            definition = torch.library.custom_op(name, function, device_types=[], **options)
            op = Op(name, registry.overload(name), definition)
        op.__doc__, op.__module__ = function.__doc__, function.__module__
        try:
            missing.explain_missing_kernels(op.overload)
            op.register_kernel(names, function)
        except BaseException:
            op.destroy()
            raise
        _ops[name] = op
        return op


def _make_room(name: str, function: Callable[..., Any]) -> None:
    """Remove an operator of the same name that Python defined; without a warning if its module is reloaded."""
    if not registry.exists(name):
        return
    old = get(name)
    if old._definition is None and old._owned is None:
        raise ValueError(
            f"{name} is defined already, at {registry.defined_at(name)}: add a kernel to it by "
            f'torch_backplane.ops.get("{name}").register_kernel(...), or take another name'
        )
    first = next(iter(old._functions.values()), None) or old._definition._init_fn
    if not signature.same(first, function):
        warnings.warn(
            f"{name} is defined already: it is at {signature.site(first)}, and the one at {signature.site(function)} "
            "takes its place",
            OperatorWarning,
            stacklevel=4,
        )
    old.destroy()


def _with_strides(name: str, tags: list[torch.Tag], strides: str | None) -> list[torch.Tag]:
    layout = [tag for tag in tags if tag.name in _STRIDES.values()]
    if strides is not None and strides not in _STRIDES:
        raise ValueError(f"strides='{strides}' of {name} is none of {', '.join(map(repr, _STRIDES))}")
    if strides is not None and layout:
        raise ValueError(f"strides='{strides}' of {name} and the tag {layout[0].name} contradict each other: omit one")
    # Not by default: torch searches the list of tags in each call, 0.3 us per tag.
    return tags if strides is None else [*tags, getattr(torch.Tag, _STRIDES[strides])]


def _check_function_name(name: str, function: Callable[..., Any]) -> None:
    bare = name.partition("::")[2]
    given = getattr(function, "__name__", "_")
    if given.strip("_") in ("", bare.strip("_"), bare.partition(".")[0].strip("_"), bare.replace(".", "_")):
        return
    warnings.warn(
        f"the function '{given}' at {signature.site(function)} defines {name}: if that is no typing error, "
        f"name it '{bare.partition('.')[0]}', or '_'",
        OperatorWarning,
        stacklevel=3,
    )
