"""Random functions under torch.compile (tests/portable/graphs.py): many of them on this process's kind of device."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch._inductor.compile_fx  # once, not in each child
from portable.graphs import Program, check, check_gradients, draw, fits

from fuzz.child import Progress, in_child, still_alive

SECONDS = 300.0
"""What one program may take."""
IN_A_CHILD = 50
ATTEMPTS = 40

Found = list[str]
"""The kind of fault, the function that shows it, and its text."""
Ask = Callable[[Program, str, int], Found | None]
"""What is wrong with a program on a device, compiled as of a seed."""

SCRIPT = """# {title}
#
# {settings} PYTHONPATH=tests python {name}
import torch
from portable.graphs import Program, {check}

inputs = [
{inputs}]
steps = [
{steps}]
{check}(Program(inputs, steps, {results}), "{device}", {seed})
"""


def run(
    device: str,
    seeds: range,
    prepare: Callable[[], object],
    until: float,
    most: int,
    findings: Path,
    kind: str,
) -> int:
    """Run the programs of the seeds, print and write what is found; 1 if anything is."""
    started, first, tried, torchs = time.monotonic(), seeds.start, 0, 0
    known: list[tuple[str, ...]] = []
    progress = Progress()
    while first < seeds.stop and time.monotonic() < until and len(set(known)) < most:
        last = min(first + IN_A_CHILD, seeds.stop)

        def work(first: int = first, last: int = last) -> Any:
            prepare()
            for seed in range(first, last):
                progress.set(seed, 0, True)
                if time.monotonic() > until:
                    return [seed, None]
                if found := judge(draw(seed), device, seed):
                    return [seed + 1, found]
            return [last, None]

        ended = in_child(work, SECONDS)
        if ended.how == "returned":
            after, found = ended.result
        else:
            after = progress.get()[0] + 1
            found = [ended.how, "check", _what(ended.text)]
        tried += after - first
        first = after
        if found:
            name = findings / f"{kind}-{first - 1}.py"

            def small(ask: Ask, seed: int = first - 1, found: Found = found, name: Path = name) -> Any:
                return report(device, seed, found, ask, name, kind)

            if ended.how == "returned":  # in one child, where what was compiled once need not be again
                ended = in_child(lambda: [prepare(), small(lambda *words: judge(*words))][1], 2 * SECONDS)
            said = ended.result if ended.how == "returned" else small(lambda *words: verdict(*words, prepare))
            print(said["text"], flush=True)
            if said["is_ours"]:
                known.append(tuple(said["key"]))
            else:
                torchs += 1
    seconds = time.monotonic() - started
    print(
        f"fuzz: {kind}: {tried} programs, {seconds:.0f} s, {len(known)} findings ({len(set(known))} different)"
        + (f", {torchs} that Inductor has for the CPU as well" if torchs else ""),
        flush=True,
    )
    return int(bool(known))


def judge(program: Program, device: str, seed: int) -> Found | None:
    """What is wrong with a program."""
    still_alive(SECONDS)
    warnings.simplefilter("ignore")
    for size in () if device == "cpu" else (20, 20, 24):  # what is read beside a tensor is no zero
        torch.full((1 << size,), 85, dtype=torch.uint8, device=device)
    checks = [check, check_gradients] if seed % 4 == 3 else [check]
    for one in checks:
        try:
            one(program, device, seed)
        except AssertionError as error:
            return ["value", one.__name__, str(error).partition("\n")[0]]
        except Exception as error:
            return ["error", one.__name__, " ".join(f"{type(error).__name__}: {error}".split())[:300]]
    return None


def verdict(program: Program, device: str, seed: int, prepare: Callable[[], object]) -> Found | None:
    """The same in a separate child."""
    ended = in_child(lambda: [prepare(), judge(program, device, seed)][1], SECONDS)
    return ended.result if ended.how == "returned" else [ended.how, "check", _what(ended.text)]


def _what(text: str) -> str:
    """A sanitizer's or a crash's first lines."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("  File", "====="))]
    first = next((k for k, line in enumerate(lines) if "ERROR: AddressSanitizer" in line), 0)
    return "; ".join(lines[first : first + 3])[:600]


def report(device: str, seed: int, found: Found, ask: Ask, path: Path, kind: str) -> dict[str, Any]:
    """Make it small, and write it; what to say, and what equal findings have in common."""
    program, left = draw(seed), ATTEMPTS
    again = ask(program, device, seed)
    smaller = iter(simpler(program) if again and again[0] == found[0] else ())
    while left > 0 and (candidate := next(smaller, None)):
        if not fits(candidate, candidate.inputs):
            continue
        left -= 1
        answer = ask(candidate, device, seed)
        if answer and answer[0] == found[0]:
            program, found, smaller = candidate, answer, simpler(candidate)
    title = f"{kind}, seed {seed}: {found[0]}: {found[2]}"
    title += "" if again else " (the program alone does not show it again)"
    # What Inductor's C++ for the CPU has as well is torch's.
    of_cpu = ask(program, "cpu", seed) if again and found[0] in ("value", "error") else None
    is_ours = of_cpu is None or of_cpu[0] != found[0] or (found[0] == "error" and of_cpu[2][:40] != found[2][:40])
    title += "" if is_ours else " (on the CPU as well)"
    settings = [f"{key}='{one}'" for key, one in os.environ.items() if key.startswith(f"{device.upper()}_")]
    path.write_text(
        SCRIPT.format(
            title=title.replace("\n", "\n# "),
            settings=" ".join(sorted(settings)),
            name=path,
            check=found[1],
            inputs="".join(f"    torch.tensor({one.tolist()}, dtype={one.dtype}),\n" for one in program.inputs),
            steps="".join(f"    {step},\n" for step in program.steps),
            results=program.results,
            device=device,
            seed=seed,
        )
    )
    names = (str(arguments.get("name", name)) for name, _, arguments in program.steps)
    return {"text": f"{title}\n{program}\n  {path}", "key": [found[0], *sorted(names)], "is_ours": is_ours}


def simpler(program: Program) -> Iterator[Program]:
    """One result, or one less; a step less, which one of its operands takes the place of."""
    for i in program.results:
        if len(program.results) > 2:
            yield live(replace(program, results=[i]))
    for i in program.results:
        if len(program.results) > 1:
            yield live(replace(program, results=[one for one in program.results if one != i]))
    first = len(program.inputs)
    for k in reversed(range(len(program.steps))):
        for instead in dict.fromkeys(program.steps[k][1]):
            yield live(_without(program, k + first, instead))


def _without(program: Program, gone: int, instead: int) -> Program:
    def place(i: int) -> int:
        return instead if i == gone else i - (i > gone)

    at = gone - len(program.inputs)
    kept = program.steps[:at] + program.steps[at + 1 :]
    steps = [(name, [place(i) for i in operands], arguments) for name, operands, arguments in kept]
    results = list(dict.fromkeys(place(i) for i in program.results))
    return replace(program, steps=steps, results=results)


def live(program: Program) -> Program:
    """Without the steps that no result needs and no input shows."""
    for k in reversed(range(len(program.steps))):
        i = len(program.inputs) + k
        changes = not program.steps[k][2].get("is_copy", True)
        used = i in program.results or any(i in operands for _, operands, _ in program.steps)
        if not used and not changes:
            program = _without(program, i, 0)
    return program
