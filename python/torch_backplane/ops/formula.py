"""Checks of gradient formulas of custom operators, before they are registered."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from torch_backplane import _backend
from torch_backplane.ops import registry, signature


def check_free(name: str, keys: Sequence[str]) -> None:
    """Refuse a formula for an operator that has an autograd kernel: one of the two would never run.

    Args:
        name: the operator's.
        keys: keys whose kernels were not registered by the operator's object.

    Raises:
        ValueError: it has one; the message says where it was registered.
    """
    for key in keys:
        if site := registry.site_of(name, key):
            where = f"for {_backend.device}" if key == "AutogradPrivateUse1" else f"under {key}"
            raise ValueError(
                f"{name} has an autograd kernel {where} already, registered at {site}: omit the formula, or remove "
                "that kernel"
            )


def check_not_cut_off(name: str, device: str, how: str) -> None:
    """Refuse a kernel for a composite operator without a formula: its gradient comes from its parts, and would be lost.

    Args:
        name: the operator's.
        device: of the kernel.
        how: the caller registers a formula, for the message.

    Raises:
        ValueError: it is one.
    """
    if registry.has_kernel(name, "CompositeImplicitAutograd") and not registry.has_formula(name):
        raise ValueError(
            f"{name} is a composite operator: its gradient comes from the operators that it is made of, and a kernel "
            f"for {device} would silently lose it. {how}, or write kernels for its parts (`torch-backplane coverage` "
            "lists them)"
        )


def check_setup_context(name: str, schema: Any, function: Callable[..., Any] | None) -> None:
    """Refuse a function that torch could not call.

    Raises:
        TypeError: it does not take the parameters that torch passes.
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
        ValueError: their number differs from that of outputs, or False is given for an output that is no tensor.
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
                "output_differentiability only applies to tensors, leave it True"
            )

    def setup(ctx: Any, inputs: Any, output: Any, **keyword_only: Any) -> None:
        outputs = output if len(schema.returns) > 1 else (output,)
        marked = [outputs[i] for i in constant]
        ctx.mark_non_differentiable(*(t for one in marked for t in (one if isinstance(one, list | tuple) else [one])))
        if setup_context is not None:
            setup_context(ctx=ctx, inputs=inputs, output=output, **keyword_only)

    return setup
