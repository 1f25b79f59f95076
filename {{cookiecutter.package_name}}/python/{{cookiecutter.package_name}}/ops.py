"""Operators of our own. ``import {{ cookiecutter.package_name }}`` brings them into torch:

    torch.ops.{{ cookiecutter.package_name }}.swiglu(x)

Here is what they are: schema, reference, shape and gradient. What the device runs is in ``backend/operators``.
"""

import torch
from torch import Tensor
from torch_backplane.ops import custom_op


# The body is the reference: it runs on the CPU, and for a call that the device's kernel does not take.
@custom_op("{{ cookiecutter.package_name }}::swiglu", mutates_args=(), device_types="cpu")
def swiglu(x: Tensor) -> Tensor:
    """The gate of a transformer's feed-forward layer, in one kernel: with x = [gate, value], silu(gate) * value."""
    gate, value = _halves(x)
    return (torch.nn.functional.silu(gate) * value).contiguous()


@custom_op("{{ cookiecutter.package_name }}::swiglu_backward", mutates_args=(), device_types="cpu")
def swiglu_backward(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient of x."""
    gate, value = _halves(x)
    s = gate.sigmoid()
    return torch.cat([grad * value * s * (1 + gate * (1 - s)), grad * gate * s], -1).contiguous()


def _halves(x: Tensor) -> tuple[Tensor, ...]:
    torch._check(
        x.dim() > 0 and x.shape[-1] % 2 == 0,
        lambda: f"swiglu splits the last dimension of x in halves, and cannot split {tuple(x.shape)}",
    )
    return x.chunk(2, -1)


# Shape, dtype and strides without values, for torch.compile and torch.export. Kernel and reference keep to them.
@swiglu.register_fake
def _(x: Tensor) -> Tensor:
    gate, _ = _halves(x)
    return torch.empty_like(gate, memory_format=torch.contiguous_format)


@swiglu_backward.register_fake
def _(grad: Tensor, x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _save_inputs(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def _gradient(ctx, grad: Tensor) -> Tensor:
    return swiglu_backward(grad, *ctx.saved_tensors)


def _second_gradient(ctx, grad_x: Tensor) -> tuple[Tensor, Tensor]:
    grad, x = ctx.saved_tensors
    (gate, value), (of_gate, of_value) = _halves(x), _halves(grad_x)
    s = gate.sigmoid()
    first = s * (1 + gate * (1 - s))  # of silu
    second = s * (1 - s) * (2 + gate * (1 - 2 * s))
    gate_grad = grad * (of_gate * value * second + of_value * first)
    return of_gate * value * first + of_value * gate * s, torch.cat([gate_grad, grad * of_gate * first], -1)


swiglu.register_autograd(_gradient, setup_context=_save_inputs)
swiglu_backward.register_autograd(_second_gradient, setup_context=_save_inputs)
