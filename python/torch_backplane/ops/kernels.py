"""Kernels written in Python, for prototypes: registered for one operator of the device, and checked when registered."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any

import torch

from torch_backplane import _backend, compat
from torch_backplane.ops import registry

__all__ = ["Registration", "calls", "kernel"]

_lock = threading.RLock()
# By operator; the last one is in force. Loading this module again keeps what is registered.
_active: dict[str, list[Registration]] = globals().get("_active", {})
_calls: dict[str, int] = globals().get("_calls", {})


class Registration:
    """A kernel that is registered. As a context manager, it is removed at the block's end."""

    def __init__(self, op: str, function: Callable[..., Any], library: torch.library.Library) -> None:
        self.op = op
        self.function = function
        self._library: torch.library.Library | None = library

    @property
    def site(self) -> str:
        """``file:line`` of the function."""
        return _site(self.function)

    @property
    def active(self) -> bool:
        """Whether it has not been removed."""
        return self._library is not None

    def remove(self) -> None:
        """Take the kernel away; what was registered before it is in force again. A second call does nothing."""
        with _lock:
            library, self._library = self._library, None
            if library is not None:
                _active[self.op].remove(self)
                library._destroy()

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<kernel of {self.op} at {self.site}{'' if self.active else ', removed'}>"


def kernel(
    op: str,
    function: Callable[..., Any] | None = None,
    *,
    override: bool = False,
    backward: Callable[..., Any] | None = None,
    setup_context: Callable[..., Any] | None = None,
) -> Any:
    """Register a Python function as the device's kernel of an existing operator.

    It is called with device tensors, below autograd, and returns what the operator's schema says, or NotImplemented for
    what it does not take: the CPU computes that. It is for prototypes: a call costs several microseconds, and forms
    other than the given overload (``out=``, in-place) are not its.

    Args:
        op: the operator, ``"aten::gelu"`` or, with its overload, ``"aten::add.Tensor"``.
        function: the kernel. Without it, the result is a decorator, which returns the function as it was, with the
            registration as its attribute ``registration``.
        override: allow that the operator has a kernel for the device already; this one goes before it.
        backward: for a composite operator, whose gradient comes from its parts and which a kernel would cut off: the
            formula, as for :func:`torch.library.register_autograd`.
        setup_context: as there.

    Returns:
        The :class:`Registration`, or the decorator.

    Raises:
        ValueError: no such operator; a second kernel; a composite operator without ``backward``.
        TypeError: the function's signature differs from the schema.

    Example::

        @torch_backplane.kernel("aten::gelu")
        def gelu(self, *, approximate="none"): ...


        with torch_backplane.kernel("aten::erfinv", erfinv):
            step()
    """
    if function is not None:
        return _register(op, function, override, backward, setup_context)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        function.registration = _register(op, function, override, backward, setup_context)  # type: ignore[attr-defined]
        return function

    return decorate


def calls(op: str) -> int | None:
    """How often Python kernels of an operator were called; None if it never had one.

    Args:
        op: the operator, with its namespace.
    """
    return _calls.get(op)


def _register(
    op: str,
    function: Callable[..., Any],
    override: bool,
    backward: Callable[..., Any] | None,
    setup_context: Callable[..., Any] | None,
) -> Registration:
    if not _backend.loaded():
        raise RuntimeError("no backend is loaded: import the vendor's package first, for example `import mydevice`")
    schema = registry.schema(op)
    _check_signature(op, schema, function)
    _check_autograd(op, schema, backward)
    with _lock:
        for old in [old for old in _active.get(op, []) if _same(old.function, function)]:
            old.remove()  # its module has been loaded again
        if not override:
            _check_first(op, function)
        namespace, _, name = op.partition("::")
        library = torch.library.Library(namespace, "IMPL")
        compat.override_kernel(library, name, _counted(op, function), "PrivateUse1")
        if backward is not None:
            formula = compat.autograd_kernel(registry.overload(op), backward, setup_context)
            library.impl(name, formula, "AutogradPrivateUse1", with_keyset=True)
        registration = Registration(op, function, library)
        _active.setdefault(op, []).append(registration)
        return registration


def _counted(op: str, function: Callable[..., Any]) -> Callable[..., Any]:
    _calls.setdefault(op, 0)

    name, _, overload = op.partition(".")

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if result is NotImplemented:
            return _backend.C.run_fallback(name, overload, args, kwargs)
        with _lock:
            _calls[op] += 1
        return result

    return call


