"""The checks of torch's opcheck, on a device that it does not support: schema, autograd registration, fake, AOT."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException
from torch.testing._internal import optests
from torch.testing._internal.optests.autograd_registration import set_autograd_fallback_mode
from torch.testing._internal.optests.generate_tests import safe_schema_check
from torch.utils._pytree import tree_any_only, tree_leaves, tree_map_only

from torch_backplane.ops import registry
from torch_backplane.testing.opchecks.call import AUTOGRAD_KEYS, Call, Failure, NothingToCheckError


def schema(call: Call) -> None:
    """The kernel mutates and aliases what its schema declares."""
    safe_schema_check(call.op, *call.copy().inputs, copy_inputs=False)


def autograd_registration(call: Call) -> None:
    """Gradients are made at an autograd key, not recorded by a kernel below it."""
    if not any(tensor.requires_grad for tensor in call.tensors):
        raise NothingToCheckError("no input requires grad")
    if call.device.type == "cpu":
        optests.autograd_registration_check(call.op, *call.copy().inputs)
        return
    # torch's check supports the autograd keys of CPU, CUDA and XPU only.
    if call.has_kernel(*AUTOGRAD_KEYS):
        return
    call = call.copy()
    with set_autograd_fallback_mode("nothing"):  # else torch itself makes outputs require grad, to warn in backward
        found = call.op(*call.args, **call.kwargs)
    inputs = {id(tensor) for tensor in call.tensors}
    if not tree_any_only(torch.Tensor, lambda tensor: tensor.requires_grad and id(tensor) not in inputs, found):
        return
    sites = [k for k in registry.kernels(call.op.name()) if k.active and k.key in _BELOW_AUTOGRAD]
    where = "".join(f"\n  {kernel.key}: {kernel.site}" for kernel in sites)
    raise Failure(f"a result requires grad, but no autograd key has a kernel. Registered are:{where}")


_BELOW_AUTOGRAD = ("PrivateUse1", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


def fake(call: Call) -> None:
    """The fake returns what the kernel returns, except for the values."""
    optests.fake_check(call.op, *call.copy().inputs)


def _aot(call: Call, dynamic: bool) -> None:
    def function(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = tree_map_only(torch.Tensor, torch.clone, (args, kwargs))
        return call.op(*args, **kwargs)

    if not any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(call.inputs)):
        raise NothingToCheckError("no argument is a tensor")
    try:
        optests.aot_autograd_check(
            function,
            *call.copy().inputs,
            dynamic,
            check_gradients="auto",
            assert_equals_fn=partial(torch.testing.assert_close, equal_nan=True, **call.tolerance),
        )
    except DynamicOutputShapeException as error:
        if dynamic:
            raise
        raise NothingToCheckError(
            "the shape of its result depends on values: only a symbol can represent it"
        ) from error


def aot_static(call: Call) -> None:
    """Results and gradients under AOTAutograd, as torch.compile has them, are those of eager mode."""
    _aot(call, dynamic=False)


def aot_dynamic(call: Call) -> None:
    """The same with sizes that are symbols."""
    _aot(call, dynamic=True)
