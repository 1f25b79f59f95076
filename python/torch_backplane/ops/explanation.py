"""The way of an operator's call through the dispatcher: which keys it passes, what runs, and what else there is of it.

It asks for the kernels that were registered directly: the computed table has an answer for every operator as soon as
the device has a fallback. No operator runs on the device.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch._library.custom_ops import OPDEFS
from torch._library.simple_registry import singleton

from torch_backplane import _backend, compiler, fallback
from torch_backplane.ops import pairs, registry

if TYPE_CHECKING:
    from rich.tree import Tree

__all__ = ["Answer", "Explanation", "Step", "explain"]

_NON_FUNCTIONAL = "CompositeExplicitAutogradNonFunctional"


@dataclass(frozen=True)
class Step:
    """A dispatch key that a call passes or ends at."""

    key: str
    does: str
    site: str


@dataclass(frozen=True)
class Answer:
    """What there is of one thing, in a word, and the details."""

    word: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.word}: {self.text}" if self.text else self.word


@dataclass(frozen=True)
class Explanation:
    """An operator on a device; ``str()`` is a text, rich prints a tree."""

    op: str
    schema: str
    device: str
    dtype: str | None
    runs: Answer
    """``"native"`` (a kernel for the device), ``"portable"`` (one that the driver compiles), ``"composite"`` (made of
    other operators), ``"fallback"`` (the CPU) or ``"error"``, under the policy that is in force."""
    steps: list[Step] = field(default_factory=list)
    """The keys in the order of a call: under autocast, with gradients."""
    autograd: Answer = Answer("")
    """``"formula"``, ``"composite"`` (by its parts) or ``"none"``."""
    autocast: Answer = Answer("")
    """``"rule"`` or ``"none"``."""
    vmap: Answer = Answer("")
    """``"batch rule"``, ``"decomposition"`` or ``"loop"``."""
    fake: Answer = Answer("")
    """``"fake"``, ``"meta"``, ``"composite"``, ``"decomposition"`` or ``"none"``."""
    inductor: Answer = Answer("")
    """``"lowering"``, ``"decomposition"``, ``"fallback"`` (it calls the operator), or ``"not asked"``."""

    def aspects(self) -> dict[str, Answer]:
        """What is told beside the way of the call."""
        names = ("autograd", "autocast", "vmap", "fake", "inductor")
        return {name: getattr(self, name) for name in names}

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"{self.schema} on {self.device}{f', {self.dtype}' if self.dtype else ''}", f"  runs {self.runs}"]
        lines += [f"    {step.key}: {step.does} ({step.site})" for step in self.steps]
        return "\n".join(lines + [f"  {name}: {answer}" for name, answer in self.aspects().items()])

    def __rich__(self) -> Tree:
        from rich.markup import escape
        from rich.tree import Tree

        dtype = f", {self.dtype}" if self.dtype else ""
        tree = Tree(f"[bold]{escape(self.schema)}[/]  on {self.device}{dtype}")
        calls = tree.add(f"[bold]runs[/]  {escape(str(self.runs))}")
        for step in self.steps:
            calls.add(f"{step.key}  {escape(step.does)}  [dim]{escape(step.site)}[/]")
        for name, answer in self.aspects().items():
            tree.add(f"[bold]{name}[/]  {escape(str(answer))}")
        return tree


def explain(
    op: Any, device: str | torch.device | None = None, dtype: torch.dtype | None = None, *, inductor: bool = False
) -> Explanation:
    """Tell the way of an operator's call on a device.

    Args:
        op: ``"aten::gelu"``, ``"add.Tensor"`` (of aten, or of the only namespace that has it), or the operator itself.
        device: default: the backend's.
        dtype: of the tensors. It matters where the device's kernel has declared which dtypes it takes.
        inductor: ask Inductor as well; importing it takes seconds.

    Raises:
        ValueError: there is no such operator or device.
        RuntimeError: no backend is loaded, and no other device was named.
    """
    name = _name_of(op)
    schema = registry.schema(name)
    kind = _device(device)
    call = _Call(name, schema, kind, torch._C._dispatch_key_for_device(kind), dtype)
    steps, runs = call.way()
    return Explanation(
        op=name,
        schema=str(schema),
        device=kind,
        dtype=str(dtype).removeprefix("torch.") if dtype is not None else None,
        runs=runs,
        steps=steps,
        autograd=call.autograd(),
        autocast=call.autocast(),
        vmap=call.vmap(),
        fake=call.fake(),
        inductor=call.inductor() if inductor else Answer("not asked"),
    )


def _name_of(op: Any) -> str:
    op = getattr(op, "overload", op)  # torch_backplane.ops.Op
    op = getattr(op, "_opoverload", op)  # torch.library.CustomOpDef
    if isinstance(op, torch._ops.OpOverload):
        return registry.name_of(op)
    if isinstance(op, torch._ops.OpOverloadPacket):
        return str(op._qualified_op_name)
    if isinstance(op, str):
        return registry.with_namespace(op.removesuffix(".default"))
    raise ValueError(f"{op!r} is no operator: give a name such as 'aten::add.Tensor', or torch.ops.aten.add.Tensor")


def _device(device: str | torch.device | None) -> str:
    if device is None:
        if not _backend.loaded():
            raise RuntimeError("no backend is loaded: import the vendor's package first, for example `import mydevice`")
        return _backend.device
    try:
        return torch.device(device).type
    except RuntimeError as error:
        installed = f"the installed backend's is {_backend.device}" if _backend.device else "no backend is loaded"
        raise ValueError(f"there is no device '{device}': {installed}; cpu, cuda and meta are torch's own") from error


class _Call:
    """One operator, one device."""

    def __init__(self, op: str, schema: Any, device: str, key: str, dtype: torch.dtype | None) -> None:
        self.op, self.schema, self.device, self.key, self.dtype = op, schema, device, key, dtype
        self.table = {key: replace(entry, site=_short(entry.site)) for key, entry in registry.table(op).items()}
        kernels = [replace(kernel, site=_short(kernel.site)) for kernel in registry.kernels(op) if kernel.active]
        self.direct = {kernel.key: kernel for kernel in kernels}

    def way(self) -> tuple[list[Step], Answer]:
        """The keys that a call passes, and where it ends."""
        steps: list[Step] = []
        for key in (f"Autocast{self.key}", f"Autograd{self.key}", "ADInplaceOrView", "BackendSelect"):
            entry = self.table.get(key)
            if entry is None or (key == "BackendSelect" and key not in self.direct):
                continue
            if entry.source == "math kernel":
                end, runs = self.composite(entry, key)
                return [*steps, *end], runs
            steps.append(Step(key, self.passes(key, entry), entry.site))
        end, runs = self.end()
        return [*steps, *end], runs

    def passes(self, key: str, entry: registry.Entry) -> str:
        """What a key above the device's does."""
        if entry.fallthrough:
            return "passes"
        if key.startswith("Autocast"):
            return "casts the arguments"
        if key == "ADInplaceOrView":
            return "notes the view, or the new version"
        if key == "BackendSelect":
            return "chooses the device from the arguments"
        return "records the backward" if self.autograd().word == "formula" else "has no backward to record"

    def end(self) -> tuple[list[Step], Answer]:
        """What happens at the device's own key."""
        entry = self.table.get(self.key)
        if self.key in self.direct:
            runs = self.with_dtype(self.direct[self.key].site)
            return [Step(self.key, "the device's kernel", self.direct[self.key].site)], runs
        if entry is None:
            return [], self.on_the_cpu()
        if entry.source == "default backend kernel" and "CompositeExplicitAutograd" not in self.direct:
            return self.derived(entry)
        if entry.source in ("default backend kernel", "math kernel"):
            return self.composite(entry)
        return [Step(self.key, "the device's fallback", entry.site)], self.on_the_cpu()

    def composite(self, entry: registry.Entry, key: str | None = None) -> tuple[list[Step], Answer]:
        """It ends in calls of other operators."""
        step = Step(key or self.key, "calls the operators that it is made of", entry.site)
        return [step], Answer("composite", "of other operators; torch-backplane coverage lists those of a model")

    def derived(self, entry: registry.Entry) -> tuple[list[Step], Answer]:
        """Torch makes the functional and the in-place form of some operators from the out= form."""
        out = _out_form(self.op, self.schema)
        if out is None:
            return self.composite(entry)
        steps, runs = _Call(out, registry.schema_of(out), self.device, self.key, self.dtype).end()
        first = Step(self.key, f"makes the result, and calls {out}", entry.site)
        return [first, *steps], runs

    def on_the_cpu(self) -> Answer:
        """What the fallback would do, by its policy and what it can."""
        if self.device != _backend.device or not fallback.is_registered():
            return Answer("error", f"it has no kernel for {self.device}, and no fallback is registered")
        if registry.overload(self.op).is_view:
            return Answer("error", "a view of the device's memory cannot be made on the CPU: it needs a kernel")
        if not torch._C._dispatch_has_computed_kernel_for_dispatch_key(self.op, "CPU"):
            instead = _backend.C.fallback.instead_of(self.op)
            why = f"it has no kernel for {self.device}, and the CPU has none to fall back to"
            return Answer("error", f"{why}. {instead}" if instead else why)
        policies = {fallback.get_policy(name) for name in (self.op, self.op.partition(".")[0])}
        policy = (policies - {fallback.get_policy()} or policies).pop()
        if policy == "error":
            return Answer("error", f"it has no kernel for {self.device}, and the fallback's policy is 'error'")
        wider = "; in float32, rounded once, where it has no kernel for the half type"
        widened = _backend.C.fallback.widening() and self.dtype in (torch.float16, torch.bfloat16, torch.complex32)
        return Answer("fallback", f"the CPU computes it (policy '{policy}'{wider if widened else ''})")

    def with_dtype(self, site: str) -> Answer:
        """What the device's kernel says of the dtype, as far as it can be known without a call."""
        if self.device != _backend.device:
            return Answer("native", site)
        if _DEFAULTS in site and _backend.C.kernels.has_portable(self.op):
            return self.portable("")
        if needs := _backend.C.kernels.unmet_needs(self.op):
            return self.left(f"the kernel at {site} never runs on this driver: it needs {needs}")
        declared = _backend.C.kernels.declared_dtypes(self.op)
        if declared is None:
            note = "" if self.dtype is None else "; it declares no dtypes: only a call tells whether it takes this one"
            return Answer("native", site + note)
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in declared)
        if self.dtype is None:
            return Answer("native", f"{site}; it takes {names}")
        computed = _computed_dtype(self.op, self.schema, self.dtype)
        if computed is None:
            return Answer("native", f"{site}; it takes {names}, and what this promotes to is told by a call alone")
        promoted = "" if computed == self.dtype else f", to which torch promotes {_plain(self.dtype)}"
        if computed in declared:
            return Answer("native", f"{site}; it takes {_plain(computed)}{promoted}")
        return self.left(f"the kernel at {site} takes {names} alone{promoted}")

    def left(self, why: str) -> Answer:
        """Who computes what the device's kernel leaves."""
        if _backend.C.kernels.has_portable(self.op):
            return self.portable(why)
        return self.after_portable(why)

    def portable(self, why: str) -> Answer:
        """By a compiled kernel, if there is one."""
        because = f"{why}; " if why else ""
        if compiler.policy() == "off":
            return self.after_portable(f"{because}compiled kernels are off")
        if not compiler.is_available():
            return self.after_portable(f"{because}for the portable kernel the driver needs bp.compiler and bp.module")
        compiled = f"compiled for {compiler.target().name} when it is first called{self.so_far()}"
        return Answer("portable", f"{compiled}; {why}" if why else compiled)

    def so_far(self) -> str:
        """What has run in this process: a kernel is asked at each call whether it takes it."""
        ran = _backend.C.kernels.calls(f"portable/{self.op.removeprefix('aten::')}")
        calls = fallback.calls()
        left = sum(calls.get(name, 0) for name in {self.op, _out_form(self.op, self.schema) or self.op})
        if not ran + left:
            return ""
        on_the_cpu = f", and the CPU computed {left} call{'s' * (left != 1)}" if left else ""
        return f"; so far it ran {ran} time{'s' * (ran != 1)}{on_the_cpu}"

    def after_portable(self, why: str) -> Answer:
        """The rest of the line."""
        if _backend.C.kernels.has_default(self.op):
            return Answer("native", f"by the SDK's own kernel; {why}")
        if any(key in self.direct for key in registry.COMPOSITE):
            return Answer("composite", f"of other operators; {why}")
        answer = self.on_the_cpu()
        return Answer(answer.word, f"{why}; {answer.text}")

    def autograd(self) -> Answer:
        """Where its gradient comes from."""
        key = f"Autograd{self.key}"
        entry = self.table.get(key)
        if entry is None or entry.source == "backend fallback":
            return Answer("none", "a backward through it leaves the gradients None, with a warning of torch's")
        if entry.source == "math kernel":
            return Answer("composite", "by the operators that it is made of")
        if entry.fallthrough:
            return Answer("none", f"it is registered as an operator without gradient, {entry.site}")
        if self.op in OPDEFS:
            given = OPDEFS[self.op]._backward_fn
            return Answer("formula", given.__name__) if given else Answer("none", "a backward through it raises")
        if not self.op.startswith("aten::") or key in self.direct:
            return Answer("formula", entry.site)
        called = pairs.gradient_of(self.op)
        if called is None:
            return Answer("none", "torch has no formula for it")
        ways = [f"{each} ({way})" for each in called if (way := _way(each, self.key))]
        return Answer("formula", f"calls {', '.join(ways)}" if ways else "of other operators")

    def autocast(self) -> Answer:
        """What ``torch.autocast`` does to its arguments."""
        key = f"Autocast{self.key}"
        kernel = self.direct.get(key)
        if kernel is not None and not kernel.fallthrough:
            return Answer("rule", kernel.site)
        if key not in self.table:
            return Answer("none", f"{key} has no fallthrough: under autocast it raises")
        return Answer("none", "the dtypes stay as they are")

    def vmap(self) -> Answer:
        """How ``torch.vmap`` batches it."""
        entry = self.table.get("FuncTorchBatched")
        if "FuncTorchBatched" in self.direct:
            return Answer("batch rule", self.direct["FuncTorchBatched"].site)
        if entry is not None and entry.source != "backend fallback":
            return Answer("decomposition", "into the operators that it is made of")
        return Answer("loop", "one call an element, with a warning of torch's")

    def fake(self) -> Answer:
        """Who tells its result's shape and dtype to ``torch.compile`` and FakeTensorMode."""
        registered = singleton._data.get(self.op)
        given = OPDEFS[self.op]._abstract_fn if self.op in OPDEFS else None
        if given is None and self.op not in OPDEFS and registered is not None and registered.fake_impl.kernel:
            given = registered.fake_impl.kernel.func
        if given is not None:
            code = getattr(given, "__code__", None)
            return Answer("fake", _short(f"{code.co_filename}:{code.co_firstlineno}") if code else str(given))
        if "Meta" in self.direct and self.op not in OPDEFS:
            return Answer("meta", self.direct["Meta"].site)
        if any(key in self.direct for key in registry.COMPOSITE):
            return Answer("composite", "by the operators that it is made of")
        from torch._decomp import decomposition_table

        if registry.overload(self.op) in decomposition_table:
            return Answer("decomposition", "torch._decomp")
        if _NON_FUNCTIONAL in self.direct:
            out = _out_form(self.op, self.schema)
            return (
                Answer("meta", f"that of {out}") if out else Answer("composite", "by the operators that it is made of")
            )
        return Answer("none", "torch.compile and FakeTensorMode fail at it: torch.library.register_fake gives one")

    def inductor(self) -> Answer:
        """What Inductor makes of it, if the tracer has not taken it apart before."""
        from torch._inductor import decomposition, lowering

        op = registry.overload(self.op)
        if "CompositeImplicitAutograd" in self.direct:
            return Answer("decomposition", "it is traced as the operators that it is made of")
        lowered = op in lowering.lowerings and op not in lowering.fallbacks
        if op in decomposition.decompositions:
            if lowered:
                return Answer("lowering", "and a decomposition for some arguments")
            return Answer("decomposition", "torch._inductor.decomposition")
        return Answer("lowering") if lowered else Answer("fallback", "the compiled program calls the operator")


