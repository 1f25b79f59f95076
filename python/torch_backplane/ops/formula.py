"""Gradient formulas of custom operators: refused where they could not work, before they are registered."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from torch_backplane import _backend
from torch_backplane.ops import registry, signature

__all__ = ["check_free", "check_not_cut_off", "check_setup_context", "with_constant_outputs"]


def check_free(name: str, keys: Sequence[str]) -> None:
    """Refuse a formula for an operator that has an autograd kernel: one of the two would never run.

    Args:
        name: the operator's.
        keys: where a kernel is somebody else's.

    Raises:
        ValueError: it has one; the message says where it was registered.
    """
    for kernel in registry.kernels(name):
        if kernel.key in keys and kernel.active:
            where = f"for {_backend.device}" if kernel.key == "AutogradPrivateUse1" else f"under {kernel.key}"
            raise ValueError(
                f"{name} has an autograd kernel {where} already, registered at {kernel.site}: leave the formula out, "
                "or that kernel"
            )


def check_not_cut_off(name: str, device: str) -> None:
    """Refuse a kernel for a composite operator without a formula: its gradient comes from its parts, and would be lost.

    Raises:
        ValueError: it is one.
    """
    kept = ("Autograd", "AutogradPrivateUse1")
    if registry.has_kernel(name, "CompositeImplicitAutograd") and not any(registry.has_kernel(name, k) for k in kept):
        raise ValueError(
            f"{name} is a composite operator: its gradient comes from the operators that it is made of, and a kernel "
            f"for {device} would silently lose it. Register the formula first, by register_autograd, or write kernels "
            "for its parts"
        )


def check_setup_context(name: str, schema: Any, function: Callable[..., Any] | None) -> None:
    """Refuse a function that torch could not call.

    Raises:
        TypeError: its parameters are others.
    """
    if function is None:
        return
    keyword_only = any(argument.kwarg_only for argument in schema.arguments)
    wanted = ["ctx", "inputs", *(["keyword_only_inputs"] if keyword_only else []), "output"]
    try:
        inspect.signature(function).bind(**dict.fromkeys(wanted))
    except TypeError as error:
        raise TypeError(
            f"setup_context of {name} at {signature.site(function)} is called with keywords: {error}. "
            f"Write: def setup_context({', '.join(wanted)})"
        ) from None


def with_constant_outputs(
    name: str, schema: Any, setup_context: Callable[..., Any] | None, differentiable: Sequence[bool] | None
) -> Callable[..., Any] | None:
    """A ``setup_context`` that marks outputs as not differentiable, before the given one runs.

    Raises:
        TypeError: not a list of bools.
        ValueError: not as many as outputs, or one that is no tensor.
    """
    if differentiable is None:
        return setup_context
    if not isinstance(differentiable, list | tuple) or not all(isinstance(one, bool) for one in differentiable):
        raise TypeError(f"output_differentiability of {name} is a list of bools, and not {differentiable!r}")
    if len(differentiable) != len(schema.returns):
        raise ValueError(
            f"output_differentiability of {name} has {len(differentiable)} values, and the operator "
            f"{len(schema.returns)} outputs: {schema}"
        )
    constant = [i for i, one in enumerate(differentiable) if not one]
    for i in constant:
        if str(schema.returns[i].type) not in ("Tensor", "List[Tensor]"):
            raise ValueError(
                f"output {i} of {name} is {schema.returns[i].type}, which has no gradient: "
                "output_differentiability is of tensors, leave it True"
            )

    def setup(ctx: Any, inputs: Any, output: Any, **keyword_only: Any) -> None:
        outputs = output if len(schema.returns) > 1 else (output,)
        marked = [outputs[i] for i in constant]
        ctx.mark_non_differentiable(*(t for one in marked for t in (one if isinstance(one, list | tuple) else [one])))
        if setup_context is not None:
            setup_context(ctx=ctx, inputs=inputs, output=output, **keyword_only)

    return setup
