"""A program on the CPU: what each step must give, whether it can be compared, and which streams it must wait for.

Nothing here depends on how the program was made, so a program of which steps were dropped is as sound as it was: a step
whose tensors are missing is skipped, as is one whose result would not be the same on every device (a comparison of
inexact numbers, a cast of what does not fit). Waits are computed here, not drawn, so that no program has a race.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from fuzz import values
from fuzz.groups import HOST, Group, Groups, Meta, Stream, covered, key, meta
from fuzz.properties import coarsest, finite, overlaps, readable, same_bits, too_large

Step = dict[str, Any]

RESIZES = ("Tensor.resize_", "helpers.resize_and_fill", "helpers.grow_storage", "Tensor.set_")
ANYTHING = "anything"
"""The error of a step in which torch's CPU itself is wrong: the device may answer as it likes."""
MOST_TAINT = 4
_LOW = (torch.float16, torch.bfloat16)
# What the CPU refuses and the device computes, as CUDA does: the function, and whether it is so of the dtype.
_BEYOND: dict[str, Callable[[torch.dtype], bool]] = {
    "abs": lambda dtype: dtype == torch.bool,
    "nansum": lambda dtype: dtype.is_complex,
}


@dataclass
class Expected:
    """What a step did on the CPU, and what it needs on the device."""

    skipped: bool = False
    error: str | None = None
    metas: list[Meta] = field(default_factory=list)
    shared: list[str | None] = field(default_factory=list)
    """The argument whose storage each result shares."""
    scalars: list[Any] = field(default_factory=list)
    exact: bool = True
    streams: list[Stream] = field(default_factory=list)
    waits: list[tuple[Stream, Stream]] = field(default_factory=list)
    """Who waits for whom."""
    records: list[tuple[str, Stream]] = field(default_factory=list)
    after: dict[str, Meta] = field(default_factory=dict)
    """The arguments, after an error."""
    forgotten: list[str] = field(default_factory=list)
    """What an error has left changed."""


def flatten(program: Mapping[str, Any]) -> list[tuple[int | None, Step]]:
    """All steps in the CPU's order, with their threads."""
    steps: list[tuple[int | None, Step]] = [(None, step) for step in program["steps"]]
    for number, thread in enumerate(program["threads"]):
        steps += [(number, step) for step in thread]
    return steps + [(None, step) for step in program["after"]]


def results(value: Any) -> tuple[list[torch.Tensor], list[Any]]:
    """The tensors and the other objects that a call has returned."""
    if isinstance(value, torch.Tensor):
        return [value], []
    if isinstance(value, (tuple, list)) and any(isinstance(inner, (torch.Tensor, tuple, list)) for inner in value):
        parts = [results(inner) for inner in value]
        return [t for tensors, _ in parts for t in tensors], [s for _, scalars in parts for s in scalars]
    return [], [] if value is None or isinstance(value, torch.UntypedStorage) else [value]


