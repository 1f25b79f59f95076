"""The kernel on tensors that are not contiguous: inputs, what it writes to, and the gradients it gets."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.testing._internal.optests.autograd_registration import set_autograd_fallback_mode

from torch_backplane.testing.opchecks.call import Call, NothingToCheckError


def noncontiguous(call: Call) -> None:
    """Strides and offsets change no result: inputs with gaps, transposed inputs, and gradients with both.

    A layout that the CPU reference refuses, the device may refuse.
    """
    if not any(_can_be_laid_out(t) for t in call.tensors):
        raise NothingToCheckError("no input has two elements")
    if call.is_random:
        raise NothingToCheckError("its random numbers may follow the layout")
    expected = call.detached().copy().run()
    refused = 0
    layouts = {"with gaps between its elements": _with_gaps, "transposed": _transposed}
    for what, layout in layouts.items():
        laid_out = [layout(t) if _can_be_laid_out(t) else (t, None) for t in call.detached().copy().tensors]
        before = [None if gap is None else gap.clone() for _, gap in laid_out]
        other = call.with_tensors([t for t, _ in laid_out])
        try:
            found = other.run(in_place=True)
        except Exception:
            if _refused_on_cpu(other):
                refused += 1
                continue
            raise
        call.close(found, expected, f"every input {what}")
        for old, (_, new) in zip(before, laid_out, strict=True):
            if old is not None:
                call.close(new, old, f"every input {what}: the kernel wrote to a gap", rtol=0, atol=0)
    with set_autograd_fallback_mode("nothing"):
        _gradients(call)
    if refused == len(layouts):
        raise NothingToCheckError("the CPU reference refuses inputs that are not contiguous")


def _refused_on_cpu(call: Call) -> bool:
    if call.device.type == "cpu" or not call.has_reference():
        return False
    try:
        call.call_reference_with(*call.on("cpu").inputs)
    except Exception:
        return True
    return False


def _gradients(call: Call) -> None:
    if not any(t.requires_grad for t in call.tensors):
        return
    call = call.copy()
    inputs = [t for t in call.tensors if t.requires_grad]

    def backward(layout: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor] | None:
        results = [t for t in call.run() if t.requires_grad]
        if not results:
            return None
        weights = [layout(torch.linspace(1, 2, t.numel(), device=t.device).to(t.dtype).view(t.shape)) for t in results]
        return [g for g in torch.autograd.grad(results, inputs, weights, allow_unused=True) if g is not None]

    try:
        expected = backward(lambda weight: weight)
    except RuntimeError:  # no formula, which gradcheck reports
        return
    if expected is None:
        return
    call.close(backward(lambda w: _with_gaps(w)[0]), expected, "gradients, given gradients with gaps")
    call.close(backward(lambda w: _transposed(w)[0]), expected, "gradients, given transposed gradients")
    ones = backward(torch.ones_like)
    expanded = backward(lambda w: torch.ones((), dtype=w.dtype, device=w.device).expand(w.shape))
    call.close(expanded, ones, "gradients, given one number expanded, as by sum()")


def _can_be_laid_out(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_nested and tensor.numel() > 1


def _with_gaps(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Every second element, from the second on, and the gaps. They hold NaN, or numbers that occur in the tensor."""
    if tensor.is_floating_point() or tensor.is_complex():
        gap = torch.full_like(tensor, float("nan"))
    else:
        gap = tensor.flatten().roll(1).view(tensor.shape)
    base = torch.stack([gap, tensor], dim=-1)
    return base.select(-1, 1), base.select(-1, 0)


def _transposed(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    return (tensor.transpose(0, -1).contiguous().transpose(0, -1) if tensor.dim() > 1 else tensor), None
