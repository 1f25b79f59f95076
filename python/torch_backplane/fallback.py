"""The CPU fallback: what runs there, whether it may, and what it costs.

An operator without a kernel for the device runs on the CPU: on the device's own memory where the host reaches it, else
on copies. ``<DEVICE>_FALLBACK`` sets the first policy, in general and by operator: ``warn``,
``cpu,aten::sinc=error``; ``none`` registers no fallback at all.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch_backplane import _backend

if TYPE_CHECKING:
    from rich.table import Table
    from typing_extensions import Self

__all__ = [
    "BudgetExceeded",
    "Count",
    "Report",
    "accounting",
    "budget",
    "calls",
    "get_policy",
    "has_kernel",
    "hook",
    "is_registered",
    "policy",
    "report",
    "reset_calls",
    "widened",
    "widening",
]


def get_policy(op: str | None = None) -> str:
    """The policy in effect.

    Args:
        op: an operator as it was given to :class:`policy`, or in the environment; None is the general policy.
    """
    own = _backend.C.fallback.op_policy(op) if op is not None else None
    return own or _backend.C.fallback.policy()


class _Block:
    """A setting of the process that is restored at the end of a block.

    Blocks of several threads may end in any order: the one that began last is in effect, and what was before the first
    is restored at the end of all.
    """

    _lock = threading.RLock()
    _numbers = itertools.count()
    _open: ClassVar[set[_Block]] = set()

    def __init__(self, subject: object, value: Any, get: Callable[[], Any], set: Callable[[Any], None]) -> None:
        with _Block._lock:
            self._subject = subject
            self._set = set
            self._before = get()
            set(value)
            self._number = next(_Block._numbers)

    def __enter__(self) -> Self:
        with _Block._lock:
            _Block._open.add(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        with _Block._lock:
            _Block._open.discard(self)
            later = [b for b in _Block._open if b._subject == self._subject and b._number > self._number]
            if later:
                min(later, key=lambda block: block._number)._before = self._before
            else:
                self._set(self._before)


class policy(_Block):
    """Set the policy, at once; as a context manager, for the block. For all threads.

    Args:
        value: ``"cpu"`` runs silently; ``"warn"`` warns once per operator, with the Python line that called it;
            ``"error"`` raises NotImplementedError, which says what to implement.
        op: only this operator: ``"aten::sinc"`` (all its overloads) or ``"aten::sinc.out"``. None is the general
            policy.

    Raises:
        ValueError: there is no such policy or operator.

    Example::

        with torch_backplane.fallback.policy("error"):
            step()  # raises at the first operator that has no kernel
    """

    def __init__(self, value: str, op: str | None = None) -> None:
        own = _backend.C.fallback
        if op is None:
            super().__init__(policy, value, own.policy, own.set_policy)
        else:
            super().__init__((policy, op), value, partial(own.op_policy, op), partial(own.set_op_policy, op))


class accounting(_Block):
    """Record bytes, time and sites, or not; calls are always counted. As a context manager, for a block.

    On by default. It adds less than 100 ns to a call.
    """

    def __init__(self, on: bool) -> None:
        super().__init__(accounting, on, _backend.C.fallback.accounting, _backend.C.fallback.set_accounting)


class widening(_Block):
    """Compute in float32 what the CPU does not support in a half type, or not; as a context manager, for a block.

    On by default, unless ``<DEVICE>_WIDEN=0``. If the CPU's kernel does not support float16, bfloat16 or complex32, it
    runs on float32 or complex64, and its results are rounded once. If off, the CPU's NotImplementedError is raised. For
    all threads.
    """

    def __init__(self, on: bool) -> None:
        super().__init__(widening, on, _backend.C.fallback.widening, _backend.C.fallback.set_widening)


def is_registered() -> bool:
    """Whether there is a fallback: False with ``<DEVICE>_FALLBACK=none``."""
    return _backend.C.fallback.is_registered()


def has_kernel(op: str) -> bool:
    """Whether an operator has a kernel for the device.

    Use it for coverage, not the dispatcher's computed table: with a fallback registered, that has an entry for every
    operator.

    Args:
        op: one overload, ``"aten::add.Tensor"``.
    """
    import torch

    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(op, "PrivateUse1"))


@dataclass(frozen=True)
class Count:
    """What the fallback did for one operator.

    Attributes:
        op: its name with overload, ``"aten::sinc.out"``.
        calls: how often it ran on the CPU.
        bytes_to_host: bytes copied from the device.
        bytes_to_device: bytes copied to the device.
        bytes_shared: bytes that the CPU saw in place, without a copy.
        widened: how many calls were computed in float32 for a half type (:class:`widening`). Fourier transforms of
            half types, which call other operators, have these only and no ``calls``.
        seconds: time inside the fallback, the operator's own included.
        site: the first call's place in Python, ``"train.py:12 (step)"``; for a gradient, the node of the graph. Empty
            for a call from C++.
    """

    op: str
    calls: int
    bytes_to_host: int = 0
    bytes_to_device: int = 0
    bytes_shared: int = 0
    widened: int = 0
    seconds: float = 0.0
    site: str = ""

    def since(self, before: Count) -> Count:
        """The difference to an earlier count; if the account was reset since, all of it."""
        if self.calls < before.calls:
            return self
        return replace(self, **{name: getattr(self, name) - getattr(before, name) for name in _NUMBERS})


_NUMBERS = ("calls", "bytes_to_host", "bytes_to_device", "bytes_shared", "widened", "seconds")


@dataclass(frozen=True)
class Report:
    """The account of every operator that ran on the CPU; :meth:`__str__` is a table."""

    counts: tuple[Count, ...]

    def since(self, before: Report) -> list[Count]:
        """What ran on the CPU after an earlier report; everything of an operator whose account was reset since."""
        known = {count.op: count for count in before.counts}
        spent = [count.since(known.get(count.op, Count(count.op, 0))) for count in self.counts]
        return [count for count in spent if count.calls]

    def to_json(self) -> str:
        """The same as JSON: an object with a list ``ops`` and the sums ``total``."""
        total = {name: sum(getattr(count, name) for count in self.counts) for name in _NUMBERS}
        return json.dumps({"ops": [asdict(count) for count in self.counts], "total": total}, indent=2)

    def __rich__(self) -> Table:
        from rich.table import Table

        table = Table(caption=None if self.counts else "no operator ran on the CPU", caption_justify="left")
        table.add_column("operator", no_wrap=True)
        for title in ("calls", "widened", "time", "to host", "to device", "in place"):
            table.add_column(title, justify="right", no_wrap=True)
        table.add_column("first called at", overflow="fold")
        for count in sorted(self.counts, key=lambda count: count.seconds, reverse=True):
            moved = (count.bytes_to_host, count.bytes_to_device, count.bytes_shared)
            wide = f"{count.widened:,}" if count.widened else ""
            table.add_row(count.op, f"{count.calls:,}", wide, _time(count.seconds), *map(_bytes, moved), count.site)
        return table

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=100_000, no_color=True)  # no location is broken, whatever its length: editors open it
        with console.capture() as capture:
            console.print(self)
        return capture.get()


def report() -> Report:
    """What ran on the CPU since the start or :func:`reset_calls`: the kernels that a vendor may write next.

    ``print(report())`` prints a table, by time; ``report().to_json()`` is for machines.
    """
    return Report(tuple(_counts(latest_site=False)))


def _counts(latest_site: bool) -> list[Count]:
    """The most frequent first."""
    found = []
    for op, calls, to_host, to_device, shared, wide, nanoseconds, first_site, site in _backend.C.fallback.counts():
        where = site if latest_site else first_site
        found.append(Count(op, calls, to_host, to_device, shared, wide, nanoseconds / 1e9, where))
    return sorted(found, key=lambda count: -count.calls)


def calls() -> dict[str, int]:
    """How often each operator ran on the CPU since the start or :func:`reset_calls`, the most frequent first."""
    return {count.op: count.calls for count in _counts(latest_site=False) if count.calls}


def widened() -> dict[str, int]:
    """How often each operator was computed in float32 for a half type, since the start or :func:`reset_calls`."""
    return {count.op: count.widened for count in _counts(latest_site=False) if count.widened}


def reset_calls() -> None:
    """Reset the account."""
    _backend.C.fallback.reset_counts()


class BudgetExceeded(AssertionError):
    """More ran on the CPU than a :class:`budget` allows."""


class budget:
    """Limit what the fallback may run in a block, by all threads; more raises at the end of the block.

    Args:
        calls: calls of all operators together.
        bytes: bytes copied, both ways together.
        ops: how many operators, or the names of those that may run (``"aten::sinc"``, or one overload).

    Raises:
        BudgetExceeded: lists the operators that ran and where they were called. It does not replace another exception.

    Example::

        with torch_backplane.fallback.budget(calls=0):
            step()  # every operator is native
    """

    def __init__(
        self,
        *,
        calls: int | None = None,
        bytes: int | None = None,
        ops: int | list[str] | tuple[str, ...] | None = None,
    ) -> None:
        if calls is None and bytes is None and ops is None:
            raise ValueError("a budget needs a limit: calls=, bytes= or ops=")
        self._calls, self._bytes, self._ops = calls, bytes, ops

    def __enter__(self) -> budget:
        self._accounting = accounting(True).__enter__()
        _backend.C.fallback.new_site_epoch()
        self._before = Report(tuple(_counts(latest_site=True)))
        return self

    def __exit__(self, exc_type: object, *exc_info: object) -> None:
        ran = Report(tuple(_counts(latest_site=True))).since(self._before)
        self._accounting.__exit__()
        if exc_type is None and (broken := self._broken(ran)):
            where = {count.op: f", first at {count.site}" if count.site else "" for count in ran}
            lines = "".join(f"\n  {count.op}: {count.calls} calls{where[count.op]}" for count in ran)
            raise BudgetExceeded(f"the CPU fallback's budget is exceeded: {', '.join(broken)}. What ran there:{lines}")

    def _broken(self, ran: list[Count]) -> list[str]:
        calls = sum(count.calls for count in ran)
        copied = sum(count.bytes_to_host + count.bytes_to_device for count in ran)
        broken = []
        if self._calls is not None and calls > self._calls:
            broken.append(f"{calls} calls, allowed are {self._calls}")
        if self._bytes is not None and copied > self._bytes:
            broken.append(f"{copied} bytes copied, allowed are {self._bytes}")
        if isinstance(self._ops, int):
            if len(ran) > self._ops:
                broken.append(f"{len(ran)} operators, allowed are {self._ops}")
        elif self._ops is not None:
            others = [count.op for count in ran if not {count.op, count.op.split(".")[0]} & {*self._ops}]
            if others:
                broken.append(f"{', '.join(others)} ran, allowed are only {', '.join(self._ops) or 'none'}")
        return broken


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return "" if count == 0 else f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def _time(seconds: float) -> str:
    for unit, scale in (("us", 1e6), ("ms", 1e3)):
        if seconds * scale < 1000:
            return f"{seconds * scale:.1f} {unit}"
    return f"{seconds:.2f} s"


class hook(_Block):
    """Call a function before every call of the fallback; as a context manager, for the block.

    Args:
        function: called as ``function(op, args, kwargs)`` with the operator (``torch.ops.aten.sinc.out``) and its
            arguments on the device. What it returns is the operator's result; ``NotImplemented`` lets the CPU compute
            it. None removes the hook. It runs below autograd.

    A dispatch key has one fallback, which is the SDK's: this is how to extend it in Python.
    """

    _current: Callable[..., Any] | None = None

    def __init__(self, function: Callable[..., Any] | None) -> None:
        super().__init__(hook, function, lambda: hook._current, _set_hook)


def _set_hook(function: Callable[..., Any] | None) -> None:
    import torch

    def call(name: str, overload: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        namespace, bare = name.split("::")
        packet = getattr(getattr(torch.ops, namespace), bare)
        return function(getattr(packet, overload or "default"), args, kwargs)  # type: ignore[misc]

    hook._current = function
    _backend.C.fallback.set_hook(None if function is None else call)


def _library_folders() -> tuple[str, ...]:
    import torch

    package = sys.modules.get(_backend.package)
    files = [torch.__file__, __file__, getattr(package, "__file__", None)]
    return tuple(f"{Path(file).parent}/" for file in files if file)


def _find_site() -> str:
    """Where the calling thread's Python is, without the frames of torch and the SDK; called from C++."""
    import torch

    folders = _library_folders()
    frame = sys._getframe().f_back
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith((*folders, "<frozen")):
            return f"{code.co_filename}:{frame.f_lineno} ({code.co_name})"
        frame = frame.f_back
    node = torch._C._current_autograd_node()
    return f"backward of {node.name()}" if node is not None else ""
