"""How an operator runs on the device: the words for it, the way of a call by what is registered, and of past calls.

Coverage, :func:`torch_backplane.ops.explain`, the conformance kit and the report of a compiled program use it. No
operator runs for an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from torch_backplane import _backend, compiler, fallback
from torch_backplane.ops import registry

WAYS = ("refused", "fallback", "composite", "portable", "generated", "native")
"""How a call can run; the first needs a kernel most. ``refused``: it raises. ``fallback``: the CPU computes it.
``composite``: it calls other operators. ``portable``: a kernel of the SDK that the driver compiles. ``generated``: a
kernel that torch.compile wrote. ``native``: another kernel of the device, the vendor's or the core's."""

_DEFAULTS = "dispatch/defaults.cpp:"  # registers the kernels that a vendor's replace


@dataclass(frozen=True)
class Answer:
    """A word, for a call one of :data:`WAYS`, and details."""

    word: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.word}: {self.text}" if self.text else self.word


def worst(*ways: str) -> str:
    """The one that comes first in :data:`WAYS`; empty ones are ignored."""
    return min(filter(None, ways), key=WAYS.index, default="")


class Watch:
    """How the calls of its block ran, by the core's counters, which include all threads."""

    on_cpu: dict[str, int]
    """Operators that the CPU computed, with their calls."""
    _way = ""

    def __enter__(self) -> Watch:
        self._before, self._portable = fallback.calls(), _backend.C.kernels.portable_calls()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        after = fallback.calls()
        self.on_cpu = {op: more for op, calls in after.items() if (more := calls - self._before.get(op, 0)) > 0}
        self._way = "portable" if _backend.C.kernels.portable_calls() > self._portable else "native"

    @property
    def way(self) -> str:
        """How a single call ran; the first in :data:`WAYS`. Does not detect that it is composite, or raised."""
        return "fallback" if self.on_cpu else self._way


def way_of(op: str, keys: tuple[str, ...] = ("PrivateUse1",)) -> str:
    """One of :data:`WAYS` for an operator, by what is registered.

    It looks at the kernel that was registered directly: with a fallback for the whole device, the dispatcher has a
    computed entry for every operator.

    Args:
        op: a name such as ``"aten::add.Tensor"``.
        keys: the dispatch keys of its tensors.
    """
    sites = [kernel.site for kernel in registry.kernels(op) if kernel.active and kernel.key in keys]
    if sites:
        return of_kernel(op, sites[0]).word
    if registry.has_kernel(op, registry.NON_FUNCTIONAL) and (out := out_form(op)):
        return way_of(out, keys)
    return without_kernel(op).word


def of_kernel(op: str, site: str, dtype: torch.dtype | None = None) -> Answer:
    """How an operator runs that has a kernel for the device, registered at ``site``.

    In this order: the vendor's kernel, the SDK's portable one, the core's, torch's composition, the CPU. With a dtype,
    as far as it can be known without a call. Opens the driver.
    """
    kernels = _backend.C.kernels
    if _DEFAULTS in site and kernels.has_portable(op):
        return _portable(op, dtype)
    if needs := kernels.unmet_needs(op):
        return _portable(op, dtype, f"the kernel at {site} never runs on this driver: it needs {needs}")
    declared = kernels.declared_dtypes(op)
    if declared is None:
        note = "" if dtype is None else "; it declares no dtypes: only a call shows whether it supports this one"
        return Answer("native", site + note)
    names = ", ".join(map(_plain, declared))
    if dtype is None:
        return Answer("native", f"{site}; it takes {names}")
    computed = _computed_dtype(op, dtype)
    if computed is None:
        return Answer("native", f"{site}; it takes {names}, and only a call shows what this promotes to")
    promoted = "" if computed == dtype else f", to which torch promotes {_plain(dtype)}"
    if computed in declared:
        return Answer("native", f"{site}; it takes {_plain(computed)}{promoted}")
    return _portable(op, dtype, f"the kernel at {site} takes only {names}{promoted}")


