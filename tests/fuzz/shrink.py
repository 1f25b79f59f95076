"""Fewer and simpler steps, as long as the program goes on failing in the same way."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

Program = dict[str, Any]


def shrink(program: Program, fails: Callable[[Program], bool], attempts: int = 400) -> Program:
    """The smallest program found.

    Args:
        program: one that fails.
        fails: whether a program still does.
        attempts: how often to ask at most.
    """
    left = attempts

    def still(candidate: Program) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and fails(candidate)

    before = None
    while before != program and left > 0:
        before = program
        program = _without_steps(program, still)
        for candidate in _simpler(program):
            if still(candidate(program)):
                program = candidate(program)
    return program


def _without_steps(program: Program, still: Callable[[Program], bool]) -> Program:
    places = _places(program)
    size = max(len(places) // 2, 1)
    while size >= 1:
        start, places = 0, _places(program)
        while start < len(places):
            candidate = _keep(program, places[:start] + places[start + size :])
            if still(candidate):
                program, places = candidate, _places(candidate)
            else:
                start += size
        size //= 2
    return program


def _places(program: Program) -> list[tuple[Any, int]]:
    parts = [("steps", program["steps"]), *enumerate(program["threads"]), ("after", program["after"])]
    return [(part, number) for part, steps in parts for number in range(len(steps))]


def _keep(program: Program, places: list[tuple[Any, int]]) -> Program:
    kept = set(places)

    def some(part: Any, steps: list[Any]) -> list[Any]:
        return [step for number, step in enumerate(steps) if (part, number) in kept]

    threads = [some(part, steps) for part, steps in enumerate(program["threads"])]
    return {
        **program,
        "steps": some("steps", program["steps"]),
        "threads": [steps for steps in threads if steps],
        "after": some("after", program["after"]),
    }


def _simpler(program: Program) -> Iterator[Callable[[Program], Program]]:
    def sequential(old: Program) -> Program:
        steps = [*old["steps"], *(step for thread in old["threads"] for step in thread), *old["after"]]
        return {**old, "steps": steps, "threads": [], "after": []}

    if program["threads"] or program["after"]:
        yield sequential
        return
    for number, step in enumerate(program["steps"]):

        def without(key: str, old: Program, number: int = number) -> Program:
            new = copy.deepcopy(old)
            new["steps"][number].pop(key)
            return new

        def with_value(key: str, value: Any, old: Program, number: int = number) -> Program:
            new = copy.deepcopy(old)
            new["steps"][number][key] = value
            return new

        if "oom" in step:
            yield lambda old, without=without: without("oom", old)
        if step.get("stream"):
            yield lambda old, with_value=with_value: with_value("stream", 0, old)
        if "kw" in step:
            yield lambda old, without=without: without("kw", old)
