"""Differences between versions of torch, and gaps in torch that the runtime fills.

Each says what makes it unnecessary.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

GONE = {
    "aten::_s_where": "aten::where.self",
    "aten::_cat": "aten::cat",
    "aten::_bmm": "aten::bmm",
    "aten::_cumsum": "aten::cumsum",
    "aten::_cumprod": "aten::cumprod",
    "aten::_index_copy_": "aten::index_copy",
    "aten::_inverse_helper": "aten::linalg_inv_ex",
    "aten::_amp_non_finite_check_and_unscale_": "aten::_amp_foreach_non_finite_check_and_unscale_",
    "aten::symeig": "aten::linalg_eigh",
    "aten::eig": "aten::linalg_eig",
    "aten::solve": "aten::linalg_solve",
    "aten::lstsq": "aten::linalg_lstsq",
    "aten::cholesky": "aten::linalg_cholesky",  # from 2.15 on
    "aten::qr": "aten::linalg_qr",  # from 2.15 on
}
"""Operators that a supported or older torch has and this or a later one does not, with their replacements."""

_REPLACED = "_backplane_replaced"

INDUCTOR_CLASSES = ("Scheduling", "PythonWrapperCodegen", "CppWrapperCodegen", "WrapperFxCodegen")
"""What Inductor looks up in the module of a device that is not registered; from 2.15 on only without the hook."""

INDUCTOR_HOOK = "_inductor_backend_init"
"""What Inductor calls in that module, under its lock, so that the device is registered: from 2.15 on."""


def replaces(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Decorate the function that replaces ``owner.name`` of torch; it gets torch's function, then the arguments.

    A second replacement of the same function does nothing, and neither does one of a function that this torch does not
    have.
    """
    known = getattr(owner, name, None)

    def replace(function: Callable[..., Any]) -> None:
        if known is None or hasattr(known, _REPLACED):
            return

        @functools.wraps(known)
        def call(*args: Any, **kwargs: Any) -> Any:
            return function(known, *args, **kwargs)

        setattr(call, _REPLACED, True)
        setattr(owner, name, call)

    return replace


def empty_host_cache() -> None:
    """Free cached pinned memory, as ``torch.accelerator.empty_host_cache``, which torch 2.11 has only for CUDA."""
    from torch_backplane import _backend

    getattr(torch.accelerator, "empty_host_cache", _backend.C.memory.empty_host_cache)()


def let_higher_order_ops_pass_autocast() -> None:
    """Let ``torch.cond`` and other higher-order operators run under ``torch.autocast`` of this device.

    torch gives them a fallthrough only for the autocast keys of CPU, CUDA and XPU. Needed on 2.11 to 2.15; unnecessary
    once ``AutocastPrivateUse1`` is in torch's own list.
    """
    key = torch._C.DispatchKey.AutocastPrivateUse1  # type: ignore[attr-defined]
    ops: Any = torch._ops
    defaults = ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS
    if key in defaults:
        return
    defaults.append(key)  # for operators made from now on
    for op in list(ops._higher_order_ops.values()):
        op.fallthrough(key)


def let_script_object_ops_pass_autocast() -> None:
    """Let operators that take a script object be traced under ``torch.autocast`` of this device.

    Given the object's fake, torch dispatches in Python and skips a fixed list of keys, which has no autocast key: "no
    kernel for AutocastPrivateUse1". Seen on 2.13; unnecessary once the key is in torch's own list.
    """
    key = torch._C.DispatchKey.AutocastPrivateUse1  # type: ignore[attr-defined]
    overload: Any = torch._ops.TorchBindOpOverload

    @replaces(overload, "_fallthrough_keys")
    def with_autocast(known: Any, self: Any) -> list[Any]:
        return [*known(self), *([] if self.has_kernel_for_dispatch_key(key) else [key])]


def share_random_states(name: str) -> None:
    """Let a compiled activation checkpoint draw the same numbers twice, by generators that share their state.

    torch has a list of devices whose generators can, and from 2.13 on a function that adds one; on an older torch this
    does nothing. Unnecessary once torch asks the generator.
    """
    from torch._functorch._aot_autograd import utils

    register = getattr(utils, "register_graphsafe_rng_device_type", None)
    if register is not None:
        register(name)


def override_kernel(library: torch.library.Library, name: str, function: Callable[..., Any], key: str) -> None:
    """Register a Python kernel that may override another, without a warning (2.13 and later) or an error (earlier)."""
    with overriding():
        library.impl(name, function, key, allow_override=True)


def autograd_kernel(
    op: torch._ops.OpOverload, backward: Callable[..., Any], setup_context: Callable[..., Any] | None
) -> Callable[..., Any]:
    """An autograd kernel from a formula, for one device. Unnecessary once ``register_autograd`` takes a device."""
    from torch._library.autograd import Info, make_autograd_impl

    return make_autograd_impl(op, Info(_backward_fn=backward, _setup_context_fn=setup_context))


def infer_schema(function: Callable[..., Any], mutates_args: Any, tags: Sequence[torch.Tag]) -> str:
    """``torch.library.infer_schema``, which takes tags from 2.13 on."""
    try:
        return torch.library.infer_schema(function, mutates_args=mutates_args, tags=tags)
    except TypeError as error:
        if "tags" not in str(error):
            raise
        return torch.library.infer_schema(function, mutates_args=mutates_args)


@contextmanager
def overriding() -> Iterator[None]:
    """Suppress torch's warning that a kernel overrides another."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(?s).*Overriding a previously registered kernel")
        yield


def destroy_custom_op(name: str) -> None:
    """Remove an operator of ``torch.library.custom_op``, which has no public function for that."""
    from torch._library.custom_ops import OPDEF_TO_LIB, OPDEFS

    library = OPDEF_TO_LIB.pop(name, None)
    OPDEFS.pop(name, None)
    if library is not None:
        library._destroy()


def set_missing_kernel_error(op: torch._ops.OpOverload, function: Callable[[str], Any]) -> None:
    """Call a function with the dispatch key instead of raising torch's error that an operator has no kernel."""
    handle = torch._C._dispatch_find_schema_or_throw(op._schema.name, op._schema.overload_name)
    torch._C._dispatch_set_report_error_callback(handle, function)


def follow_default_device(op: torch._ops.OpOverload) -> None:
    """Let ``torch.set_default_device`` and ``with torch.device(...)`` fill in an operator's keyword-only ``device``.

    They do so for a fixed set of functions. Unnecessary once torch asks the schema.
    """
    from torch.utils._device import _device_constructors

    _device_constructors().add(op)


def reduce_event_name() -> str:
    """The function of ``torch.multiprocessing.reductions`` that pickles an event: ``_reduce_event`` from 2.15 on."""
    from torch.multiprocessing import reductions

    return "reduce_event" if hasattr(reductions, "reduce_event") else "_reduce_event"
