"""Random functions of tensors, as data: what torch.compile makes of them is compared with the CPU's eager results.

A program is drawn while it runs on the CPU, so that each step fits what is there, and mostly takes what the last ones
made: as its operand, index, mask or scale. It runs in float64 beside that, which shows what rounding has touched. What
is exact has to be the same on the device; the rest as near as the CPU's result is to the one in float64. What rounding
would decide (a comparison, a place) is not drawn.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from portable.graph_steps import (
    FLOATS,
    HALVES,
    MOST,
    ONCE,
    SHARP,
    SIZES,
    SMOOTH,
    STEPS,
    WEIGHTS,
    WHOLE,
    Tensors,
    is_whole,
)

Step = tuple[str, list[int], dict[str, Any]]


@dataclass
class Program:
    """Inputs, steps that each add a tensor, and which of them are results."""

    inputs: Tensors
    steps: list[Step] = field(default_factory=list)
    results: list[int] = field(default_factory=list)

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The function; inputs that are to change are changed."""
        known = list(inputs)
        for name, operands, arguments in self.steps:
            known.append(STEPS[name].run(*(known[i] for i in operands), **arguments))
        return tuple(known[i] for i in self.results)

    def gradients(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Of a sum of the results, for each input of floats. Only copies are changed: autograd needs what there was."""
        steps = [
            (name, operands, {key: key == "is_copy" or one for key, one in arguments.items()})
            for name, operands, arguments in self.steps
        ]
        leaves = [one.clone().requires_grad_(one.is_floating_point()) for one in inputs]
        results = Program([], steps, self.results)(*(one * 1 for one in leaves))
        results = [one for one in results if one.requires_grad and one.is_floating_point()]
        wanted = [one for one in leaves if one.requires_grad]
        if not results or not wanted:
            return ()
        total = sum((one.to(torch.float64) * 0.5).sum() / one.numel() for one in results)
        found = torch.autograd.grad(total, wanted, allow_unused=True)
        return tuple(torch.zeros_like(x) if one is None else one for x, one in zip(wanted, found, strict=True))

    def __repr__(self) -> str:
        inputs = [f"{one.dtype}{tuple(one.shape)}" for one in self.inputs]
        return "\n".join([f"inputs {inputs}, results {self.results}", *map(str, enumerate(self.steps, len(inputs)))])


# ---- how near a result has to be


class InFloat64(TorchFunctionMode):
    """What would become a shorter float becomes float64."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if getattr(function, "__name__", "") == "float":
            return args[0].double()
        return function(*map(_longer, args), **{key: _longer(one) for key, one in (kwargs or {}).items()})


def _longer(one: Any) -> Any:
    if not isinstance(one, torch.dtype):
        return one
    return torch.float64 if one.is_floating_point else torch.complex128 if one.is_complex else one


@contextmanager
def in_float64() -> Iterator[None]:
    """Its block computes in float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with InFloat64():
            yield
    finally:
        torch.set_default_dtype(before)


def long(one: torch.Tensor) -> torch.Tensor:
    """A copy that is exact."""
    return one.to(_longer(one.dtype), copy=True)


class Reference:
    """What is known so far: from the CPU, in float64, and how much rounding each may show (0: it is exact)."""

    def __init__(self, inputs: Tensors, steps: Iterable[Step] = ()) -> None:
        self.known = [one.clone() for one in inputs]
        self.real = [long(one) for one in inputs]
        self.rounding = [0.0 for _ in inputs]
        self.once = [False for _ in inputs]  # rounded to a half by one operation: what float64 gets of it is exact
        for step in steps:
            self.add(*step)

    def add(self, name: str, operands: list[int], arguments: dict[str, Any]) -> None:
        """Run a step. An operator's error, or Unfit, leaves everything as it was, but for inputs that it changed."""
        real = [self.real[i] for i in operands]
        exact = not any(self.rounding[i] for i in operands)
        if name == "converted" and arguments["dtype"] == torch.float64 and self.once[operands[0]]:
            exact, real = True, [long(self.known[operands[0]])]
        words = {name, arguments.get("name")}
        if not exact and (words & SHARP or is_whole(arguments.get("dtype"))):
            raise Unfit("rounding would decide")
        run = STEPS[name].run
        made = run(*(self.known[i] for i in operands), **arguments)
        if not 0 < made.numel() <= MOST or made.dim() > 5 or not bool(made.isfinite().all()):
            raise Unfit("too large, too small or not finite")
        with in_float64():
            real = run(*real, **arguments)
        if real.shape != made.shape or real.dtype != _longer(made.dtype):
            raise Unfit("float64 is another path")
        changes = not arguments.get("is_copy", True)
        if changes and any(
            not n and not torch.equal(long(x), y) for x, y, n in zip(self.known, self.real, self.rounding, strict=True)
        ):
            raise Unfit("an input is no longer exact")
        rounding = 0.0
        if not exact or words & SMOOTH or not torch.equal(long(made), real) or not _is_short(real):
            if is_whole(made.dtype):
                raise Unfit("rounding has decided")
            has_halves = any(self.known[i].dtype in HALVES for i in operands) or made.dtype in HALVES
            rounding = max([3e-2 if has_halves else 1e-4, *(self.rounding[i] for i in operands)])
        self.known.append(made)
        self.real.append(real)
        self.rounding.append(rounding)
        is_one = exact and made.dtype in HALVES and bool(words & ONCE) and torch.equal(made, real.to(made.dtype))
        self.once.append(rounding > 0 and is_one)

    def check(self, got: torch.Tensor, i: int) -> None:
        """That this is the known tensor of that number."""
        assert_near(got, self.known[i], self.real[i], self.rounding[i])


class Unfit(RuntimeError):
    """A step that would tell nothing."""


def _is_short(real: torch.Tensor) -> bool:
    """Whether float32 has room for what is computed from this: some twenty bits around the point."""
    parts = torch.view_as_real(real.resolve_conj()) if real.is_complex() else real
    scaled = parts * 1024
    return not parts.is_floating_point() or bool(((scaled == scaled.round()) & (parts.abs() < 1024)).all())


def assert_near(got: torch.Tensor, wanted: torch.Tensor, real: torch.Tensor, rounding: float) -> None:
    """The same if there is no rounding; else as near as the CPU's own result is to the one in float64."""
    got = got.cpu()
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape), f"{got.dtype}{tuple(got.shape)}"
    if not rounding or is_whole(wanted.dtype):
        good = got == wanted
    else:
        largest = wanted.abs().nan_to_num(0, 0, 0).amax()
        got, wanted = long(got), long(wanted)
        allowed = rounding * (1 + largest) + 30 * (wanted - real).abs().nan_to_num(0, 0, 0)
        good = ((got - wanted).abs() <= allowed) | (got == wanted) | (got.isnan() & wanted.isnan())
    if good.all():
        return
    place = tuple((~good).nonzero()[0].tolist())
    count = f"{int((~good).sum())} of {good.numel()}"
    raise AssertionError(f"{count} differ, at {place}: {got[place]}, not {wanted[place]}")