class Reference:
    """The program's state on the CPU."""

    def __init__(self) -> None:
        self.registers: dict[str, torch.Tensor] = {}
        self.places: dict[str, Any] = {}
        self.groups = Groups()
        self.thread: int | None = None
        self.before: tuple[dict[str, torch.Tensor], dict[str, Any]] = ({}, {})
        self.ended: list[tuple[dict[str, torch.Tensor], dict[str, Any]]] = []

    def run(self, program: Mapping[str, Any]) -> list[Expected]:
        """All steps."""
        found = []
        for thread, step in flatten(program):
            self.enter(thread)
            found.append(self.step(step))
        self.enter(None)
        return found

    def enter(self, thread: int | None) -> None:
        """What follows is a thread's: it sees what was made before the threads, and what it makes itself."""
        if thread == self.thread:
            return
        if self.thread is None:
            self.before = (dict(self.registers), dict(self.places))
        else:
            self.ended.append((self.registers, self.places))
        self.registers, self.places = dict(self.before[0]), dict(self.before[1])
        if thread is None:
            for registers, places in self.ended:
                self.registers.update(registers)
                self.places.update(places)
        if thread is None or self.thread is None:  # everything is waited for
            for group in self.groups.all():
                group.writers.clear()
                group.readers.clear()
        self.thread = thread

    def group(self, name: str) -> Group:
        """The group of a tensor's memory."""
        tensor = self.registers[name]
        found = self.groups.of(tensor)
        return found or self.groups.add(tensor, Group(owner=self.thread))

    def taint(self, name: str) -> int:
        """The taint of a tensor."""
        return self.group(name).taint

    def step(self, step: Step) -> Expected:
        """Run one."""
        if "drop" in step:
            mine = self.registers.get(step["drop"])
            if mine is None or (self.thread is not None and self.group(step["drop"]).owner is None):
                return Expected(skipped=True)
            del self.registers[step["drop"]], self.places[step["drop"]]
            return Expected()
        if "sync" in step:
            return Expected(streams=[(step["on"], step["stream"])])
        return self.call(step)

    def call(self, step: Step) -> Expected:
        """Run a step that calls a function."""
        names = list(dict.fromkeys(values.tensors([step["args"], list(step.get("kw", {}).values())])))
        if not all(name in self.registers for name in names) or self.refuses(step, names):
            return Expected(skipped=True)
        expected = Expected()
        self.order(step, names, expected)
        if "expect" in step:  # what the CPU cannot show
            expected.error = step["expect"]
            expected.after = {name: meta(self.registers[name]) for name in names}
            return expected
        taint = self.taint_after(step, names)
        storages = [self.registers[name].untyped_storage() for name in step.get("writes", ())]
        sizes = [storage.nbytes() for storage in storages]
        before = {name: meta(self.registers[name]) for name in names}
        kept = [name for name in names if readable(self.registers[name])] if step.get("mistake") else []
        copies = {name: self.registers[name].clone() for name in kept}
        try:
            args = values.decode(step["args"], self.registers, values.ON_CPU)
            keywords = values.decode_all(step.get("kw", {}), self.registers)
            result = values.function(step["fn"])(*args, **keywords)
        except Exception as error:
            expected.error = ANYTHING if "INTERNAL ASSERT" in str(error) else type(error).__name__
            self.after_error(names, before, copies, expected, [] if copies else step.get("writes", []))
            return expected
        for storage, size in zip(storages, sizes, strict=True):
            if storage.nbytes() > size and step["fn"] != "helpers.resize_and_fill":
                group = self.groups.of_storage(storage)
                group.defined = size if group.defined is None else min(size, group.defined)
        tensors, expected.scalars = results(result)
        self.keep(step, names, tensors, taint, expected)
        return expected

    def keep(self, step: Step, names: list[str], tensors: list[torch.Tensor], taint: int, expected: Expected) -> None:
        """Note the results."""
        by_storage = {key(self.registers[name]): name for name in reversed(names)}
        for tensor in tensors:
            expected.shared.append(by_storage.get(key(tensor)))
            group = self.groups.of(tensor)
            if group is None:
                if step["fn"] == "torch._lazy_clone":
                    group = self.groups.add(tensor, self.group(names[0]))
                else:
                    group = self.groups.add(tensor, Group(owner=self.thread))
                    group.defined = covered(tensor)
                    if step.get("result") != "host" or self.queued(step):
                        group.access(expected.streams, writes=True)
            expected.metas.append(meta(tensor))
        for name, tensor in zip(step["out"], tensors, strict=False):
            self.registers[name] = tensor
            self.places[name] = step.get("result", step["on"])
        for name in step.get("writes", ()):
            self.group(name).access(expected.streams, writes=True)
        for tensor in [*tensors, *(self.registers[name] for name in step.get("writes", ()))]:
            group = self.groups.of(tensor) or self.groups.add(tensor, Group(owner=self.thread))
            group.taint = max(group.taint, taint, int(too_large(tensor)))
            if group.taint:
                group.coarsest = coarsest([group.coarsest, tensor.dtype, *(self.group(n).coarsest for n in names)])
        expected.exact = taint == 0

    def refuses(self, step: Step, names: list[str]) -> bool:
        """Whether the step means nothing here, or nothing that every device must do alike."""
        if not step.get("cross") and any(self.places[name] != step["on"] for name in names):
            return True
        if self.thread is not None:
            changed = names if step["fn"] == "torch._lazy_clone" else step.get("writes", ())
            if any(self.group(name).owner != self.thread for name in changed):
                return True
        if not all(self.group(name).defines(self.registers[name]) for name in names):
            return True
        if self.writes_what_it_reads(step):  # where there are gaps between elements, torch does not detect an overlap
            dense = all(self.registers[name].is_contiguous() for name in step["writes"])
            if not step.get("shared") or not dense:
                return True
        if step.get("expect") == "freed" and any(readable(self.registers[name]) for name in names):
            return True
        if step.get("expect") == "devices" and len({self.places[name] for name in names}) < 2:
            return True
        if not step.get("mistake") and any(overlaps(self.registers[name]) for name in step.get("writes", ())):
            return True
        tensors = [self.registers[name] for name in names]
        beyond = _BEYOND.get(step["fn"].rpartition(".")[2].rstrip("_"))
        if beyond and tensors and beyond(tensors[0].dtype):
            return True
        if step["fn"] in (*RESIZES, "Tensor.tolist") and any(tensor._is_zerotensor() for tensor in tensors):
            return True  # torch's CPU looks for their memory: it crashes, or raises
        if ("oom" in step or step["fn"] in RESIZES) and any(map(torch._C._is_cow_tensor, tensors)):
            return True  # torch counts copies on write wrongly where memory is refused, and asserts where it is resized
        if step.get("mistake") or "expect" in step:
            return False
        kind = step["class"]
        inexact = max((self.taint(name) for name in names), default=0)
        if kind != "copy" and inexact > MOST_TAINT:
            return True
        if kind in ("smooth", "sharp", "cast") and inexact:
            return True
        if kind in ("smooth", "cast") and any(not finite(t) for t in tensors):
            return True
        return kind != "copy" and any(t.is_complex() and not finite(t) for t in tensors)

    def writes_what_it_reads(self, step: Step) -> bool:
        """Whether two arguments share memory and one is written: not all functions are asked to check that."""
        arguments = values.tensors([step["args"], list(step.get("kw", {}).values())])
        groups = [id(self.group(name)) for name in arguments]
        return any(groups.count(id(self.group(name))) > 1 for name in step.get("writes", ()))

    def taint_after(self, step: Step, names: list[str]) -> int:
        """How exact the results are."""
        taint = max((self.taint(name) for name in names), default=0)
        kind = step["class"]
        if kind == "smooth" or (kind == "sum" and any(self.registers[name].dtype in _LOW for name in names)):
            return max(taint + 1, 1)
        return taint + 1 if taint and kind != "copy" else taint

    def queued(self, step: Step) -> bool:
        """Whether host memory is still used when the call has returned."""
        return bool(step.get("kw", {}).get("non_blocking")) or step.get("queued", False)

    def order(self, step: Step, names: list[str], expected: Expected) -> None:
        """Which streams the step runs on, what they wait for, and who must know of the memory."""
        main = HOST if step["on"] == "host" else (step["on"], step["stream"])
        others = {self.places[name] for name in names} | {step.get("result", step["on"])}
        expected.streams = [main, *((place, 0) for place in others if place not in ("host", step["on"]))]
        for name in names:
            group, writes = self.group(name), name in step.get("writes", ())
            for before in group.before(expected.streams, writes):
                if before != HOST:
                    expected.waits += [(stream, before) for stream in expected.streams]
            on_host = self.places[name] == "host"
            if not on_host or main == HOST or self.queued(step):
                group.access(expected.streams, writes)
            if not on_host and len(group.users) > 1:
                expected.records += [(name, s) for s in expected.streams if s[0] == self.places[name]]
        expected.waits = list(dict.fromkeys(expected.waits))

    def after_error(
        self,
        names: list[str],
        before: dict[str, Meta],
        copies: dict[str, torch.Tensor],
        expected: Expected,
        written: list[str],
    ) -> None:
        """What is left. Tensors that the CPU has half changed, or may have, are not looked at again."""
        changed = [name for name in names if name in written or meta(self.registers[name]) != before[name]]
        for name, copy in copies.items():
            if name not in changed and not same_bits(copy, self.registers[name]):
                changed.append(name)
        expected.after = {name: meta(self.registers[name]) for name in names}
        lost = {id(self.group(name)) for name in changed}
        expected.forgotten = [name for name in self.registers if id(self.group(name)) in lost]
        for name in expected.forgotten:
            del self.registers[name], self.places[name]
