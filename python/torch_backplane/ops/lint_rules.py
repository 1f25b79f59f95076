"""Mistakes in registrations that are not noticed: the rules of ``torch-backplane lint-ops``, one per function.

A rule yields findings from the dispatcher's state; it runs no operator. docs/lint-ops.md has a row for each.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS
from torch._library.simple_registry import singleton

from torch_backplane import _backend, compat, fallback
from torch_backplane.ops import pairs, registry, signature

# Keys of tensors on the device.
_LAYOUTS = tuple(f"{layout}PrivateUse1" for layout in ("", "Sparse", "SparseCsr", "Quantized", "NestedTensor"))
_KEYS = (*_LAYOUTS, "AutogradPrivateUse1", "AutocastPrivateUse1")
_OTHER_AUTOCASTS = ("AutocastCPU", "AutocastCUDA", "AutocastXPU", "AutocastMPS", "AutocastMTIA", "AutocastHPU")

TORCHS = frozenset(
    "aten prim prims rngprims debugprims inductor_prims nvprims quantized quantized_decomposed _quantized quantization "
    "onednn mkl mkldnn mkldnn_prepacked prepacked sparse inductor _inductor_test higher_order profiler static_runtime "
    "c10d c10d_functional _c10d_functional _c10d_functional_autograd _dtensor symm_mem fsdp streams export cuda "
    "bucketing _native _native_aot coor _test debug_mode_ops flex_lib flex_gemm fbgemm dist".split()
)
"""Namespaces of torch's own operators, whose other registrations are torch's task."""


@dataclass(frozen=True)
class Finding:
    """One mistake, or missing registration."""

    rule: str
    level: str
    """``"error"`` (a wrong result, a lost gradient, a kernel that never runs) or ``"warning"`` (slower, or fails later,
    where another way exists)."""
    op: str
    """``"aten::add.Tensor"``; for a dispatch key's fallback, the key."""
    where: str
    """``file:line`` of the registration, as far as torch knows it."""
    what: str
    why: str
    """The consequence, the same for each finding of the rule."""
    write: str
    """The line to write, or what to remove."""

    def __str__(self) -> str:
        return f"{self.where}: {self.rule}: {self.what}. {self.why}. {self.write}"


@dataclass
class Facts:
    """The dispatcher's state for the device, read once per run."""

    namespace: str | None = None
    """Check only this namespace."""
    _asked: dict[str, list[str]] = field(default_factory=dict)
    _undefined: frozenset[str] = field(default_factory=lambda: frozenset(op for op, _ in _all_dangling()))

    def takes(self, op: str) -> bool:
        """Whether an operator is in a checked namespace."""
        return self.namespace is None or op.startswith(f"{self.namespace}::")

    def registered(self, *keys: str) -> list[str]:
        """Operators with a direct kernel for one of the keys, except undefined ones."""
        for key in keys:
            if key not in self._asked:
                found = torch._C._dispatch_get_registrations_for_dispatch_key(key)
                self._asked[key] = [op for op in found if self.takes(op) and op not in self._undefined]
        return sorted({op for key in keys for op in self._asked[key]})

    def own(self) -> list[str]:
        """Operators with a kernel for the device that are not torch's."""
        return [op for op in self.registered(*_LAYOUTS) if _is_vendors(op)]

    def site(self, op: str, *keys: str) -> str:
        """Where an operator's kernel for the first of the keys that has one was registered."""
        if op in OPDEFS and _backend.device in OPDEFS[op]._backend_fns:  # registered by torch, for a function
            return signature.site(_given(OPDEFS[op]._backend_fns[_backend.device]))
        return registry.site_of(op, *keys) or "unknown"


@dataclass(frozen=True)
class Rule:
    """A rule of the table."""

    name: str
    level: str
    why: str
    find: Callable[[Facts], Iterator[tuple[str, str, str, str]]]
    """Yields operator, place, what, and what to write."""
    at_import: bool
    """Whether it is quick enough for each import of a development build."""

    def findings(self, facts: Facts) -> Iterator[Finding]:
        """Apply the rule."""
        for op, where, what, write in self.find(facts):
            yield Finding(self.name, self.level, op, where, what, self.why, write)


RULES: dict[str, Rule] = {}
"""By name, in the order in which they run and are reported."""

_Found = Iterator[tuple[str, str, str, str]]


def _rule(name: str, level: str, why: str, at_import: bool = True) -> Callable[[Callable[[Facts], _Found]], Any]:
    def add(find: Callable[[Facts], _Found]) -> Callable[[Facts], _Found]:
        RULES[name] = Rule(name, level, why, find, at_import)
        return find

    return add


