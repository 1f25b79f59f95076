"""``torch.library.Library`` that can go in any order: what the torch of today leaves behind is put right.

Each gap with what makes its part unnecessary. Seen on torch 2.13:

- The Python dispatcher, under which ``torch.compile`` and ``make_fx`` trace, keeps the kernel that it found first.
  Until ``Library.impl`` clears it.
- A library that defined one overload takes the operator's Python object along, and those of overloads that others
  defined: ``torch.ops.aten.add.Tensor`` is another object afterwards, which no decomposition knows. Until
  ``_clear_torch_ops_cache`` keeps what still exists.
- An operator object that is held after its definition went calls into freed memory. Until it raises.
- An operator that is defined again while kernels of it stayed has two objects: dispatch modes see the old one, whose
  stale entries the Python dispatcher follows into the void. Until the dispatcher forgets it with the definition.
- ``allow_override=False`` knows Python's kernels alone, and forgets one when another of the same operator goes. Until
  it asks the dispatcher.
- A Python kernel that returns more results than the schema has crashes the process, and one that returns fewer passes.
  Until torch counts them.
- A library goes with the last reference to it, and its kernels with it, silently.
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
    """As :class:`torch.library.Library`, with an end that is said: :meth:`destroy`, or the end of a ``with`` block.

    Until then its definitions and kernels stay, also if nobody keeps the object. Libraries may go in any order: what is
    left is what the others registered, the newest of an operator and key in force.

    Args:
        ns: the namespace, ``"aten"`` or the vendor's own.
        kind: ``"DEF"``, ``"FRAGMENT"``, or ``"IMPL"``.
        dispatch_key: for ``"IMPL"``: the key of :meth:`impl` where it is given none.

    Example::

        with torch_backplane.ops.Library("aten", "IMPL", "PrivateUse1") as library:
            library.impl("erfinv", my_erfinv)
            step()
    """

    # No __init__: torch's takes the caller's line for the registrations' place.

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Define an operator, as :meth:`torch.library.Library.define`.

        Raises:
            RuntimeError: it has been defined before with another schema, of which kernels stayed.
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
            RuntimeError: there is one, and where.
        """
        name = registry.name_of(op_name) if isinstance(op_name, torch._ops.OpOverload) else str(op_name)
        op = f"{self.ns}::{name.rpartition('::')[2]}"
        key = dispatch_key or self.dispatch_key or "CompositeImplicitAutograd"
        if not allow_override and (first := [k for k in registry.kernels(op) if k.key == key and k.active]):
            raise RuntimeError(
                f"{op} has a kernel for {key} already, registered at {first[0].site}: destroy its library first, or "
                "put this one before it with allow_override=True"
            )
        # Said, since before torch 2.13 an override is refused by default.
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
        """Take away all that it registered. Not while another thread calls it. A second call does nothing."""
        if self.m is None:
            return
        names = {op.partition(".")[0] for op in self._op_defs}
        packets = {name: packet for name in names if (packet := registry.packet_in_use(name)) is not None}
        kernels = {f"{self.ns}::{key.split('/')[1]}" for key in self._op_impls}
        super()._destroy()
        self._op_defs.clear()  # torch's finalizer would drop them again, from whoever has them by then
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
    """The kernel, which raises where it does not return as many results as an operator with several has."""
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
    """Stands in an operator object whose definition went: raises, or calls what somebody else has defined since."""

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


# Operator objects whose definition went, "vendor::op" and "vendor::op.overload". They come back with it: the dispatcher
# keeps the object that it has seen, and hands it to dispatch modes, as long as there is any kernel of that name.
_gone: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def _overloads_in(packet: Any) -> dict[str, torch._ops.OpOverload]:
    return {name: value for name, value in vars(packet).items() if isinstance(value, torch._ops.OpOverload)}


def _keep_what_exists(name: str, packet: Any) -> None:
    """Put the object of an operator with overloads left back to its place; let the others say that they are gone."""
    left = set(torch._C._jit_get_operation(name)[1] or ())
    for attribute, overload in _overloads_in(packet).items():
        in_schema = overload._schema.overload_name
        if in_schema in left:
            continue
        for index, member in enumerate(("_op", "_op_dk")):
            find = functools.partial(_find_overload, name, in_schema, index)
            setattr(overload, member, _Gone(overload.name(), getattr(overload, member), find))
        overload._dispatch_cache.clear()
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
    """Kernels that stayed take the arguments of their schema, and the dispatcher hands out the object that has it."""
    old = _gone.get(".".join(_member(op)))
    if old is None or str(old._schema) == str(torch._C.parse_schema(schema)):
        return
    if stayed := [kernel for kernel in registry.kernels(op) if kernel.active]:
        raise RuntimeError(
            f"{op} cannot be defined as {schema}: the kernel for {stayed[0].key}, registered at {stayed[0].site}, is "
            f"of {old._schema}. Destroy its library first"
        )


def _bring_back(op: str) -> None:
    """Let objects of an operator that is defined again be what they were; one of another schema stays gone."""
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
        table.clear()  # of the definition that is gone
    setattr(packet, attribute, overload)
    packet._dir.append(attribute)