def _portable(op: str, dtype: torch.dtype | None, why: str = "") -> Answer:
    """The answer for a compiled kernel, if there is one; ``why`` no other kernel runs."""
    if not _backend.C.kernels.has_portable(op):
        return without_kernel(op, dtype, why)
    because = f"{why}; " if why else ""
    if compiler.policy() == "off":
        return without_kernel(op, dtype, f"{because}compiled kernels are off")
    if not compiler.is_available():
        lacking = "for the portable kernel the driver needs bp.compiler of the dialect and bp.module"
        return without_kernel(op, dtype, f"{because}{lacking}")
    compiled = f"compiled for {compiler.target().name} when it is first called"
    return Answer("portable", f"{compiled}; {why}" if why else compiled)


def without_kernel(op: str, dtype: torch.dtype | None = None, why: str = "") -> Answer:
    """How an operator runs without a kernel of the vendor or of the portable library."""
    if _backend.C.kernels.has_default(op):
        return Answer("native", f"by the SDK's own kernel; {why}")
    because = f"; {why}" if why else ""
    if any(registry.has_kernel(op, key) for key in registry.COMPOSITE):
        return Answer("composite", f"of other operators{because}")
    answer = on_the_cpu(op, dtype)
    return Answer(answer.word, f"{why}; {answer.text}" if why else answer.text)


def on_the_cpu(op: str, dtype: torch.dtype | None = None) -> Answer:
    """The fallback's answer, by its policy and what it supports."""
    lacks = f"it has no kernel for {_backend.device}"
    if not fallback.is_registered():
        return Answer("refused", f"{lacks}, and no fallback is registered")
    if registry.overload(op).is_view:
        return Answer("refused", "a view of the device's memory cannot be made on the CPU: it needs a kernel")
    if not torch._C._dispatch_has_computed_kernel_for_dispatch_key(op, "CPU"):
        instead = _backend.C.fallback.instead_of(op)
        why = f"{lacks}, and the CPU has none to fall back to"
        return Answer("refused", f"{why}. {instead}" if instead else why)
    policies = {fallback.get_policy(name) for name in (op, op.partition(".")[0])}
    policy = (policies - {fallback.get_policy()} or policies).pop()
    if policy == "error":
        return Answer("refused", f"{lacks}, and the fallback's policy is 'error'")
    wider = "; in float32, rounded once, where it has no kernel for the half type"
    widened = _backend.C.fallback.widening() and dtype in (torch.float16, torch.bfloat16, torch.complex32)
    return Answer("fallback", f"the CPU computes it (policy '{policy}'{wider if widened else ''})")


def out_form(op: str) -> str | None:
    """The out= form from which torch derives a functional or in-place operator, or None."""
    wanted = [str(argument.type) for argument in registry.schema_of(op).arguments]
    for candidate in registry.overloads(op.partition(".")[0].removesuffix("_")):
        if registry.has_kernel(candidate, "CompositeExplicitAutograd"):  # it is made from the functional form
            continue
        schema = registry.schema_of(candidate)
        written = {argument.name for argument in registry.out_arguments(schema)}
        if written and [str(a.type) for a in schema.arguments if a.name not in written] == wanted:
            return candidate
    return None


def _computed_dtype(op: str, dtype: torch.dtype) -> torch.dtype | None:
    """The dtype in which torch computes for tensors of a dtype; None if only a call shows it.

    The operator is called with meta tensors: an integer that comes out as a floating-point number was promoted.
    """
    if dtype.is_floating_point or dtype.is_complex:
        return dtype
    required = [a for a in registry.schema_of(op).arguments if not a.has_default_value()]
    if any(str(a.type) != "Tensor" or a.kwarg_only for a in required):
        return None
    try:
        result = registry.overload(op)(*[torch.empty(2, 2, dtype=dtype, device="meta") for _ in required])
    except (RuntimeError, NotImplementedError, IndexError, TypeError):
        return None
    if not isinstance(result, torch.Tensor):
        return None
    return result.dtype if result.dtype.is_floating_point else dtype


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
