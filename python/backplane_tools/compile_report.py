"""What ``torch.compile`` and Triton made of a program: graph breaks, kernels and what they fuse, calls and why, times.

For ``torch-backplane explain --compiled``: while :func:`collect` is open, the code generator reports each graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from torch_backplane import _backend, compiler
from torch_backplane.inductor.observer import observing
from torch_backplane.ops import registry, ways
from torch_backplane.triton import record

SORTS_AND_SEARCHES = ("sort", "topk", "bucketize", "searchsorted")
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "convolution", "_int_mm", "_scaled_mm")


@dataclass(frozen=True)
class Break:
    """Where Dynamo ended a graph, and why."""

    place: str  # file:line
    reason: str


@dataclass(frozen=True)
class Kernel:
    """One that was generated."""

    name: str  # in the graph's file
    fuses: list[str]  # operators of the graph
    places: list[str]  # of the program, file:line
    way: str = "generated"


@dataclass(frozen=True)
class Call:
    """An operator that is called as it is."""

    op: str  # "aten.mm.out"
    way: str  # of torch_backplane.ops.ways.WAYS; empty of what is no operator of the dispatcher's
    why: str
    places: list[str]

    @property
    def operator(self) -> str:
        """As in a profile, which has no overloads: "aten::mm"."""
        names = self.op.split(".")
        return "::".join(names[:2] if len(names) > 1 and names[0] in torch.ops else ["aten", names[0]])


@dataclass(frozen=True)
class Time:
    """What a kernel or an operator took of the device, in all runs of a graph."""

    name: str  # a kernel's, or as in "aten::mm"
    calls: int
    microseconds: float


@dataclass
class Graph:
    """One that Inductor compiled for the device."""

    name: str  # "0 forward"
    kernels: list[Kernel] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    times: list[Time] = field(default_factory=list)  # of Report.add_times
    file: str = ""  # the module that Inductor wrote, kernels' text and all; it stays in Inductor's cache


@dataclass
class Report:
    """Of a program."""

    breaks: list[Break] = field(default_factory=list)
    graphs: list[Graph] = field(default_factory=list)
    triton: list[record.Loaded] = field(default_factory=list)  # kernels of Triton, in graphs and outside
    triton_times: list[Time] = field(default_factory=list)  # of each name
    seconds: dict[str, float] = field(default_factory=dict)  # of compilation: in all, and what Inductor takes of it
    kernels_compiled: int = 0  # by the driver's compiler
    kernels_from_cache: int = 0
    marks: dict[str, Graph] = field(default_factory=dict)  # the range of a profile that each graph runs in

    def add_times(self, profiled: torch.profiler.profile) -> None:
        """Take the times of the device from a profile of the program, with ``ProfilerActivity.PrivateUse1``."""
        found: dict[str, dict[str, list[float]]] = {}
        for range_ in profiled.events() or ():
            if range_.name in self.marks and range_.device_type == torch.autograd.DeviceType.CPU:
                times = found.setdefault(range_.name, {})
                for each in range_.cpu_children:
                    if each.device_time_total:
                        times.setdefault(each.name, []).append(each.device_time_total)
        for mark, times in found.items():
            self.marks[mark].times = [Time(name, len(each), sum(each)) for name, each in times.items()]
        for name in dict.fromkeys(kernel.name for kernel in self.triton):
            ran = [each.device_time_total for each in profiled.events() or () if each.name == name and _is_launch(each)]
            self.triton_times.append(Time(name, len(ran), sum(ran)))

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        result = asdict(self)
        del result["marks"]
        return result


class Collector:
    """Fills a report while a program runs."""

    def __init__(self) -> None:
        from torch._inductor import lowering

        self.report = Report()
        self.listed = set(lowering.fallbacks)  # before a graph adds those that have no lowering
        self.generated: dict[int, list[Kernel]] = {}  # by the identity of the graph that is being compiled
        self.lowered: list[tuple[Graph, Any]] = []

    def mark(self) -> str:
        """The range of a profile in which the graph runs that is reported next."""
        return f"torch-backplane graph {len(self.report.marks)}"

    def kernel(self, graph: Any, name: str, nodes: Sequence[Any]) -> None:
        """One that was written into a graph's module."""
        origins = [origin for node in nodes if (inner := getattr(node, "node", None)) for origin in inner.origins]
        found = Kernel(name, sorted({str(one.target) for one in origins}), _places(origins))
        self.generated.setdefault(id(_root(graph)), []).append(found)

    def graph(self, graph: Any) -> None:
        """A graph whose module is written."""
        kind = "inference" if graph.is_inference else "backward" if graph.is_backward else "forward"
        found = Graph(f"{graph.graph_id} {kind}", self.generated.pop(id(graph), []))
        found.calls.extend(call for operation in _operations(graph) if (call := self._call(operation)))
        self.report.marks[self.mark()] = found
        self.lowered.append((found, graph))
        self.breaks()

    def _call(self, operation: Any) -> Call | None:
        from torch._inductor import ir

        is_call = isinstance(operation, ir.ExternKernel) and not isinstance(operation, (ir.MultiOutput, ir.NopKernel))
        if not is_call or _parts(operation):
            return None
        device = getattr(operation.layout, "device", None)
        if device is None or torch.device(device).type != _backend.device:
            return None
        overload = operation.op_overload
        name = str(overload or operation.get_kernel_name())
        way = ways.way_of(registry.name_of(overload)) if isinstance(overload, torch._ops.OpOverload) else ""
        why = self._why(operation, overload)
        return Call(name.removeprefix("extern_kernels."), way, why, _places(operation.origins))

    def _why(self, operation: Any, overload: Any) -> str:
        from torch._inductor import config, ir, lowering

        from torch_backplane.inductor import fallbacks, language

        if isinstance(operation, ir.DeviceCopy):
            return "a copy between devices"
        if config.fallback_by_default:
            return f"nothing is fused here: {language.why_none() or 'the mode is lite'}"
        if overload in fallbacks.left:
            return "the dialect has no expression of it"
        if getattr(lowering.lowerings.get(overload), "_is_fallback_handler", False):
            listed = overload in self.listed
            return (
                "Inductor's list has it among the operators that are called"
                if listed
                else "Inductor has no lowering of it"
            )
        name = str(overload or operation.get_kernel_name()).rpartition("aten.")[2].rpartition("extern_kernels.")[2]
        if name.partition(".")[0] in PRODUCTS:
            return "products and convolutions are the device's own: no template was taken"
        if name.partition(".")[0] in SORTS_AND_SEARCHES:
            return "sorts and searches are the device's own (docs/compile.md)"
        return "Inductor calls it for these operands, and generates it for others (their dtypes, sizes or options)"

    def breaks(self) -> None:
        """Take what Dynamo has noted; a reset forgets it."""
        from torch._dynamo.utils import graph_break_reasons

        for one in graph_break_reasons:
            last = one.user_stack[-1] if one.user_stack else None
            found = Break(f"{last.filename}:{last.lineno}" if last else "", one.reason)
            if found not in self.report.breaks:
                self.report.breaks.append(found)

    def finish(self) -> None:
        """What is known at the end."""
        from torch._dynamo.utils import get_compilation_metrics

        self.breaks()
        for found, graph in self.lowered:
            found.file = graph.cache_path
            self.report.graphs.append(found)
        metrics = get_compilation_metrics()
        for name, key in (("all", "duration_us"), ("inductor", "inductor_cumulative_compile_time_us")):
            self.report.seconds[name] = sum(getattr(one, key) or 0 for one in metrics) / 1e6


