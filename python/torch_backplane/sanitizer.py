"""The stream sanitizer: finds memory that two streams use without an order, and missing ``record_stream`` calls.

It sees every operator by its schema (what it reads and writes), every launch of a Triton kernel, every event, wait and
synchronization, and every allocation. From that it knows, by vector clocks, which work comes before which: it reports a
race that this run *could* have had, whether or not the timing showed it. docs/sanitizer.md lists what it sees and what
it does not.

Example::

    from torch_backplane import sanitizer

    with sanitizer.enabled():  # an operator that races raises SanitizerError
        train()

or ``MYDEVICE_SANITIZER=1`` for a whole process.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torch_backplane import _backend

__all__ = ["Report", "SanitizerError", "disable", "enable", "enabled"]

# backend/runtime/activity.h
_RECORD, _WAIT, _EVENT_DONE, _STREAM_DONE, _DEVICE_DONE, _ALLOC, _FREE, _RECORD_STREAM, _LAUNCH = range(9)

StreamKey = tuple[int, int]
"""Device index and stream id."""

Clock = dict[StreamKey, int]
"""Of each stream, the number of the latest operator that is known to come before."""


class SanitizerError(RuntimeError):
    """What the sanitizer found, with the Python stacks of both sides."""


@dataclass
class Report:
    """What was found so far."""

    errors: list[SanitizerError] = field(default_factory=list)


@dataclass
class _Access:
    stream: StreamKey
    number: int  # of the operator on its stream
    operator: str
    argument: str
    writes: bool
    begin: int  # addresses of the bytes from the first to the last element
    end: int
    tensor: tuple[torch.Size, tuple[int, ...], int]  # sizes, strides in bytes, bytes of an element
    stack: traceback.StackSummary

    def __str__(self) -> str:
        verb = "written" if self.writes else "read"
        device, stream = self.stream
        where = "the default stream" if stream == 0 else f"stream {stream:#x}"
        return f"{verb} by {self.operator} ({self.argument}) on {where} of {_backend.device}:{device}"


@dataclass
class _Block:
    """An allocation: alive, or freed and perhaps still used by other streams than its own."""

    begin: int
    end: int
    owner: StreamKey
    stack: traceback.StackSummary
    accesses: list[_Access] = field(default_factory=list)
    recorded: set[StreamKey] = field(default_factory=set)


class _Order:
    """Which work comes before which."""

    def __init__(self) -> None:
        self.numbers: Clock = {}
        self.clocks: dict[StreamKey, Clock] = {}
        self.events: dict[int, Clock] = {}
        self.host: Clock = {}

    def next(self, stream: StreamKey) -> int:
        number = self.numbers.get(stream, 0) + 1
        self.numbers[stream] = number
        self.clock(stream)[stream] = number
        return number

    def clock(self, stream: StreamKey) -> Clock:
        return self.clocks.setdefault(stream, {})

    def is_before(self, access: _Access, stream: StreamKey) -> bool:
        """Whether an access comes before what the stream gets next."""
        if access.stream == stream:
            return True
        return access.number <= max(self.clock(stream).get(access.stream, 0), self.host.get(access.stream, 0))

    def note(self, kind: int, stream: StreamKey, event: int) -> None:
        if kind == _RECORD:
            self.events[event] = self._state(stream)
        elif kind == _WAIT:
            _merge(self.clock(stream), self.events.get(event, {}))
        elif kind == _EVENT_DONE:
            _merge(self.host, self.events.get(event, {}))
        elif kind == _STREAM_DONE:
            _merge(self.host, self._state(stream))
        elif kind == _DEVICE_DONE:
            for other in list(self.clocks):
                if other[0] == stream[0]:
                    _merge(self.host, self._state(other))

    def _state(self, stream: StreamKey) -> Clock:
        state = dict(self.clock(stream))
        _merge(state, self.host)
        return state


def _merge(into: Clock, other: Clock) -> None:
    for stream, number in other.items():
        if into.get(stream, 0) < number:
            into[stream] = number


class _Memory:
    """The allocations, by address."""

    def __init__(self) -> None:
        self.begins: list[int] = []
        self.blocks: dict[int, _Block] = {}
        self.freed: list[_Block] = []

    def add(self, block: _Block) -> None:
        if block.begin not in self.blocks:
            bisect.insort(self.begins, block.begin)
        self.blocks[block.begin] = block

    def remove(self, address: int) -> _Block | None:
        block = self.blocks.pop(address, None)
        if block is not None:
            del self.begins[bisect.bisect_left(self.begins, address)]
        return block

    def find(self, address: int) -> _Block | None:
        at = bisect.bisect_right(self.begins, address) - 1
        if at < 0:
            return None
        block = self.blocks[self.begins[at]]
        return block if address < block.end else None


class _Sanitizer(TorchDispatchMode):
    def __init__(self, raise_errors: bool) -> None:
        super().__init__()
        self.report = Report()
        self.raise_errors = raise_errors
        self.order = _Order()
        self.memory = _Memory()
        self.lock = threading.RLock()  # the backward runs on other threads
        self.new: list[SanitizerError] = []
        self.launches: Clock = {}  # a vendor's own work of the operator that runs: its latest number on each stream

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        stack = _stack()
        inputs = list(_arguments(func, args, kwargs))
        with self.lock:
            self.take_notes(stack)
            numbers = {stream: self.order.next(stream) for stream in {_current(t) for t, _, _ in inputs}}
            for tensor, argument, writes in inputs:
                self.access(tensor, argument, writes, str(func), numbers, stack)
            self.launches.clear()
        result = func(*args, **kwargs)
        with self.lock:
            self.take_notes(stack)
            touched = list(inputs)
            if _computes(func):
                known = {id(tensor) for tensor, _, _ in inputs}
                for number, tensor in enumerate(tree_leaves(result)):
                    if _is_ours(tensor) and id(tensor) not in known:
                        stream = _current(tensor)
                        numbers.setdefault(stream, 0)
                        if numbers[stream] == 0:
                            numbers[stream] = self.order.next(stream)
                        self.access(tensor, f"output {number}", True, str(func), numbers, stack)
                        touched.append((tensor, f"output {number}", True))
            for stream in self.launches.keys() - numbers.keys():  # beside the current streams
                for tensor, argument, writes in touched:
                    if tensor.device.index == stream[0]:
                        self.access(tensor, argument, writes, str(func), self.launches, stack, stream)
            found, self.new = self.new, []
        self.report.errors += found
        if found and self.raise_errors:
            raise found[0]
        return result

    def before_triton(self, kernel: str, accesses: list[tuple[str, str]], objects: list[Any]) -> None:
        """What the core calls before a launch: with the arguments, and the letters of ``triton.pointers``."""
        stack = _stack()
        with self.lock:
            self.take_notes(stack)
            numbers: Clock = {}
            for (argument, letter), value in zip(accesses, objects, strict=False):  # a log of messages may follow
                tensor = getattr(value, "base", value)  # of Triton's views in another dtype
                if letter == "-" or not isinstance(tensor, torch.Tensor) or not _is_ours(tensor):
                    continue
                stream = _current(tensor)
                if stream not in numbers:
                    numbers[stream] = self.order.next(stream)
                self.access(tensor, argument, letter != "r", kernel, numbers, stack)
            found, self.new = self.new, []
        self.report.errors += found
        if found and self.raise_errors:
            raise found[0]

    def take_notes(self, stack: traceback.StackSummary) -> None:
        """Process what the core logged since the last call."""
        for kind, device, stream_id, item, size in _backend.C.order_log.take():
            stream = (device, stream_id)
            if kind == _ALLOC:
                self.check_freed(stream, stack)
                self.memory.add(_Block(item, item + size, stream, stack))
            elif kind == _FREE:
                block = self.memory.remove(item)
                if block is not None and any(access.stream != block.owner for access in block.accesses):
                    self.memory.freed.append(block)
            elif kind == _RECORD_STREAM:
                block = self.memory.blocks.get(item)
                if block is not None:
                    block.recorded.add(stream)
            elif kind == _LAUNCH:
                self.launches[stream] = self.order.next(stream)
            else:
                self.order.note(kind, stream, item)

    def check_freed(self, stream: StreamKey, stack: traceback.StackSummary) -> None:
        """An allocation of a stream may get memory freed there: report other streams' uses that were not recorded."""
        for block in [block for block in self.memory.freed if block.owner == stream]:
            self.memory.freed.remove(block)
            for access in block.accesses:
                if access.stream not in block.recorded and not self.order.is_before(access, stream):
                    self.found_early_reuse(block, access, stack)
                    break

    def access(
        self,
        tensor: torch.Tensor,
        argument: str,
        writes: bool,
        operator: str,
        numbers: Clock,
        stack: traceback.StackSummary,
        stream: StreamKey | None = None,
    ) -> None:
        if tensor.numel() == 0:
            return
        begin = tensor.data_ptr()
        block = self.memory.find(begin)
        if block is None:  # allocated before the sanitizer was on, or not by the core
            storage = tensor.untyped_storage()
            block = _Block(storage.data_ptr(), storage.data_ptr() + storage.nbytes(), _current(tensor), stack)
            self.memory.add(block)
        size = tensor.element_size()
        strides = tuple(stride * size for stride in tensor.stride())
        last = sum((n - 1) * stride for n, stride in zip(tensor.shape, strides, strict=True))
        stream = stream or _current(tensor)
        now = _Access(
            stream,
            numbers[stream],
            operator,
            argument,
            writes,
            begin,
            begin + last + size,
            (tensor.shape, strides, size),
            stack,
        )
        kept = []
        for before in block.accesses:
            ordered = self.order.is_before(before, stream)
            if not ordered and (writes or before.writes) and _overlap(before, now):
                self.found_race(block, before, now)
                continue  # once
            covered = now.begin <= before.begin and before.end <= now.end and _is_dense(now)
            same = before.stream == stream and before.writes == writes
            if not (ordered and covered and (writes or same)):
                kept.append(before)
        kept.append(now)
        block.accesses = kept

    def found_race(self, block: _Block, before: _Access, now: _Access) -> None:
        self.add(
            f"two streams use the same memory, and nothing orders them: it is {now}, while it is {before}.",
            "Let the later stream wait: stream.wait_stream(other), or stream.wait_event(event).",
            [("The later use:", now.stack), ("The earlier use:", before.stack), ("Allocated at:", block.stack)],
        )

    def found_early_reuse(self, block: _Block, access: _Access, stack: traceback.StackSummary) -> None:
        self.add(
            f"memory was freed and can be given out again, while another stream may still use it: it is {access}, and "
            "belongs to another stream, on which it was allocated.",
            "Tell the allocator before the tensor goes: tensor.record_stream(stream); or let the owner's stream wait.",
            [
                ("The use:", access.stack),
                ("Allocated at:", block.stack),
                ("What may get the memory:", stack),
            ],
        )

    def add(self, what: str, cure: str, stacks: list[tuple[str, traceback.StackSummary]]) -> None:
        lines = [what, cure]
        for title, stack in stacks:
            lines += [title, "".join(stack.format()).rstrip()]
        self.new.append(SanitizerError("\n".join(lines)))


