"""Explains an operator's call: the dispatch keys that it passes, what runs, and other registrations of the operator.

It looks at the kernels that were registered directly: with a fallback of the device, the computed table has an entry
for every operator. No operator runs on the device.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch._library.custom_ops import OPDEFS
from torch._library.simple_registry import singleton

from torch_backplane import _backend, fallback
from torch_backplane.ops import devices, pairs, registry, ways
from torch_backplane.ops.ways import Answer

if TYPE_CHECKING:
    from rich.tree import Tree

__all__ = ["Answer", "Explanation", "Step", "explain"]


@dataclass(frozen=True)
class Step:
    """A dispatch key that a call passes or ends at."""

    key: str
    does: str
    site: str


@dataclass(frozen=True)
class Explanation:
    """An operator on a device; ``str()`` returns text, rich prints a tree."""

    op: str
    schema: str
    device: str
    dtype: str | None
    runs: Answer
    """One of :data:`torch_backplane.ops.ways.WAYS`, under the current policies."""
    steps: list[Step]
    """The keys in the order of a call: under autocast, with gradients."""
    autograd: Answer
    """``"formula"``, ``"composite"`` (by its parts) or ``"none"``."""
    autocast: Answer
    """``"rule"`` or ``"none"``."""
    vmap: Answer
    """``"batch rule"``, ``"decomposition"`` or ``"loop"``."""
    fake: Answer
    """``"fake"``, ``"meta"``, ``"composite"``, ``"decomposition"`` or ``"none"``."""
    inductor: Answer
    """``"lowering"``, ``"decomposition"``, ``"fallback"`` (it calls the operator), or ``"not asked"``."""

    def aspects(self) -> dict[str, Answer]:
        """The answers other than how the call runs."""
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
    """Explain an operator's call on a device.

    Args:
        op: ``"aten::gelu"``, ``"add.Tensor"`` (of aten, or of the only namespace that has it), or the operator itself.
        device: default: the backend's.
        dtype: of the tensors. It matters if the device's kernel declares which dtypes it supports.
        inductor: ask Inductor as well; importing it takes seconds.

    Raises:
        ValueError: there is no such operator or device.
        RuntimeError: no backend is loaded, and no other device was named.
    """
    name = registry.with_namespace(registry.resolve(op))
    schema = registry.schema(name)
    kind = devices.own() if device is None else devices.device_type(str(device).partition(":")[0])
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


class _Call:
    """One operator, one device."""

    def __init__(self, op: str, schema: Any, device: str, key: str, dtype: torch.dtype | None) -> None:
        self.op, self.schema, self.device, self.key, self.dtype = op, schema, device, key, dtype
        self.table = {key: entry._replace(site=_short(entry.site)) for key, entry in registry.table(op).items()}
        kernels = [kernel._replace(site=_short(kernel.site)) for kernel in registry.kernels(op) if kernel.active]
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
        """What a key above the device's key does."""
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
            runs = self.by_kernel(self.direct[self.key].site)
            return [Step(self.key, "the device's kernel", self.direct[self.key].site)], runs
        if entry is None:
            return [], self.on_the_cpu()
        if entry.source == "default backend kernel" and "CompositeExplicitAutograd" not in self.direct:
            return self.derived(entry)
        if entry.source in ("default backend kernel", "math kernel"):
            return self.composite(entry)
        return [Step(self.key, "the device's fallback", entry.site)], self.on_the_cpu()

    def composite(self, entry: registry.Entry, key: str | None = None) -> tuple[list[Step], Answer]:
        """The end of a call that calls other operators."""
        step = Step(key or self.key, "calls the operators that it is made of", entry.site)
        return [step], Answer("composite", "of other operators; torch-backplane coverage lists those of a model")

    def derived(self, entry: registry.Entry) -> tuple[list[Step], Answer]:
        """The end of a call that torch derives from the out= form, as some functional and in-place forms."""
        out = ways.out_form(self.op)
        if out is None:
            return self.composite(entry)
        steps, runs = _Call(out, registry.schema_of(out), self.device, self.key, self.dtype).end()
        first = Step(self.key, f"makes the result, and calls {out}", entry.site)
        return [first, *steps], runs

    def on_the_cpu(self) -> Answer:
        """The fallback's answer."""
        if self.device != _backend.device:
            return Answer("refused", f"it has no kernel for {self.device}, and no fallback is registered")
        return ways.on_the_cpu(self.op, self.dtype)

    def by_kernel(self, site: str) -> Answer:
        """How a call runs if the device has a kernel."""
        if self.device != _backend.device:
            return Answer("native", site)
        runs = ways.of_kernel(self.op, site, self.dtype)
        return replace(runs, text=runs.text + self.so_far()) if runs.word == "portable" else runs

    def so_far(self) -> str:
        """The calls in this process so far: each call asks the kernel whether it supports the arguments."""
        ran = _backend.C.kernels.calls(f"portable/{self.op.removeprefix('aten::')}")
        calls = fallback.calls()
        left = sum(calls.get(name, 0) for name in {self.op, ways.out_form(self.op) or self.op})
        if not ran + left:
            return ""
        on_the_cpu = f", and the CPU computed {left} call{'s' * (left != 1)}" if left else ""
        return f"; so far it ran {ran} time{'s' * (ran != 1)}{on_the_cpu}"

    def autograd(self) -> Answer:
        """The source of its gradient."""
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
        """How ``torch.compile`` and FakeTensorMode compute its result's shape and dtype."""
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
        if registry.NON_FUNCTIONAL in self.direct:
            out = ways.out_form(self.op)
            return (
                Answer("meta", f"that of {out}") if out else Answer("composite", "by the operators that it is made of")
            )
        return Answer("none", "torch.compile and FakeTensorMode fail at it: torch.library.register_fake gives one")

    def inductor(self) -> Answer:
        """What Inductor does with it, if the tracer has not decomposed it before."""
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


def _way(op: str, key: str) -> str:
    """``native``, ``composite`` or ``fallback`` for a name with any overload.

    Empty if it is no operator of strided tensors: a formula also calls functions inside torch.
    """
    overloads = registry.overloads(op)
    functional = {name for name in overloads if not registry.schema_of(name).is_mutable}
    found = {name: ways.way_of(name, (key,)) for name in overloads}
    counts = [way for name, way in found.items() if way in ("portable", "native") or name in functional]
    best = max(counts, key=ways.WAYS.index, default="fallback")
    known = best in ways.WAYS[2:] or any(registry.has_kernel(name, "CPU") for name in overloads)
    return best if known else ""


def _short(site: str) -> str:
    """A place without the folder in which torch was built or installed."""
    installed = f"{Path(torch.__file__).parent.parent}/"
    return re.sub(r"^.*/pytorch/pytorch/", "pytorch/", site.removeprefix(installed))
