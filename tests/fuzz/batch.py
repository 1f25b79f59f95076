"""Many programs on this process's kind of device: in children, until one finds something; then in the next."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fuzz.child import Progress, in_child, still_alive
from fuzz.device import Finding, Run
from fuzz.grammar import draw, drawn
from fuzz.machine import Machine
from fuzz.reference import Reference, flatten

SECONDS = 30.0
"""What one program may take."""

Program = Mapping[str, Any]


@dataclass
class Found:
    """A program that the device answers wrongly."""

    seed: int
    category: str
    function: str
    text: str
    program: Any = None
    script: str = ""

    def key(self) -> tuple[str, str, str]:
        """Equal for what is likely the same defect."""
        words = "" if self.category in ("value", "meta", "changed") else self.text.split("\n")[0]
        return self.category, self.function, "".join(c for c in words if not c.isdigit())[:60]


@dataclass
class Summary:
    """What a batch has done."""

    programs: int = 0
    steps: int = 0
    refused_by_cpu: int = 0
    seconds: float = 0.0
    found: list[Found] = field(default_factory=list)


def judge(machine: Machine, program: Program, at: Callable[[int, bool], None] = lambda step, on_device: None) -> None:
    """Run a program on both sides; raise Finding."""
    at(-1, False)
    reference = Reference()
    expected = reference.run(program)
    at(-1, True)
    Run(machine, expected, lambda number: at(number, True)).run(program, reference)


def verdict(name: str, program: Program, prepare: Callable[[], object]) -> dict[str, Any] | None:
    """The finding of one program in a separate child; None without one, or if the CPU itself crashes."""
    progress = Progress()

    def work() -> dict[str, str]:
        prepare()
        try:
            judge(Machine(name), program, lambda step, on_device: progress.set(0, step, on_device))
        except Finding as finding:
            return vars(finding)
        return {}

    ended = in_child(work, SECONDS)
    if ended.how == "returned":
        return ended.result or None
    _, step, on_device = progress.get()
    return vars(_ended(ended.how, ended.text, program, step)) if on_device else None


def _ended(how: str, text: str, program: Program, step: int) -> Finding:
    """What a crash or a hang is called: by the step, and by the first lines of what was written."""
    steps = flatten(program)
    function = steps[step][1].get("fn", "-") if 0 <= step < len(steps) else "-"
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("  File")]
    return Finding(how, function, "; ".join(lines[:4])[:500])


def run(
    name: str,
    seeds: range,
    features: list[str] | None,
    prepare: Callable[[], object],
    until: float,
    new: Callable[[Found], bool],
) -> Summary:
    """Run the programs of the seeds, and call ``new`` with each finding; it returns whether to go on."""
    summary, progress = Summary(), Progress()
    started, first = time.monotonic(), seeds.start
    while first < seeds.stop and time.monotonic() < until:

        def work(first: int = first) -> dict[str, Any]:
            return _programs(name, range(first, seeds.stop), features, prepare, until, progress)

        progress.set(first, -1, False)
        ended = in_child(work, SECONDS)
        seed, step, on_device = progress.get()
        found = None
        if ended.how == "returned":
            summary.programs += ended.result["programs"]
            summary.steps += ended.result["steps"]
            if ended.result["found"]:
                found = Found(**ended.result["found"])
            first = ended.result["next"]
        else:
            summary.programs += seed - first + 1
            first = seed + 1
            if on_device:
                program = in_child(lambda seed=seed: draw(seed, features), SECONDS).result
                end = _ended(ended.how, ended.text, program, step)
                found = Found(seed, end.category, end.function, end.text, program)
            elif ended.text.startswith("status"):  # Python's own end: nothing was tried
                raise RuntimeError(f"seed {seed} could not be run: {ended.text}")
            else:
                summary.refused_by_cpu += 1
        if found:
            summary.found.append(found)
            if not new(found):
                break
    summary.seconds = time.monotonic() - started
    return summary


def _programs(
    name: str,
    seeds: range,
    features: list[str] | None,
    prepare: Callable[[], object],
    until: float,
    progress: Progress,
) -> dict[str, Any]:
    """In the child: programs until one finds something."""
    warnings.simplefilter("ignore")
    prepare()
    machine = Machine(name)
    done, steps, found, seed = 0, 0, None, seeds.start
    for seed in seeds:
        if done % 20 == 0:
            still_alive(SECONDS)
            if time.monotonic() > until:
                break
        progress.set(seed, -1, False)
        program, reference, expected = drawn(seed, features)
        done += 1
        steps += len(program["steps"]) + sum(map(len, program["threads"])) + len(program["after"])
        try:
            progress.set(seed, -1, True)
            Run(machine, expected, lambda step, seed=seed: progress.set(seed, step, True)).run(program, reference)
        except Finding as finding:
            found = asdict(Found(seed, finding.category, finding.function, finding.text, program))
            break
    return {"programs": done, "steps": steps, "found": found, "next": seed + 1}
