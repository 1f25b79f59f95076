"""What a trace of ``torch.profiler`` shows of the device: how busy it was, with what, when it waited for the host.

Reads the Chrome trace of a profile with ``ProfilerActivity.PrivateUse1`` (docs/profiler.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from torch_backplane.fallback import Count

__all__ = ["MOST", "Copies", "DeviceTime", "Gap", "Kernel", "Summary", "Work", "summarize", "tables"]

MOST = 10
"""Rows of a table that are shown."""

_KINDS = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "fill"}


@dataclass(frozen=True)
class Work:
    """A piece of work. Times are microseconds since the profile's begin."""

    device: int
    stream: int
    kind: str  # "kernel", "copy" or "fill"
    name: str
    begin: float
    end: float
    bytes: int = 0
    operator: str = ""
    """The operator that queued it; empty if none was seen."""


@dataclass(frozen=True)
class Kernel:
    """All work of one name that is no copy."""

    name: str
    calls: int
    microseconds: float


@dataclass(frozen=True)
class Copies:
    """All copies of one direction."""

    name: str
    calls: int
    bytes: int
    microseconds: float

    @property
    def gigabytes_per_second(self) -> float:
        """0 where the device's clock saw no time pass."""
        return self.bytes / self.microseconds / 1e3 if self.microseconds else 0.0


@dataclass(frozen=True)
class Gap:
    """A time between two pieces of work in which no stream of a device had any."""

    device: int
    begin: float
    microseconds: float
    operator: str
    """What the host was in when it queued the work that ended the gap; empty where no operator was seen."""


@dataclass(frozen=True)
class DeviceTime:
    """How long a device had work."""

    device: int
    busy_microseconds: float
    streams: int


@dataclass(frozen=True)
class Summary:
    """What :func:`summarize` finds. Lists begin with what takes longest."""

    microseconds: float
    """Of the whole profile."""
    devices: list[DeviceTime]
    kernels: list[Kernel]
    copies: list[Copies]
    gaps: list[Gap]
    work: list[Work] = field(repr=False)
    unfinished: int = 0
    """Pieces of work that were not complete when the profile ended."""

    def busy_share(self, device: int) -> float:
        """The part of the profile's time in which some stream of the device had work, 0 to 1."""
        busy = sum(each.busy_microseconds for each in self.devices if each.device == device)
        return busy / self.microseconds if self.microseconds else 0.0

    def to_json(self) -> dict[str, Any]:
        """The same as plain data, without the single pieces of work."""
        result = asdict(self)
        del result["work"]
        return result


def summarize(trace: dict[str, Any]) -> Summary:
    """Summarize a profile.

    Args:
        trace: what ``export_chrome_trace`` wrote, as ``json.load`` gives it.

    Raises:
        ValueError: there is no profile in it.
    """
    rows = [row for row in trace.get("traceEvents", ()) if row.get("ph") == "X"]
    spans = [row for row in rows if row.get("cat") == "Trace" and row["name"].startswith("PyTorch Profiler")]
    if not spans:
        raise ValueError("the trace has no profile of torch.profiler in it")
    begin = min(row["ts"] for row in spans)
    length = max(row["ts"] + row["dur"] for row in spans) - begin
    operators = {
        row["args"]["External id"]: row["name"]
        for row in rows
        if row.get("cat") in ("cpu_op", "user_annotation") and "External id" in row.get("args", {})
    }
    work = sorted(
        (_work(row, begin, operators) for row in rows if row.get("cat") in _KINDS), key=lambda each: each.begin
    )
    unfinished = sum("unfinished" in row.get("args", {}) for row in rows)
    devices, gaps = [], []
    for device in sorted({each.device for each in work}):
        own = [each for each in work if each.device == device]
        busy, idle = _busy_and_idle(own)
        devices.append(DeviceTime(device, busy, len({each.stream for each in own})))
        gaps += idle
    return Summary(
        length,
        devices,
        _grouped(
            [each for each in work if each.kind != "copy"], lambda name, group, time: Kernel(name, len(group), time)
        ),
        _grouped(
            [each for each in work if each.kind == "copy"],
            lambda name, group, time: Copies(name, len(group), sum(each.bytes for each in group), time),
        ),
        sorted(gaps, key=lambda gap: -gap.microseconds),
        work,
        unfinished,
    )


def _work(row: dict[str, Any], begin: float, operators: dict[int, str]) -> Work:
    args = row["args"]
    start = row["ts"] - begin
    operator = operators.get(args.get("External id"), "")
    kind = _KINDS[row["cat"]]
    return Work(row["pid"], row["tid"], kind, row["name"], start, start + row["dur"], args.get("bytes", 0), operator)


def _busy_and_idle(work: Sequence[Work]) -> tuple[float, list[Gap]]:
    """The length of the union of one device's work, and what is between its parts."""
    busy, end, gaps = 0.0, work[0].begin, []
    for each in work:
        if each.begin > end:
            gaps.append(Gap(each.device, end, each.begin - end, each.operator))
            end = each.begin
        if each.end > end:
            busy += each.end - end
            end = each.end
    return busy, gaps


def _grouped(work: Sequence[Work], made: Callable[[str, list[Work], float], Any]) -> list[Any]:
    """One object for all work of each name, given the name, the work and its time; those that took longest first."""
    groups: dict[str, list[Work]] = {}
    for each in work:
        groups.setdefault(each.name, []).append(each)
    found = [made(name, group, sum(each.end - each.begin for each in group)) for name, group in groups.items()]
    return sorted(found, key=lambda each: -each.microseconds)


def tables(
    summary: Summary, device: str, fallbacks: Sequence[Count]
) -> Iterator[tuple[str, Sequence[str], Sequence[Sequence[str]]]]:
    """Yield what is shown of a summary: the title, which is the first column's, the other columns, the rows."""

    def share(microseconds: float) -> str:
        return f"{100 * microseconds / summary.microseconds:.1f}" if summary.microseconds else "-"

    def ms(microseconds: float) -> str:
        return f"{microseconds / 1e3:.3f}"

    kernels = [
        (k.name, f"{k.calls:,}", ms(k.microseconds), share(k.microseconds), ms(k.microseconds / k.calls))
        for k in summary.kernels
    ]
    yield "costliest kernels", ("calls", "ms", "%", "ms a call"), kernels
    on_cpu = [
        (f.op, f"{f.calls:,}", f"{f.widened or ''}", ms(1e6 * f.seconds), share(1e6 * f.seconds)) for f in fallbacks
    ]
    yield "operators on the CPU", ("calls", "in float32", "ms", "%"), on_cpu
    gaps = [
        (g.operator or "-", f"{device}:{g.device}", ms(g.begin), ms(g.microseconds), share(g.microseconds))
        for g in summary.gaps
    ]
    yield "waited for the host, then queued by", ("device", "at ms", "ms", "%"), gaps
    copies = [
        (c.name, f"{c.calls:,}", f"{c.bytes / 1e6:.3f}", ms(c.microseconds), f"{c.gigabytes_per_second:.2f}")
        for c in summary.copies
    ]
    yield "copies", ("calls", "MB", "ms", "GB/s"), copies