_INTERNAL = (os.path.dirname(torch.__file__), os.path.dirname(__file__))


def _stack() -> traceback.StackSummary:
    frames = traceback.StackSummary.extract(traceback.walk_stack(None), lookup_lines=False)
    triton = getattr(sys.modules.get("triton"), "__path__", ())
    own = [frame for frame in reversed(frames) if not frame.filename.startswith((*_INTERNAL, *triton))]
    return traceback.StackSummary.from_list(own)


def _is_ours(value: object) -> bool:
    if not isinstance(value, torch.Tensor) or value.device.type != _backend.device:
        return False
    return value.layout == torch.strided and not torch._C._functorch.is_functorch_wrapped_tensor(value)


def _current(tensor: torch.Tensor) -> StreamKey:
    stream_id, device = _backend.C.streams.current(tensor.device.index)
    return device, stream_id


def _computes(func: Any) -> bool:
    """Whether its outputs are written: not those of views, nor of factories of uninitialised memory."""
    return not func.is_view and "empty" not in func._schema.name and func._schema.name != "aten::resize_"


def _arguments(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[torch.Tensor, str, bool]]:
    """The device's tensors that an operator touches: tensor, name of the argument, whether it is written."""
    schema = func._schema
    if func.is_view:
        return
    name = schema.name.partition("::")[2]
    looks_only = name.startswith("new_") or name.endswith("_like") or name in ("record_stream", "set_", "resize_")
    for position, argument in enumerate(schema.arguments):
        value = args[position] if position < len(args) else kwargs.get(argument.name)
        writes = argument.alias_info is not None and argument.alias_info.is_write
        if value is None or (looks_only and not (writes and name.endswith("_like"))):
            continue
        for tensor in tree_leaves(value):
            if _is_ours(tensor):
                yield tensor, argument.name, writes


