"""``torch.library.Library`` that can be destroyed in any order: works around what torch leaves behind.

These are the defects of torch 2.13, each with the change that makes its workaround unnecessary:

- The Python dispatcher, under which ``torch.compile`` and ``make_fx`` trace, keeps the kernel that it found first.
  Until ``Library.impl`` clears its cache.
- Destroying a library that defined one overload also removes the operator's Python object, and those of overloads
  that others defined: ``torch.ops.aten.add.Tensor`` is another object afterwards, which no decomposition knows. Until
  ``_clear_torch_ops_cache`` keeps what still exists.
- An operator object that outlives its definition calls into freed memory. Until it raises.
- An operator that is defined again while kernels of it remain has two objects: dispatch modes see the old one, whose
  stale cache entries the Python dispatcher follows. Until the dispatcher drops it with the definition.
- ``allow_override=False`` only knows Python kernels, and forgets one when another of the same operator is removed.
  Until it asks the dispatcher.
- A Python kernel that returns more results than the schema has crashes the process, and one that returns fewer passes.
  Until torch counts them.
- A library and its kernels are silently removed with the last reference to it.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch

from torch_backplane import _backend
from torch_backplane.ops import registry

__all__ = ["Library"]

_open: set[Library] = set()


class Library(torch.library.Library):
    """As :class:`torch.library.Library`, but it lives until :meth:`destroy` or the end of a ``with`` block.

    Until then its definitions and kernels stay, even without a reference to the object. Libraries can be destroyed in
    any order: what the others registered stays, and the newest kernel of an operator and key is in force.

    Args:
        ns: the namespace, ``"aten"`` or the vendor's own.
        kind: ``"DEF"``, ``"FRAGMENT"``, or ``"IMPL"``.
        dispatch_key: for ``"IMPL"``: the default key of :meth:`impl`.

    Example::

        with torch_backplane.ops.Library("aten", "IMPL", "PrivateUse1") as library:
            library.impl("erfinv", my_erfinv)
            step()
    """

    # No __init__: torch's records the caller's line as the place of the registrations.

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Define an operator, as :meth:`torch.library.Library.define`.

        Raises:
            RuntimeError: kernels remain of an earlier definition with another schema.
        """
        op = f"{self.ns}::{schema.partition('(')[0]}"
        _check_what_stayed(op, f"{self.ns}::{schema}")
        name: str = super().define(schema, alias_analysis, tags=tags)
        _open.add(self)
        _bring_back(op)
        return name

    def impl(
        self,
        op_name: Any,
        fn: Callable[..., Any],
        dispatch_key: str = "",
        *,
        with_keyset: bool = False,
        allow_override: bool = True,
    ) -> None:
        """Register a kernel, as :meth:`torch.library.Library.impl`.

        Args:
            op_name: the operator's name with its overload, or the operator.
            fn: the kernel, or ``torch.library.fallthrough_kernel``.
            dispatch_key: its key; ``"CompositeImplicitAutograd"`` if neither this nor the library names one.
            with_keyset: whether the kernel takes the call's key set first, to redispatch with it.
            allow_override: False refuses a key that has a kernel of the operator, from Python or C++.

        Raises:
            RuntimeError: there is one; the message says where.
        """
        name = registry.name_of(op_name) if isinstance(op_name, torch._ops.OpOverload) else str(op_name)
        op = f"{self.ns}::{name.rpartition('::')[2]}"
        key = dispatch_key or self.dispatch_key or "CompositeImplicitAutograd"
        if not allow_override and (site := registry.site_of(op, key)):
            raise RuntimeError(
                f"{op} has a kernel for {key} already, registered at {site}: destroy its library first, or override it "
                "with allow_override=True"
            )
        # Explicit, since before torch 2.13 an override is refused by default.
        super().impl(op_name, _counting_results(op, fn), dispatch_key, with_keyset=with_keyset, allow_override=True)
        _open.add(self)
        registry.forget_dispatch(op)

    def fallback(self, fn: Callable[..., Any], dispatch_key: str = "", *, with_keyset: bool = False) -> None:
        """Register the fallback of a whole key, as :meth:`torch.library.Library.fallback`.

        Raises:
            RuntimeError: the key has one, which is the SDK's or could not come back.
        """
        key = dispatch_key or self.dispatch_key
        if key == "AutogradPrivateUse1":
            raise RuntimeError(
                "the autograd fallback of the device is torch's own, and would not come back when this library goes: "
                "operators without a formula would then fail. Register an autograd kernel for each operator instead"
            )
        if key == "PrivateUse1" and _backend.loaded() and _backend.C.fallback.is_registered():
            raise RuntimeError(
                "the device has a fallback, and torch keeps one per key. See every call first with "
                "torch_backplane.fallback.hook(fn), or start with "
                f"{_backend.device.upper()}_FALLBACK=none and register your own"
            )
        super().fallback(fn, dispatch_key, with_keyset=with_keyset)
        _open.add(self)

    def destroy(self) -> None:
        """Remove all that it registered. Not while another thread calls it. A second call does nothing."""
        if self.m is None:
            return
        names = {op.partition(".")[0] for op in self._op_defs}
        packets = {name: packet for name in names if (packet := registry.packet_in_use(name)) is not None}
        kernels = {f"{self.ns}::{key.split('/')[1]}" for key in self._op_impls}
        super()._destroy()
        self._op_defs.clear()  # torch's finalizer would remove them again, from a later owner
        self._op_impls.clear()
        _open.discard(self)
        for name, packet in packets.items():
            _keep_what_exists(name, packet)
        for op in kernels:
            registry.forget_dispatch(op)

    _destroy = destroy  # what torch calls, for example in torch.library._scoped_library

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.destroy()


