"""Kernels written in Python, for prototypes: registered for an operator on the device, after checks."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from torch_backplane import _backend, compat
from torch_backplane.ops import devices, formula, registry, signature
from torch_backplane.ops.library import Library

__all__ = ["Registration", "calls", "kernel"]

_lock = threading.RLock()
# By operator; the last one is in force. Reloading this module keeps them.
_active: dict[str, list[Registration]] = globals().get("_active", {})
_calls: dict[str, int] = globals().get("_calls", {})


class Registration:
    """A registered kernel. As a context manager, it is removed at the block's end."""

    def __init__(self, op: str, function: Callable[..., Any], library: Library) -> None:
        self.op = op
        self.function = function
        self._library: Library | None = library

    @property
    def site(self) -> str:
        """``file:line`` of the function."""
        return signature.site(self.function)

    @property
    def active(self) -> bool:
        """Whether it has not been removed."""
        return self._library is not None

    def remove(self) -> None:
        """Remove the kernel; the one registered before is in force again. A second call does nothing."""
        with _lock:
            library, self._library = self._library, None
            if library is not None:
                _active[self.op].remove(self)
                library.destroy()

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

    It is called with device tensors, below autograd, and returns the results of the operator's schema, or
    NotImplemented for arguments that it does not support, which the CPU then computes. It is for prototypes: a call
    costs several microseconds, and it only serves the given overload, not ``out=`` or in-place forms.

    Args:
        op: the operator, ``"aten::gelu"`` or, with its overload, ``"aten::add.Tensor"``.
        function: the kernel. Without it, the result is a decorator, which returns the function unchanged, with the
            registration as its attribute ``registration``.
        override: override an existing kernel for the device.
        backward: the formula, as for :func:`torch.library.register_autograd`, for a composite operator: its gradient
            comes from its parts, and would be lost with a kernel.
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
    devices.own()
    schema = registry.schema(op)
    signature.check(schema, function)
    _check_autograd(op, schema, backward)
    with _lock:
        for old in [old for old in _active.get(op, []) if signature.same(old.function, function)]:
            old.remove()  # its module has been reloaded
        if not override:
            _check_first(op, function)
        namespace, _, name = op.partition("::")
        library = Library(namespace, "IMPL")
        compat.override_kernel(library, name, _counted(op, function), "PrivateUse1")
        if backward is not None:
            gradient = compat.autograd_kernel(registry.overload(op), backward, setup_context)
            library.impl(name, gradient, "AutogradPrivateUse1", with_keyset=True)
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
            return _backend.C.fallback.run(name, overload, args, kwargs)
        with _lock:
            _calls[op] += 1
        return result

    return call


def _check_first(op: str, function: Callable[..., Any]) -> None:
    if not registry.has_kernel(op, "PrivateUse1"):
        return
    first = _active[op][-1].site if _active.get(op) else registry.site_of(op, "PrivateUse1")
    raise ValueError(
        f"{op} has a kernel for {_backend.device} already: it is at {first}, and this one at "
        f"{signature.site(function)}. override=True overrides it"
    )


def _check_autograd(op: str, schema: Any, backward: Callable[..., Any] | None) -> None:
    if backward is None:
        if not registry.out_arguments(schema):
            how = f'kernel("{op}", backward=..., setup_context=...), as for torch.library.register_autograd'
            formula.check_not_cut_off(op, _backend.device, f"Give the formula, {how}")
    elif registry.has_formula(op):
        raise ValueError(f"{op} has a formula for its gradient already: leave out backward=")