@_rule("unknown-op", "error", "torch silently keeps the kernel and never calls it")
def _unknown_op(facts: Facts) -> _Found:
    for op, site in [*_refused_as_unknown(facts), *_dangling(facts)]:
        near = _nearest(op)
        if op not in compat.GONE and (near or op.partition("::")[0] in TORCHS):
            hint = (
                f"Did you mean {', '.join(near)}" if near else "torch._C._dispatch_get_all_op_names() lists all names"
            )
            yield op, site, f"there is no operator '{op}' in torch {torch.__version__}", hint


@_rule("gone-op", "error", "torch silently keeps the kernel and never calls it")
def _gone_op(facts: Facts) -> _Found:
    for op, site in [*_refused_as_unknown(facts), *_dangling(facts)]:
        if op in compat.GONE:
            write = f"Register the kernel for {compat.GONE[op]} instead"
            yield op, site, f"torch {torch.__version__} no longer has '{op}'", write


@_rule("dangling-impl", "error", "nothing defines the operator, so the kernel cannot be called")
def _dangling_impl(facts: Facts) -> _Found:
    for op, site in _dangling(facts):
        namespace, _, name = op.partition("::")
        if op not in compat.GONE and namespace not in TORCHS and not _nearest(op):
            define = f'TORCH_LIBRARY_FRAGMENT({namespace}, m) {{ m.def("{name}(...) -> ..."); }}'
            write = f"Define it, {define}, or import the Python module that does before the kernels are used"
            yield op, site, f"a kernel of '{op}', which is not defined", write


@_rule("signature", "error", "the call raises, or hands the kernel the wrong arguments")
def _signature(facts: Facts) -> _Found:
    for site, reason in _refused():
        op = "".join(re.findall(r"\w+::[\w.]+", reason)[:1])
        if "there is no operator" in reason or not facts.takes(op):
            continue
        forms = re.findall(r"^ *kernel \d: (.+)$", reason, re.MULTILINE)  # torch names the expected one first
        reported = f"the kernel is {forms[1]}" if len(forms) == 2 else " ".join(reason.split())
        yield op, site, f"{op}: {reported}", f"Write: {forms[0]}" if len(forms) == 2 else "Give it torch's signature"
    for op, what, function in _python_functions(facts):
        schema = registry.schema_of(op)
        if wrong := _does_not_take(function, schema):
            yield (
                op,
                signature.site(function),
                f"{what} of {schema} {wrong}",
                f"Write: {signature.line(function, schema)}",
            )


# At import, torch itself warns of it.
@_rule("duplicate-impl", "error", "which of them runs depends on the order of linking or importing", at_import=False)
def _duplicate_impl(facts: Facts) -> _Found:
    from torch_backplane.ops import kernels

    for op in facts.registered(*_KEYS):
        if "PrivateUse1 (inactive)" not in torch._C._dispatch_dump(op):
            continue
        found: dict[str, list[str]] = {}
        for kernel in registry.kernels(op):
            found.setdefault(kernel.key, []).append(kernel.site)
        for key, sites in found.items():
            if len(sites) > 1 and "PrivateUse1" in key and not (key == "PrivateUse1" and kernels._active.get(op)):
                first, *rest = sites
                what = f"{len(sites)} kernels of {op} for {key}: the one at {first} goes before {', '.join(rest)}"
                write = "Remove one; to try a kernel in Python, torch_backplane.kernel(op, function, override=True)"
                yield op, first, what, write


@_rule("lost-autograd", "error", "a backward through it silently leaves the gradients None")
def _lost_autograd(facts: Facts) -> _Found:
    for op in facts.registered("PrivateUse1"):
        if (
            registry.has_kernel(op, "CompositeImplicitAutograd")
            and not registry.has_formula(op)
            and _differentiable(registry.schema_of(op))
        ):
            what = f"{op} is made of other operators, whose gradients a kernel for the device cuts off"
            write = (
                "Register the kernel for AutogradPrivateUse1 too, with the formula (torch_backplane.kernel(..., "
                "backward=...) in Python), or write kernels for its parts: `torch-backplane coverage` lists them"
            )
            yield op, facts.site(op, "PrivateUse1"), what, write


@_rule("no-autograd", "warning", "a backward through it leaves the gradients None; torch only warns")
def _no_autograd(facts: Facts) -> _Found:
    for op in facts.own():
        schema = registry.schema_of(op)
        if not _differentiable(schema) or schema.is_mutable or registry.has_kernel(op, "CompositeImplicitAutograd"):
            continue
        definition = OPDEFS.get(op)
        missing = definition._backward_fn is None if definition is not None else not registry.has_formula(op)
        if missing and not _declared_without_gradient(op):
            what = f"{op} has a kernel for the device and no formula for its gradient"
            write = (
                f'torch.library.register_autograd("{op}", backward, setup_context=...); if it has no gradient: '
                f'library.impl("{op.partition("::")[2]}", torch.library.fallthrough_kernel, "AutogradPrivateUse1")'
            )
            yield op, facts.site(op, *_LAYOUTS), what, write