def _check_first(op: str, function: Callable[..., Any]) -> None:
    if not registry.has_kernel(op, "PrivateUse1"):
        return
    if _active.get(op):
        first = _active[op][-1].site
    else:
        first = next(kernel.site for kernel in registry.kernels(op) if kernel.key == "PrivateUse1" and kernel.active)
    raise ValueError(
        f"{op} has a kernel for {_backend.device} already: it is at {first}, and this one at {_site(function)}. "
        "override=True puts this one before it"
    )


def _check_autograd(op: str, schema: Any, backward: Callable[..., Any] | None) -> None:
    has_formula = registry.has_kernel(op, "Autograd") or registry.has_kernel(op, "AutogradPrivateUse1")
    if backward is not None:
        if has_formula:
            raise ValueError(f"{op} has a formula for its gradient already: leave out backward=")
        return
    into_out = any(a.kwarg_only and a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
    if has_formula or into_out or not registry.has_kernel(op, "CompositeImplicitAutograd"):
        return
    raise ValueError(
        f"{op} is a composite operator: its gradient comes from the operators that it is made of, and a kernel for it "
        f"would silently lose the gradient on {_backend.device}. Write kernels for its parts "
        "(`torch-backplane coverage` lists them), or give the formula: "
        f'kernel("{op}", backward=..., setup_context=...), as for torch.library.register_autograd'
    )


def _check_signature(op: str, schema: Any, function: Callable[..., Any]) -> None:
    """Refuses a function that the dispatcher could not call, and names each difference."""
    P = inspect.Parameter
    parameters = inspect.signature(function).parameters
    any_position = any(p.kind is P.VAR_POSITIONAL for p in parameters.values())
    any_keyword = any(p.kind is P.VAR_KEYWORD for p in parameters.values())
    positional = [p for p in parameters.values() if p.kind in (P.POSITIONAL_ONLY, P.POSITIONAL_OR_KEYWORD)]
    by_keyword = {p.name: p for p in parameters.values() if p.kind in (P.KEYWORD_ONLY, P.POSITIONAL_OR_KEYWORD)}
    wrong, matched = [], set()
    for i, argument in enumerate(schema.arguments):
        if argument.kwarg_only:
            parameter, swallowed = by_keyword.get(argument.name), any_keyword
        else:
            parameter, swallowed = (positional[i] if i < len(positional) else None), any_position
        if parameter is None:
            if not swallowed:
                wrong.append(f"'{argument.name}' is missing")
            continue
        matched.add(parameter.name)
        if parameter.name != argument.name:
            wrong.append(f"argument {i + 1} is '{parameter.name}' and should be '{argument.name}'")
        elif argument.has_default_value():  # the dispatcher leaves out arguments that have their default value
            if parameter.default is P.empty:
                wrong.append(f"'{argument.name}' has no default and needs the schema's, {argument.default_value!r}")
            elif _differ(parameter.default, argument.default_value):
                wrong.append(
                    f"'{argument.name}' has the default {parameter.default!r} and the schema's is "
                    f"{argument.default_value!r}"
                )
    named = [p.name for p in parameters.values() if p.kind not in (P.VAR_POSITIONAL, P.VAR_KEYWORD)]
    wrong += [f"'{name}' is not in the schema" for name in named if name not in matched]
    if wrong:
        raise TypeError(
            f"the kernel at {_site(function)} does not match {schema}: {'; '.join(wrong)}. "
            f"Write: def {function.__name__}({_parameters(schema)})"
        )


def _differ(given: Any, wanted: Any) -> bool:
    plain = (bool, int, float, str, type(None))
    return isinstance(given, plain) and isinstance(wanted, plain) and given != wanted


def _parameters(schema: Any) -> str:
    """The parameters of a Python function that match a schema."""
    words, keyword_only = [], False
    for argument in schema.arguments:
        if argument.kwarg_only and not keyword_only:
            words.append("*")
            keyword_only = True
        words.append(argument.name + (f"={argument.default_value!r}" if argument.has_default_value() else ""))
    return ", ".join(words)


def _same(old: Callable[..., Any], new: Callable[..., Any]) -> bool:
    """Whether it is the same function of a module that has been loaded again."""
    old_name, new_name = getattr(old, "__qualname__", "<"), getattr(new, "__qualname__", "<")
    return old_name == new_name and "<" not in new_name and old.__module__ == new.__module__


def _site(function: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)
