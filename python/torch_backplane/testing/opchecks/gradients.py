"""The gradient formula: against finite differences, and the device's gradients against the CPU's."""

from __future__ import annotations

import torch
from torch.testing._internal.optests.autograd_registration import set_autograd_fallback_mode
from torch.utils._pytree import tree_map_only

from torch_backplane.testing.observe import tensors
from torch_backplane.testing.opchecks.call import AUTOGRAD_KEYS, Call, Failure, NothingToCheckError
from torch_backplane.testing.transfer import Transfer

_WIDE = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64}
_WIDE |= {torch.complex32: torch.complex128, torch.complex64: torch.complex128}


def gradcheck(call: Call) -> None:
    """The formula agrees with finite differences in float64, and the device's gradients with the CPU's.

    Where the device does not take float64, the differences are those of the CPU reference.
    """
    if not any(t.requires_grad for t in call.tensors):
        raise NothingToCheckError("no input requires grad")
    wide: Call | None = _widened(call)
    try:
        _widened(call).detached().run()
    except Exception:
        wide = _widened(call.on("cpu")) if call.has_kernel("CPU", "CompositeExplicitAutograd") else None
    if wide is None:
        raise NothingToCheckError("neither device nor CPU has a kernel that takes float64")
    with set_autograd_fallback_mode("nothing"):  # else results of an operator without a formula require grad
        _finite_differences(wide)
        _against_the_cpu(call)


def _widened(call: Call) -> Call:
    def widen(tensor: torch.Tensor) -> torch.Tensor:
        copy = tensor.detach().to(_WIDE.get(tensor.dtype, tensor.dtype))
        return copy.requires_grad_(tensor.requires_grad)

    return call.with_inputs(tree_map_only(torch.Tensor, widen, call.copy().inputs))


def _finite_differences(call: Call) -> None:
    places = [i for i, t in enumerate(call.tensors) if t.requires_grad]

    def function(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        tensors = call.tensors
        for place, tensor in zip(places, inputs, strict=True):
            tensors[place] = tensor
        found = call.with_tensors(tensors).run()
        differentiable = tuple(t for t in found if t.requires_grad)
        if not differentiable and torch.is_grad_enabled():
            raise Failure("no result requires grad, although an input does: the operator has no gradient formula")
        return differentiable or tuple(t for t in found if t.is_floating_point() or t.is_complex())

    inputs = tuple(call.tensors[place] for place in places)
    torch.autograd.gradcheck(function, inputs, fast_mode=True)


def _against_the_cpu(call: Call) -> None:
    if call.device.type == "cpu" or not call.has_reference() or call.is_random:
        return
    expected = _gradients(call.on("cpu"))
    if not expected:  # the reference has no formula
        return
    found = _gradients(call.copy())
    to_cpu = Transfer("cpu", source=call.device.type)
    call.close(to_cpu(found), expected, "the device's gradients are not the CPU reference's")


def _gradients(call: Call) -> dict[str, torch.Tensor]:
    """The gradients of a weighted sum of the results, by the position of the input."""
    inputs = {str(i): t for i, t in enumerate(call.tensors) if t.requires_grad}
    by_reference = call.reference is not None and call.device.type == "cpu"
    found = tensors(call.call_reference_with(*call.inputs)) if by_reference else call.run()
    results = [t for t in found if t.requires_grad]
    if not results:
        return {}
    weights = [torch.linspace(1, 2, t.numel()).to(t.dtype).view(t.shape).to(t.device) for t in results]
    grads = torch.autograd.grad(results, list(inputs.values()), weights, allow_unused=True)
    return {name: grad for name, grad in zip(inputs, grads, strict=True) if grad is not None}


def requiring_gradients(call: Call) -> Call:
    """The call with gradients for the inputs that the operator's formula has one for."""
    if not call.has_kernel(*AUTOGRAD_KEYS):
        return call
    copy = call.copy()
    places = [
        i
        for i, (t, written) in enumerate(zip(copy.tensors, copy.is_written(), strict=True))
        if (t.is_floating_point() or t.is_complex()) and not written
    ]
    for place in places:
        copy.tensors[place].requires_grad_()
    try:
        found = _gradients(copy)
    except RuntimeError:  # no formula
        return call
    tensors = [t.detach().requires_grad_() if str(i) in found else t for i, t in enumerate(call.tensors)]
    return call.with_tensors(tensors)