def _is_dense(access: _Access) -> bool:
    shape, _, size = access.tensor
    return access.end - access.begin == shape.numel() * size


def _overlap(a: _Access, b: _Access) -> bool:
    """Whether two accesses share a byte: views may lie between each other's elements."""
    if a.end <= b.begin or b.end <= a.begin:
        return False
    if (_is_dense(a) and _is_dense(b)) or max(a.end, b.end) - min(a.begin, b.begin) > 1 << 28:
        return True
    begin = min(a.begin, b.begin)
    bytes_of = []
    with torch.utils._python_dispatch._disable_current_modes():
        for access in (a, b):
            shape, strides, size = access.tensor
            touched = torch.zeros(max(a.end, b.end) - begin, dtype=torch.bool)
            touched.as_strided((*shape, size), (*strides, 1), access.begin - begin).fill_(True)
            bytes_of.append(touched)
        return bool((bytes_of[0] & bytes_of[1]).any())


_active: _Sanitizer | None = None


def enable(raise_errors: bool = True) -> Report:
    """Switch the sanitizer on for the calling thread and the backward of what it computes.

    Args:
        raise_errors: whether the operator that causes an error raises it; else errors are collected.

    Returns:
        The report, which fills while the sanitizer is on.

    Raises:
        RuntimeError: it is on already.
    """
    global _active
    if _active is not None:
        raise RuntimeError("the stream sanitizer is on already: disable() it first")
    _backend.C.order_log.switch(True)
    _active = _Sanitizer(raise_errors)
    _active.__enter__()
    _backend.C.modules.observe_triton_launches(_active.before_triton)
    return _active.report


def disable() -> None:
    """Switch it off; a no-op if it is off."""
    global _active
    if _active is None:
        return
    _backend.C.modules.observe_triton_launches(None)
    _active.__exit__(None, None, None)
    _backend.C.order_log.switch(False)
    _active = None


@contextlib.contextmanager
def enabled(raise_errors: bool = True) -> Iterator[Report]:
    """Context manager over :func:`enable` and :func:`disable`.

    Args:
        raise_errors: whether the operator that shows an error raises it; else errors are collected.

    Yields:
        The report.
    """
    report = enable(raise_errors)
    try:
        yield report
    finally:
        disable()