@contextmanager
def compiling(seed: int) -> Iterator[dict[str, Any]]:
    """What torch.compile gets for a seed: every third has dynamic shapes, another static ones; of every second, kernels
    that do not depend on each other are one; every fifth is recorded and replayed."""
    torch._dynamo.reset()
    with torch._inductor.config.patch(force_disable_caches=True, combo_kernels=seed % 2 == 1):
        yield {"dynamic": (None, True, False)[seed % 3], "mode": "reduce-overhead" if seed % 5 == 1 else None}


def calls(settings: dict[str, Any]) -> range:
    """One call, or the three of which the second is recorded and the third replayed."""
    return range(1 if settings["mode"] is None else 3)


def check(program: Program, device: str, seed: int) -> None:
    """Raise AssertionError if the compiled program has other results, or changes its inputs otherwise; where shapes are
    dynamic, on inputs of other sizes as well."""
    with compiling(seed) as settings:
        compiled = torch.compile(program, **settings)
        for inputs in (program.inputs, *(other_sizes(program) if settings["dynamic"] else ())):
            for _ in calls(settings):
                _check(program, compiled, inputs, device)


def _check(program: Program, compiled: Callable[..., Any], inputs: Tensors, device: str) -> None:
    reference = Reference(inputs, program.steps)
    changed = [one.to(device, copy=True) for one in inputs]
    got = compiled(*changed)
    for what, i, one in [
        *(("result", *pair) for pair in zip(program.results, got, strict=True)),
        *(("input, afterwards", *pair) for pair in enumerate(changed)),
    ]:
        try:
            reference.check(one, i)
        except AssertionError as error:
            raise AssertionError(f"{i}, {what}: {error}\n{program}") from None