@_rule("no-fake", "warning", "torch.compile, torch.export and FakeTensorMode fail at it")
def _no_fake(facts: Facts) -> _Found:
    for op in facts.own():
        if not _has_fake(op) and _gives_tensors(registry.schema_of(op)):
            what = f"{op} has a kernel for the device and no fake that computes its result's shape and dtype"
            yield op, facts.site(op, *_LAYOUTS), what, f'torch.library.register_fake("{op}")(function)'


@_rule("half-pair", "warning", "training runs this half on the CPU, each step", at_import=False)
def _half_pair(facts: Facts) -> _Found:
    table = pairs.table()
    missing: dict[str, list[str]] = {}
    for op in facts.registered("PrivateUse1"):
        others = table.get(op.partition(".")[0], ())
        if not others or "backplane/backend/" in facts.site(op, "PrivateUse1"):  # the SDK's own
            continue
        for other in others:
            if _wants_kernel(other):
                missing.setdefault(other, []).append(op)
    for other, ops in missing.items():
        have = "has a kernel" if len(ops) == 1 else "have kernels"
        what = f"{', '.join(ops)} {have} for the device, {other} has none"
        form = min(registry.overloads(other))
        write = f"Write a kernel of {form}; its schema: {registry.schema_of(form)}"
        yield other, facts.site(ops[0], "PrivateUse1"), what, write


@_rule("never-runs", "warning", "its operators run on the CPU, and what was written for the device is not used", False)
def _never_runs(facts: Facts) -> _Found:
    found: dict[tuple[str, str], list[str]] = {}
    for op in facts.registered("PrivateUse1"):
        if needs := _backend.C.kernels.unmet_needs(op):
            file = facts.site(op, "PrivateUse1").rpartition(":")[0]
            found.setdefault((file, needs), []).append(op)
    for (file, needs), ops in found.items():
        what = f"{len(ops)} kernels of this file ({', '.join(ops)}) never run on this driver: they need {needs}"
        write = "Write kernels of the vendor's own work (backplane::NativeLaunch), or take the file out of the build"
        yield ops[0], file, what, write


@_rule("replaced-fallback", "error", "when its library goes, the key has no fallback at all, and every operator fails")
def _replaced_fallback(facts: Facts) -> _Found:
    if facts.namespace is not None:
        return
    wanted = {"AutogradPrivateUse1": "VariableFallbackKernel", "AutocastPrivateUse1": "autocast.cpp"}
    if fallback.is_registered():
        wanted["PrivateUse1"] = "fallback/call.cpp"
    found = registry.fallbacks()
    for key, file in wanted.items():
        site = found.get(key)
        if site is None:
            write = f"Keep the library that took it: a fallback of {key} that is replaced is gone for good with it"
            yield key, "unknown", f"the fallback of {key} is gone", write
        elif file not in site:
            write = "Remove it, and use torch_backplane.fallback.hook to see every call, or a kernel for the operator"
            yield key, site, f"the fallback of {key} is replaced by another", write


@_rule("autocast-hole", "warning", "under torch.autocast it computes in other dtypes than on other devices, or raises")
def _autocast_hole(facts: Facts) -> _Found:
    for op in facts.registered(*_OTHER_AUTOCASTS):
        if registry.has_kernel(op, "AutocastPrivateUse1"):
            continue
        own = _is_vendors(op)
        if own and not any(registry.has_kernel(op, key) for key in _LAYOUTS):
            continue
        if not own and not (registry.has_kernel(op, "AutocastCUDA") and _can_run(op)):
            continue
        elsewhere = facts.site(op, *_OTHER_AUTOCASTS)
        what = f"{op} has an autocast rule for other devices and none for {_backend.device}"
        yield op, elsewhere, what, f'torch.library.register_autocast("{op}", "{_backend.device}", dtype)'


def _nearest(op: str) -> list[str]:
    """Of the same namespace."""
    return [near for near in registry.nearest(op) if near.partition("::")[0] == op.partition("::")[0]]


def _is_vendors(op: str) -> bool:
    return op.partition("::")[0] not in TORCHS