def _counting_results(op: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel with a check: of an operator with several results, it must return as many."""
    if fn is torch.library.fallthrough_kernel or not registry.exists(op):
        return fn
    count = len(registry.schema(op).returns)
    if count < 2:
        return fn

    @functools.wraps(fn)
    def kernel(*args: Any, **kwargs: Any) -> Any:
        results = fn(*args, **kwargs)
        if not isinstance(results, tuple | list):
            raise RuntimeError(
                f"the kernel of {op} returned a {type(results).__name__}, and the schema has {count} results"
            )
        if len(results) != count:
            raise RuntimeError(f"the kernel of {op} returned {len(results)} results, and the schema has {count}")
        return results

    return kernel


class _Gone:
    """In an operator object whose definition was removed: raises, or calls what has been defined since."""

    def __init__(self, name: str, was: Any, find: Callable[[], Callable[..., Any] | None]) -> None:
        self._name, self._find = name, find
        self._hash = hash(was)  # the object's own, under which it may lie in a set

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = self._find()
        if function is None:
            raise RuntimeError(f"{self._name} does not exist any more: the library that defined it has been destroyed")
        return function(*args, **kwargs)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other


# Operator objects whose definition was removed, "vendor::op" and "vendor::op.overload". A new definition reuses them:
# while any kernel of that name exists, the dispatcher keeps the object that it has seen, and dispatch modes get it.
_gone: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def _keep_what_exists(name: str, packet: Any) -> None:
    """Restore the object of an operator with remaining overloads; let the others raise."""
    left = set(torch._C._jit_get_operation(name)[1] or ())
    for attribute, overload in list(vars(packet).items()):
        if not isinstance(overload, torch._ops.OpOverload):
            continue
        in_schema = overload._schema.overload_name
        if in_schema in left:
            continue
        for index, member in enumerate(("_op", "_op_dk")):
            find = functools.partial(_find_overload, name, in_schema, index)
            setattr(overload, member, _Gone(overload.name(), getattr(overload, member), find))
        overload._dispatch_cache.clear()
        vars(overload).pop("_handle", None)  # cached, and a pointer into the definition; the next use looks it up
        _gone[f"{name}.{attribute}"] = overload
        delattr(packet, attribute)
        packet._dir.remove(attribute)
    if left:
        _put_back(name, packet)
    else:
        packet._op = _Gone(name, packet._op, lambda: torch._C._jit_get_operation(name)[0])
        _gone[name] = packet


def _find_overload(name: str, overload_name: str, index: int) -> Callable[..., Any] | None:
    found: Any = torch._C._get_operation_overload(name, overload_name)
    return None if found is None else found[index]


def _put_back(name: str, packet: Any) -> None:
    namespace, _, bare = name.partition("::")
    operators = getattr(torch.ops, namespace)
    torch._ops._refresh_packet(packet)
    if bare not in vars(operators):
        operators._dir.append(bare)
    setattr(operators, bare, packet)


def _member(op: str) -> tuple[str, str]:
    """The operator's name, and the name of the overload in its object."""
    name, _, overload_name = op.partition(".")
    return name, overload_name or "default"


def _check_what_stayed(op: str, schema: str) -> None:
    """Refuse a new schema while kernels of the old one remain, whose object the dispatcher would pass on."""
    old = _gone.get(".".join(_member(op)))
    if old is None or str(old._schema) == str(torch._C.parse_schema(schema)):
        return
    if stayed := [kernel for kernel in registry.kernels(op) if kernel.active]:
        raise RuntimeError(
            f"{op} cannot be defined as {schema}: the kernel for {stayed[0].key}, registered at {stayed[0].site}, is "
            f"of {old._schema}. Destroy its library first"
        )


def _bring_back(op: str) -> None:
    """Reuse the objects of an operator that is defined again with the same schema."""
    name, attribute = _member(op)
    if (packet := _gone.pop(name, None)) is not None:
        _put_back(name, packet)
    overload = _gone.pop(f"{name}.{attribute}", None)
    schema = registry.schema_of(op)
    if overload is None or str(schema) != str(overload._schema):
        return
    packet = registry.packet_in_use(name) or getattr(
        getattr(torch.ops, name.partition("::")[0]), name.partition("::")[2]
    )
    overload._op, overload._op_dk, overload._tags = torch._C._get_operation_overload(name, schema.overload_name)
    for table in (overload.py_kernels, overload.python_key_table, overload.functorch_table, overload._dispatch_cache):
        table.clear()  # of the removed definition
    setattr(packet, attribute, overload)
    packet._dir.append(attribute)