def check_gradients(program: Program, device: str, seed: int) -> None:
    """The same of the gradients."""
    wanted = program.gradients(*program.inputs)
    with in_float64():
        real = program.gradients(*map(long, program.inputs))
    with compiling(seed) as settings:
        compiled = torch.compile(program.gradients, **settings)
        for _ in calls(settings):
            got = compiled(*(one.to(device) for one in program.inputs))
    has_halves = any(one.dtype in HALVES for one in program.inputs) or any(
        arguments.get("dtype") in HALVES for _, _, arguments in program.steps
    )
    try:
        for one, expected, exact in zip(got, wanted, real, strict=True):
            assert_near(one, expected, exact, 3e-2 if has_halves else 1e-4)
    except AssertionError as error:
        raise AssertionError(f"gradient: {error}\n{program}") from None


def other_sizes(program: Program) -> list[Tensors]:
    """Inputs with more in place of their largest size, if the program fits them."""
    largest = max(n for one in program.inputs for n in one.shape)
    inputs = []
    for one in program.inputs:
        shape = torch.Size(n + 3 if n == largest > 1 else n for n in one.shape)
        inputs.append(one.flatten().repeat(shape.numel() // one.numel() + 1)[: shape.numel()].reshape(shape))
    return [inputs] if fits(program, inputs) else []


def fits(program: Program, inputs: Tensors) -> bool:
    """Whether eager computes it."""
    try:
        Reference(inputs, program.steps)
    except (RuntimeError, IndexError, TypeError, ValueError):
        return False
    return True


# ---- programs


def draw(seed: int) -> Program:
    """The program of a seed, the same each time."""
    r = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    shape = [r.choice(SIZES) for _ in range(r.choice([1, 1, 1, 2, 2, 3, 3, 4]))]
    while torch.Size(shape).numel() > MOST:
        shape[shape.index(max(shape))] = 2
    inputs = []
    for k in range(r.choice([2, 3])):
        one = list(shape)
        if k and r.random() < 0.5:
            one[r.randrange(len(one))] = 1
        values = torch.randint(-16, 17, one, generator=generator) / 4
        dtype = r.choice(FLOATS if k == 0 or r.random() < 0.6 else WHOLE)
        inputs.append((values if dtype.is_floating_point else values.abs() * r.choice([1, 20])).to(dtype))
    inputs.append(torch.randint(0, 50, (r.choice(SIZES),), generator=generator))
    program, reference = Program(inputs), Reference(inputs)
    names, length = list(STEPS), r.choice([4, 6, 8, 12])
    while len(program.steps) < length:
        (name,) = r.choices(names, [WEIGHTS.get(name, 1) for name in names])
        if reference.known[-1].dtype in HALVES and r.random() < 0.4:  # rounded, and read again
            name = "converted" if reference.once[-1] else "with_number"
        drawn = STEPS[name].draw(r, reference.known)
        if drawn is None:
            continue
        try:
            reference.add(name, *drawn)
        except (RuntimeError, IndexError, TypeError, ValueError):
            if name == "changed":  # perhaps an input
                reference = Reference(inputs, program.steps)
            continue
        program.steps.append((name, *drawn))
    used = {i for _, operands, _ in program.steps for i in operands}
    program.results = [i for i in range(len(inputs), len(inputs) + length) if i not in used or r.random() < 0.5]
    return program