def _out_form(op: str, schema: Any) -> str | None:
    """The out= form that torch makes a functional or in-place operator from; None if it is made otherwise."""
    wanted = [str(argument.type) for argument in schema.arguments]
    for candidate in registry.overloads(op.partition(".")[0].removesuffix("_")):
        if registry.has_kernel(candidate, "CompositeExplicitAutograd"):  # it is made from the functional form
            continue
        arguments = registry.schema_of(candidate).arguments
        written = [a for a in arguments if a.kwarg_only and a.alias_info is not None and a.alias_info.is_write]
        if written and [str(a.type) for a in arguments if a not in written] == wanted:
            return candidate
    return None


def _way(op: str, key: str) -> str:
    """``native``, ``composite`` or ``fallback`` for a name, whatever its overload.

    Empty for what is no operator of strided tensors: a formula also calls functions inside torch.
    """
    overloads = registry.overloads(op)
    kernels = [name for name in overloads if registry.has_kernel(name, key) and not compiler.leaves(name)]
    if kernels:
        return "portable" if all(map(compiler.takes, kernels)) else "native"
    functional = [name for name in overloads if not registry.schema_of(name).is_mutable]
    if any(registry.has_kernel(name, composite) for name in functional for composite in registry.COMPOSITE):
        return "composite"
    return "fallback" if any(registry.has_kernel(name, "CPU") for name in overloads) else ""


# Where the kernels that give way are registered.
_DEFAULTS = "dispatch/defaults.cpp:"


def _short(site: str) -> str:
    """A place without the folders that torch was built or installed in."""
    installed = f"{Path(torch.__file__).parent.parent}/"
    return re.sub(r"^.*/pytorch/pytorch/", "pytorch/", site.removeprefix(installed))


def _computed_dtype(op: str, schema: Any, dtype: torch.dtype) -> torch.dtype | None:
    """What torch computes in for tensors of a dtype; None where only a call tells.

    The operator is called with meta tensors: an integer that comes out as a floating-point number was promoted.
    """
    if dtype.is_floating_point or dtype.is_complex:
        return dtype
    required = [a for a in schema.arguments if not a.has_default_value()]
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
