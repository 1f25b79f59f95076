"""The dispatcher's thread-local guards as context managers: which keys calls of this thread exclude or include.

A kernel that calls operators may need them. Below torch's own formulas nothing is recorded; but a vendor's operator
without a formula reaches its kernel with autograd enabled, and its calls are recorded; and a kernel on the autograd key
that calls its operator recurses infinitely.

They apply to tensors of every device on this thread only, and end with the block, also by an exception. They nest. Each
call makes one context; as a decorator, each call of the function is a block::

    @torch_backplane.ops.guards.below_autograd()
    def my_kernel(x): ...

Do not ``yield`` inside one: the state would apply to the code that runs between a generator's steps.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from torch_backplane import _backend

__all__ = ["State", "below_adinplaceorview", "below_autograd", "exclude", "force", "include", "state"]

_C: Any = torch._C


@contextlib.contextmanager
def below_autograd() -> Iterator[None]:
    """Call operators below autograd and autocast: nothing is recorded, results require no gradient.

    For all devices. Views are still tracked as views of their base. ``torch.no_grad()`` differs: it calls the autograd
    kernels, which then record nothing; a kernel on the autograd key would call itself.
    """
    with _C._AutoDispatchBelowAutograd():
        yield


@contextlib.contextmanager
def below_adinplaceorview() -> Iterator[None]:
    """Call operators below autograd, autocast, and the tracking of views and versions.

    For all devices. A view that is made here is a plain tensor that shares memory, and writing in place does not
    increment the version: a backward pass that saved the tensor does not detect it. Kernels of torch itself run here;
    use this guard for a kernel that an autograd kernel calls.
    """
    with _C._AutoDispatchBelowADInplaceOrView():
        yield


@contextlib.contextmanager
def exclude(*keys: str | torch._C.DispatchKey) -> Iterator[None]:
    """Exclude keys, for example ``"AutogradPrivateUse1"`` or ``"AutocastPrivateUse1"``.

    Here torch has one autograd key for all devices: excluding ``"AutogradPrivateUse1"`` disables autograd for the CPU's
    tensors on this thread as well. The autocast keys are separate.

    Args:
        keys: by name or as a ``DispatchKey``. A name may end in the device's name, as in torch's messages
            (``"Autogradmydevice"``).

    Raises:
        ValueError: no such key, or a key of kernels (``"PrivateUse1"``, ``"SparseCPU"``): torch would exclude the
            kernels of every device, including the CPU.
    """
    excluded = _C.DispatchKeySet(_C.DispatchKey.Undefined)
    for key in _parse_all(keys, "exclude"):
        excluded = excluded | _C.DispatchKeySet(key)
    with _C._ExcludeDispatchKeyGuard(excluded):
        yield


@contextlib.contextmanager
def include(*keys: str | torch._C.DispatchKey) -> Iterator[None]:
    """Include keys that the tensors do not have, for example ``"AutocastPrivateUse1"`` or ``"Python"``.

    An excluded key stays excluded.

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


class State(NamedTuple):
    """What a thread includes and excludes, as key sets."""

    included: torch._C.DispatchKeySet
    excluded: torch._C.DispatchKeySet


def state() -> State:
    """The state of this thread; the autocast keys are excluded where autocast is off."""
    return State(_C._dispatch_tls_local_include_set(), _C._dispatch_tls_local_exclude_set())


@contextlib.contextmanager
def force(given: State) -> Iterator[None]:
    """Replace the state of this thread by that of another thread, or by an earlier one.

    For a kernel that passes work to its own thread: ``before = state()`` here, ``with force(before):`` there.
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
            "exclude": "exclude such kernels of every device on this thread, including the CPU",
            "include": "send the tensors of every device on this thread, including the CPU's, to that one",
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