def _dangling(facts: Facts) -> Iterator[tuple[str, str]]:
    """Kernels of undefined operators, and their places: for the device, or in the checked namespace."""
    for op, kernels in _all_dangling():
        ours = facts.namespace is not None or any("PrivateUse1" in kernel.key for kernel in kernels)
        if ours and facts.takes(op):
            yield op, ", ".join(kernel.site for kernel in kernels)


def _all_dangling() -> Iterator[tuple[str, list[registry.Kernel]]]:
    for text in torch._C._dispatch_find_dangling_impls():
        yield re.findall(r"^name: (\S+)", text, re.MULTILINE)[0], registry.parse_kernels(text)


def _refused() -> Iterator[tuple[str, str]]:
    """Failed registrations of C++: place and reason."""
    for error in _backend.C.kernels.registration_errors():
        if found := re.match(r"(\S+:\d+): (.*)", error, re.DOTALL):
            yield found[1], found[2]


def _refused_as_unknown(facts: Facts) -> Iterator[tuple[str, str]]:
    for site, reason in _refused():
        found = re.match(r"there is no operator (\S+)", reason)
        if found and facts.takes(found[1]):
            yield found[1], site


def _python_functions(facts: Facts) -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """Functions that torch keeps accessible: of custom operators, and fakes."""
    for op, definition in sorted(OPDEFS.items()):
        function = definition._backend_fns.get(_backend.device)
        if function is not None and _is_vendors(op) and facts.takes(op) and registry.exists(op):
            yield op, "the kernel", _given(function)
    for op, entry in sorted(singleton._data.items()):
        fake = entry.fake_impl.kernel
        if fake is not None and _is_vendors(op) and facts.takes(op) and registry.exists(op):
            yield op, "the fake", fake.func


def _given(wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """The function that a custom operator was given; torch keeps it inside another, which takes anything."""
    inner: Any = inspect.unwrap(wrapper)
    names = getattr(getattr(inner, "__code__", None), "co_freevars", ())
    return inner.__closure__[names.index("fn")].cell_contents if "fn" in names else inner


def _does_not_take(function: Callable[..., Any], schema: Any) -> str:
    """Why a function cannot be called with a schema's arguments: all of them, or only those without default."""
    try:
        taken = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin, or a compiled function
        return ""
    for arguments in (schema.arguments, [a for a in schema.arguments if not a.has_default_value()]):
        positional = [a.name for a in arguments if not a.kwarg_only]
        try:
            taken.bind(*positional, **{a.name: None for a in arguments if a.kwarg_only})
        except TypeError as error:
            return f"cannot be called with its arguments: {error}"
    return ""


def _differentiable(schema: Any) -> bool:
    """Whether it takes and returns tensors, and is not an out= form."""
    takes_tensors = any("Tensor" in str(argument.type) for argument in schema.arguments)
    return takes_tensors and _gives_tensors(schema) and not registry.out_arguments(schema)


def _gives_tensors(schema: Any) -> bool:
    return any("Tensor" in str(result.type) for result in schema.returns)


def _declared_without_gradient(op: str) -> bool:
    key = "AutogradPrivateUse1"
    return registry.has_kernel(op, key) and torch._C._dispatch_kernel_for_dispatch_key_is_fallthrough(op, key)


def _has_fake(op: str) -> bool:
    definition = OPDEFS.get(op)
    if definition is not None:  # torch gives each custom operator a fake, which raises where the vendor's is missing
        return definition._abstract_fn is not None
    if any(registry.has_kernel(op, key) for key in ("Meta", *registry.COMPOSITE)):
        return True
    entry = singleton._data.get(op)
    return entry is not None and entry.fake_impl.kernel is not None


def _wants_kernel(op: str) -> bool:
    """Whether an operator exists for dense tensors, and no overload of it has a kernel or is made of others."""
    overloads = registry.overloads(op)  # none: not an operator, but a function inside torch
    if not any(registry.has_kernel(overload, "CPU") for overload in overloads) and "overrideable" not in op:
        return False
    for overload in overloads:
        # The composite kernel of an out= form is a copy of the functional one's result; an overrideable one's raises.
        made_of_others = not registry.schema_of(overload).is_mutable and "overrideable" not in op
        composite = made_of_others and any(registry.has_kernel(overload, key) for key in registry.COMPOSITE)
        if composite or (registry.has_kernel(overload, "PrivateUse1") and not _is_default(overload)):
            return False
    return True


def _is_default(op: str) -> bool:
    """Whether its kernel is one of the SDK's that a vendor's replaces."""
    return "dispatch/defaults" in registry.site_of(op, "PrivateUse1")


def _can_run(op: str) -> bool:
    return any(registry.has_kernel(op, key) for key in ("CPU", *_LAYOUTS, *registry.COMPOSITE))