def _is_launch(event: Any) -> bool:
    """Whether it is a range of the host in which the device got work."""
    return event.device_type == torch.autograd.DeviceType.CPU and event.device_time_total > 0


def _parts(operation: Any) -> list[Any]:
    """The graphs that it runs: branches of a condition, a loop's body."""
    from torch._inductor.ir import Subgraph

    return [part.graph for part in vars(operation).values() if isinstance(part, Subgraph)]


def _operations(graph: Any) -> Iterator[Any]:
    """What a graph runs, and its parts."""
    for operation in graph.operations:
        if operation.get_name() not in graph.removed_operations:
            yield operation
            for part in _parts(operation):
                yield from _operations(part)


def _root(graph: Any) -> Any:
    while (parent := getattr(graph, "parent", None)) is not None:
        graph = parent
    return graph


def _places(origins: Any) -> list[str]:
    """Lines of the program that the nodes of a graph come from."""
    places = set()
    for origin in origins:
        lines = [line for line in (origin.meta.get("stack_trace") or "").splitlines() if line.startswith("  File ")]
        if lines:
            _, file, rest = lines[-1].split('"', 2)
            places.add(f"{file}:{rest.removeprefix(', line ').partition(',')[0]}")
    return sorted(places)


@contextmanager
def collect() -> Iterator[Report]:
    """A report of what the block compiles, full at its end; nothing comes from Inductor's caches."""
    from torch._dynamo.utils import clear_compilation_metrics, graph_break_reasons
    from torch._functorch import config as functorch
    from torch._inductor import config

    graph_break_reasons.clear()
    clear_compilation_metrics()
    before = compiler.counts() if compiler.is_available() else None
    loaded = record.count()
    collector = Collector()
    try:
        marked = config.patch(fx_graph_cache=False, profiler_mark_wrapper_call=True)
        with observing(collector), marked, functorch.patch(enable_autograd_cache=False):
            yield collector.report
    finally:
        collector.finish()
        collector.report.triton = record.loaded(loaded)
        if before is not None:
            after = compiler.counts()
            collector.report.kernels_compiled = after.compiled - before.compiled
            collector.report.kernels_from_cache = after.from_cache - before.from_cache
