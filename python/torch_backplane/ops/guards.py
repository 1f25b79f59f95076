"""The dispatcher's thread-local guards, as contexts: which keys the calls of this thread leave out, or take in.

A kernel that calls operators may need them. Below torch's own formulas nothing is recorded; but an operator of a
vendor's without a formula reaches its kernel with autograd still in force, and what it calls is recorded; and a kernel
on the autograd key that calls its operator calls itself without end.

They act on this thread alone, on tensors of every device, and end with the block, also by an exception. They nest. Each
call makes one context; as a decorator, each call of the function is a block::

    @torch_backplane.ops.guards.below_autograd()
    def my_kernel(x): ...

A generator gives the state to whoever runs between its steps: do not ``yield`` inside one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from torch_backplane import _backend

__all__ = ["State", "below_adinplaceorview", "below_autograd", "exclude", "force", "include", "state"]

_C: Any = torch._C


@contextlib.contextmanager
def below_autograd() -> Iterator[None]:
    """Call operators below autograd and autocast: nothing is recorded, results require no gradient.

    For all devices. Views are still tracked as views of their base. ``torch.no_grad()`` is another thing: it calls the
    autograd kernels, which then record nothing; a kernel on the autograd key would call itself.
    """
    with _C._AutoDispatchBelowAutograd():
        yield


@contextlib.contextmanager
def below_adinplaceorview() -> Iterator[None]:
    """Call operators below autograd, autocast, and what tracks views and versions.

    For all devices. A view that is made here is a plain tensor that shares memory, and writing in place raises no
    version: a backward pass that saved the tensor is not warned. It is where the kernels of torch itself run, and the
    guard for a kernel that is called by an autograd kernel.
    """
    with _C._AutoDispatchBelowADInplaceOrView():
        yield


@contextlib.contextmanager
def exclude(*keys: str | torch._C.DispatchKey) -> Iterator[None]:
    """Leave keys out, for example ``"AutogradPrivateUse1"`` or ``"AutocastPrivateUse1"``.

    torch keeps autograd as one key of all devices here: leaving out ``"AutogradPrivateUse1"`` switches autograd off for
    the CPU's tensors of this thread as well. The autocast keys are kept apart.

    Args:
        keys: by name or as a ``DispatchKey``. A name may end in the device's, as in torch's messages
            (``"Autogradmydevice"``).

    Raises:
        ValueError: no such key, or a key of kernels (``"PrivateUse1"``, ``"SparseCPU"``): torch would leave out the
            kernels of every device, the CPU's too.
    """
    excluded = _C.DispatchKeySet(_C.DispatchKey.Undefined)
    for key in _parse_all(keys, "exclude"):
        excluded = excluded | _C.DispatchKeySet(key)
    with _C._ExcludeDispatchKeyGuard(excluded):
        yield


@contextlib.contextmanager
def include(*keys: str | torch._C.DispatchKey) -> Iterator[None]:
    """Take keys in that the tensors do not bring, for example ``"AutocastPrivateUse1"`` or ``"Python"``.

    A key that is excluded stays so.

    Args:
        keys: as for :func:`exclude`.

    Raises:
        ValueError: no such key, or one of a single back end (``"PrivateUse1"``, ``"AutogradPrivateUse1"``): torch would
            send the tensors of all devices to that one, and the process would crash.
    """
    parsed = _parse_all(keys, "include")
    with contextlib.ExitStack() as stack:
        for key in parsed:
            stack.enter_context(_C._IncludeDispatchKeyGuard(key))
        yield


@dataclass(frozen=True)
class State:
    """What a thread includes and excludes, as key sets."""

    included: torch._C.DispatchKeySet
    excluded: torch._C.DispatchKeySet


def state() -> State:
    """The state of this thread; the autocast keys are excluded where autocast is off."""
    return State(_C._dispatch_tls_local_include_set(), _C._dispatch_tls_local_exclude_set())


@contextlib.contextmanager
def force(given: State) -> Iterator[None]:
    """Put a thread in the state that another one had, or the same one earlier, whatever its own is.

    For a kernel that hands work to a thread of its own: ``before = state()`` here, ``with force(before):`` there.
    """
    with _C._ForceDispatchKeyGuard(given.included, given.excluded):
        yield


def _parse_all(keys: tuple[str | torch._C.DispatchKey, ...], verb: str) -> list[Any]:
    parsed = [_parse(key) for key in keys]
    for given, key in zip(keys, parsed, strict=True):
        functionality = _C._to_functionality_key(key)
        if functionality == key or (verb == "exclude" and functionality == _C.DispatchKey.AutogradFunctionality):
            continue
        effect = {
            "exclude": "leave out such kernels of every device on this thread, the CPU's too",
            "include": "send the tensors of every device on this thread, the CPU's too, to that one",
        }[verb]
        raise ValueError(
            f"cannot {verb} {given}, a key of a single back end: torch would {effect}. Autocast keys and keys without "
            "a back end can be named here; one kernel is reached by op.redispatch(torch._C.DispatchKeySet(key), ...)"
        )
    return parsed


def _parse(given: str | torch._C.DispatchKey) -> Any:
    if not isinstance(given, str):
        return given
    of_device = bool(_backend.device) and given.endswith(_backend.device)
    key = _C._parse_dispatch_key(given.removesuffix(_backend.device) + "PrivateUse1" if of_device else given)
    if key is None:
        raise ValueError(f"torch has no dispatch key '{given}': `dir(torch._C.DispatchKey)` lists them")
    return key
