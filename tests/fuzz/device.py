"""A program on the device, held against what the CPU has made of it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch

from fuzz import values
from fuzz.contents import contents, difference, largest, same_scalars
from fuzz.groups import HOST, Stream, key, meta
from fuzz.machine import Machine, Shortage
from fuzz.properties import same_bits
from fuzz.reference import ANYTHING, Expected, Reference, Step, flatten, results

REFUSALS = {
    "oom": ("OutOfMemoryError",),
    "devices": ("RuntimeError",),
    "freed": ("RuntimeError", "ValueError", "NotImplementedError"),  # the last of a dtype, by some from torch 2.15 on
    "RuntimeError": ("RuntimeError", "IndexError"),
}
"""What may be raised instead of the CPU's error, or in a mistake that the CPU cannot make. The CPU itself has two names
for an index that is out of range, as the dtype is."""


class Finding(Exception):
    """The device does not do what the CPU does."""

    def __init__(self, category: str, function: str, text: str) -> None:
        super().__init__(text)
        self.category, self.function, self.text = category, function, text


class Run:
    """One program on the device."""

    def __init__(self, machine: Machine, expected: list[Expected], at: Any = None) -> None:
        self.machine, self.expected = machine, expected
        self.at = at or (lambda number: None)
        self.registers: dict[str, torch.Tensor] = {}

    def run(self, program: Mapping[str, Any], reference: Reference) -> None:
        """Run it; raise Finding for whatever is wrong."""
        module = self.machine.module
        try:
            self.steps(program)
            for index in (0, 1):
                module.synchronize(index)
            self.compare_all(reference)
        except Finding:
            raise
        except Exception as error:
            raise Finding("wait", "synchronize", f"{type(error).__name__}: {error}") from None
        self.registers.clear()
        if leaks := self.machine.leaks():
            raise Finding("leak", "memory_allocated", leaks)
        for index in (0, 1):
            try:
                sound = (torch.ones(2, device=self.machine.places[index]) + 1).sum().item() == 4
            except Exception as error:
                raise Finding("sticky", "add", f"device {index} is not usable: {error}") from None
            if not sound:
                raise Finding("sticky", "add", f"device {index} computes wrong numbers")

    def steps(self, program: Mapping[str, Any]) -> None:
        """All steps, those of threads at the same time."""
        numbers = iter(range(len(self.expected)))
        todo: dict[int | None, list[tuple[int, Step]]] = {}
        after: list[tuple[int, Step]] = []
        for thread, step in flatten(program):
            number = next(numbers)
            (after if thread is None and any(key is not None for key in todo) else todo.setdefault(thread, [])).append(
                (number, step)
            )
        for number, step in todo.pop(None, []):
            self.step(number, step, self.registers)
        if todo:
            self.threads(todo)
        for number, step in after:
            self.step(number, step, self.registers)

    def threads(self, todo: Mapping[int | None, list[tuple[int, Step]]]) -> None:
        """Each thread's steps on a thread. What was made before is everybody's."""
        for index in (0, 1):
            self.machine.module.synchronize(index)
        found: list[Exception] = []
        own = [dict(self.registers) for _ in todo]

        def work(steps: list[tuple[int, Step]], registers: dict[str, torch.Tensor]) -> None:
            try:
                for number, step in steps:
                    expected = self.expected[number]
                    if self.machine.compiles and expected.error in ("IndexError", "RuntimeError"):
                        for name in expected.forgotten:  # another thread's wait could report the mistake
                            registers.pop(name, None)
                    else:
                        self.step(number, step, registers)
            except Exception as error:
                found.append(error)

        workers = [threading.Thread(target=work, args=pair) for pair in zip(todo.values(), own, strict=True)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if found:
            raise found[0]
        for registers in own:
            self.registers.update(registers)
            registers.clear()
        for index in (0, 1):
            self.machine.module.synchronize(index)

    def step(self, number: int, step: Step, registers: dict[str, torch.Tensor]) -> None:
        """Run one step, and compare all but contents."""
        expected = self.expected[number]
        if expected.skipped:
            return
        self.at(number)
        if "drop" in step:
            del registers[step["drop"]]
            return
        if "sync" in step:
            self.sync(step)
            return
        for waiter, before in expected.waits:
            self.wait(waiter, before, step["wait"])
        for name, stream in expected.records:
            registers[name].record_stream(self.machine.streams[stream])
        main = expected.streams[0]
        with nullcontext() if main == HOST else self.machine.module.stream(self.machine.streams[main]):
            returned = self.refused(step, expected, main, registers) if "oom" in step else None
            tensors, scalars = returned or self.call(step, expected, registers)
        if expected.error is None:
            self.compare_results(step, expected, registers, tensors, scalars)
            registers.update(zip(step["out"], tensors, strict=False))
        for name in expected.forgotten:
            registers.pop(name, None)

    def call(
        self, step: Step, expected: Expected, registers: Mapping[str, torch.Tensor]
    ) -> tuple[list[torch.Tensor], list[Any]]:
        """The call itself. Its error must be the CPU's, and must have changed nothing."""
        names = list(expected.after)
        before = {name: meta(registers[name]) for name in names}
        error, text = None, ""
        try:
            returned = results(invoke(step, registers, self.machine.places))
            if expected.error is not None:
                self.wait_for_reports()
        except Exception as raised:
            error, text = type(raised).__name__, str(raised)
        if expected.error is None:
            if error is not None:
                raise Finding("error", step["fn"], f"raised {error}: {text}")
            return returned
        if expected.error == ANYTHING:
            return [], []
        if error is None:
            raise Finding("accepted", step["fn"], f"accepted what must be refused ({expected.error})")
        on_host = expected.error == "oom" and "DefaultCPUAllocator" in text  # the fallback's own memory
        if not on_host and error not in REFUSALS.get(expected.error, (expected.error,)):
            raise Finding("type", step["fn"], f"raised {error} where {expected.error} is right: {text}")
        for name in names:
            now = meta(registers[name])
            if now not in (before[name], expected.after[name]):
                text = f"{name} was {before[name]}, is {now} after {error}"
                raise Finding("changed", step["fn"], text)
        return [], []

    def wait_for_reports(self) -> None:
        """A compiled kernel reports an index at the next wait."""
        for index in (0, 1):
            self.machine.module.synchronize(index)

    def refused(
        self, step: Step, expected: Expected, main: Stream, registers: Mapping[str, torch.Tensor]
    ) -> tuple[list[torch.Tensor], list[Any]] | None:
        """Try the step where memory runs out. It may get through; if it does not, nothing has changed."""
        names = list(dict.fromkeys(values.tensors([step["args"], list(step.get("kw", {}).values())])))
        before = {name: (meta(registers[name]), contents(registers[name])) for name in names}
        try:
            with Shortage(self.machine.module, self.machine.places[main[0]], step["oom"]):
                returned = results(invoke(step, registers, self.machine.places))
            if expected.error is None:
                return returned
            self.wait_for_reports()
        except torch.OutOfMemoryError:
            pass
        except Exception as error:
            if expected.error is None:
                text = f"raised {type(error).__name__} where memory had run out: {error}"
                raise Finding("type", step["fn"], text) from None
        for name, (old_meta, old) in before.items():
            if meta(registers[name]) != old_meta:
                text = f"{name} was {old_meta}, is {meta(registers[name])} after memory had run out"
                raise Finding("changed", step["fn"], text)
            now = contents(registers[name])
            if (old is None) != (now is None) or (old is not None and not same_bits(old, now)):
                raise Finding("changed", step["fn"], f"the contents of {name} have changed after memory had run out")
        return None

    def compare_results(
        self,
        step: Step,
        expected: Expected,
        registers: Mapping[str, torch.Tensor],
        tensors: list[torch.Tensor],
        scalars: list[Any],
    ) -> None:
        """Everything about the results but what they hold."""
        where = torch.device(self.machine.places[step.get("result", step["on"])])
        if [meta(tensor) for tensor in tensors] != expected.metas:
            text = f"expected {expected.metas}, found {[meta(tensor) for tensor in tensors]}"
            raise Finding("meta", step["fn"], text)
        for tensor in tensors:
            if tensor.device != where:
                raise Finding("place", step["fn"], f"the result is on {tensor.device}, not on {where}")
        names = dict.fromkeys(values.tensors([step["args"], list(step.get("kw", {}).values())]))
        by_storage = {key(registers[name]): name for name in reversed(list(names))}
        shared = [by_storage.get(key(tensor)) for tensor in tensors]
        if shared != expected.shared:
            raise Finding(
                "shared", step["fn"], f"results share memory with {shared}, on the CPU with {expected.shared}"
            )
        if not same_scalars(expected.scalars, scalars, expected.exact):
            raise Finding("value", step["fn"], f"expected {expected.scalars}, found {scalars}")

    def compare_all(self, reference: Reference) -> None:
        """Each tensor that is left, with the CPU's."""
        if set(self.registers) != set(reference.registers):
            raise Finding("lost", "-", f"{set(self.registers) ^ set(reference.registers)}")
        found = {name: (meta(tensor), contents(tensor)) for name, tensor in self.registers.items()}
        scale = max((largest(tensor) for tensor in reference.registers.values()), default=0.0)
        for name, tensor in reference.registers.items():
            now, held = found[name]
            if now != meta(tensor):
                raise Finding("meta", "-", f"{name}: expected {meta(tensor)}, found {now}")
            if not reference.group(name).defines(tensor):
                continue
            wanted = contents(tensor)
            if wanted is None or held is None:
                if (wanted is None) != (held is None):
                    raise Finding("meta", "-", f"{name}: one side has no memory")
                continue
            group = reference.group(name)
            if different := difference(wanted, held, group.coarsest if group.taint else None, scale):
                raise Finding("value", "-", f"{name}: {different}")

    def sync(self, step: Step) -> None:
        """Wait for a device or a stream, ask, or give memory back."""
        stream = self.machine.streams[step["on"], step["stream"]]
        if step["sync"] == "device":
            self.machine.module.synchronize(step["on"])
        elif step["sync"] == "stream":
            stream.synchronize()
        elif step["sync"] == "query":
            event = stream.record_event()
            stream.query()
            event.query()
        else:
            self.machine.module.empty_cache()

    def wait(self, waiter: Stream, before: Stream, how: str) -> None:
        """Order a stream, or this thread, after the work that another stream has by now."""
        first = self.machine.streams[before]
        if waiter == HOST or how == "host":
            first.synchronize()
        elif how == "event":
            self.machine.streams[waiter].wait_event(first.record_event())
        else:
            self.machine.streams[waiter].wait_stream(first)


def invoke(step: Step, registers: Mapping[str, torch.Tensor], places: Mapping[Any, str]) -> Any:
    """Call the step's function."""
    args = values.decode(step["args"], registers, places)
    keywords = {name: values.decode(value, registers, places) for name, value in step.get("kw", {}).items()}
    return values.function(step["fn"])(*args, **keywords)
