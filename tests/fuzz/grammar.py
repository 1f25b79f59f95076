"""Draws programs. While it draws, it runs them on the CPU, so that the next step fits what the last has left."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from fuzz import families
from fuzz.reference import Expected, Reference, Step

FLOATS = ["float32", "float32", "float32", "float64", "float16", "bfloat16"]
INTEGERS = ["int64", "int64", "int32", "int16", "int8", "uint8"]
DTYPES = [*FLOATS, *INTEGERS, "bool", "complex64", "complex128"]
MOST_REGISTERS = 14


def draw(seed: int, features: Iterable[str] | None = None) -> dict[str, Any]:
    """The program of a seed, and so the same each time.

    Args:
        seed: any number.
        features: what to draw from, of ``families.FEATURES``; None is all.
    """
    return drawn(seed, features)[0]


def drawn(seed: int, features: Iterable[str] | None = None) -> tuple[dict[str, Any], Reference, list[Expected]]:
    """The program, with what it did on the CPU while it was drawn: what running it there again would return."""
    grammar = Grammar(seed, families.FEATURES if features is None else features)
    return grammar.draw(), grammar.reference, grammar.expected


class Grammar:
    """One program as it is drawn."""

    def __init__(self, seed: int, features: Iterable[str]) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.features = set(features)
        self.reference = Reference()
        self.steps: list[Step] = []
        self.expected: list[Expected] = []
        self.made = 0
        self.thread: int | None = None
        self.place: Any = 0
        self.places = [0, 1] if "devices" in self.features and self.chance(0.3) else [0]
        self.several = "streams" in self.features and self.chance(0.5)
        self.shortage = "shortage" in self.features and self.chance(0.4)

    def draw(self) -> dict[str, Any]:
        """The program, as plain data."""
        known = [name for name in families.FAMILIES if name in self.features]
        names = ["make", *([name for name in known if self.chance(0.6)] or known)]
        weights = [families.FAMILIES[name][1] for name in names]

        def some(least: int, most: int) -> list[Step]:
            self.steps = []
            for _ in range(self.random.randint(least, most)):
                name = self.random.choices(names, weights)[0]
                families.FAMILIES[name][0](self)
                self.forget()
            return self.steps

        program: dict[str, Any] = {"seed": self.seed, "steps": some(3, 16), "threads": [], "after": []}
        if "threads" in self.features and self.chance(0.15):
            for number in range(self.random.choice([2, 2, 3])):
                self.thread = number
                self.reference.enter(number)
                program["threads"].append(some(2, 8))
            self.thread = None
            self.reference.enter(None)
            program["after"] = some(0, 4)
        return program

    # ---- chance

    def chance(self, probability: float) -> bool:
        """True, so often."""
        return self.random.random() < probability

    def choice(self, items: Sequence[Any]) -> Any:
        """One of them."""
        return self.random.choice(items)

    def shape(self, most: int = 4) -> list[int]:
        """Small sizes; seldom an empty or a larger tensor."""
        if self.chance(0.06):
            return self.choice([[300], [33, 40], [2, 3, 70], [1025]])
        dims = self.choice([0, 1, 1, 2, 2, 2, 3, 3, 4][: most * 2 + 1])
        return [self.choice([1, 2, 2, 3, 3, 4, 5, 6, 0 if self.chance(0.2) else 7]) for _ in range(dims)]

    def dtype(self) -> str:
        """A dtype."""
        return self.choice(DTYPES)

    # ---- tensors

    def tensor(self, name: str) -> torch.Tensor:
        """What the program's tensor is on the CPU."""
        return self.reference.registers[name]

    def names(self, fits: Callable[[torch.Tensor], bool] = lambda _: True, place: Any = None) -> list[str]:
        """The tensors that fit, on a place; None is any device."""
        places = self.reference.places
        wanted = self.places if place is None else [place]
        return [name for name, x in self.reference.registers.items() if places[name] in wanted and fits(x)]

    def pick(self, fits: Callable[[torch.Tensor], bool] = lambda _: True, dtypes: Sequence[str] = DTYPES) -> str:
        """A tensor of the program, else a new one. The step's other tensors must be on its device."""
        found = self.names(fits)
        if found and self.chance(0.9):
            # What is young is more often of interest.
            name = found[max(self.random.randrange(len(found)), self.random.randrange(len(found)))]
            self.place = self.reference.places[name]
            return name
        self.place = self.choice(self.places)
        for _ in range(8):
            name = self.make(self.shape(), self.choice(dtypes))
            if fits(self.tensor(name)):
                return name
        return self.make([3, 3], dtypes[0])

    def floats(self, fits: Callable[[torch.Tensor], bool] = lambda _: True) -> str:
        """A tensor of float32 or float64, or seldom of less."""
        return self.pick(lambda x: x.is_floating_point() and fits(x), FLOATS)

    def near(self, name: str, shape: Sequence[int] | None = None, dtype: str | None = None) -> str:
        """Another tensor on the same device, which goes with the first."""
        shape = list(self.tensor(name).shape) if shape is None else list(shape)
        found = self.names(
            lambda x: list(x.shape) == shape and (dtype is None or x.dtype is getattr(torch, dtype)), self.place
        )
        if found and self.chance(0.6):
            return self.choice(found)
        kind = dtype or (self.dtype() if self.chance(0.3) else dtype_name(self.tensor(name)))
        return self.make(shape, kind)

    def make(self, shape: Sequence[int], dtype: str, where: Any = None, least: int | None = None, room: int = 0) -> str:
        """A new tensor, and its name. With ``room``, of the numbers from ``least`` on, so many."""
        data = [self.choice([1, 3, 5, 7]), self.random.randrange(9), self.choice([2, 5, 9]), self.choice([0, 1, 4])]
        if room:
            data = [data[0], data[1], room, -(least or 0)]
        where = self.place if where is None else where
        on = where if where in (0, 1) else "host"
        args = [list(shape), {"dtype": dtype}, data, {"where": where}]
        return self.call("helpers.make", args, kind="copy", on=on, shortage=False)[0]

    def indices(self, shape: Sequence[int], room: int, dtype: str = "int64") -> str:
        """Indices below ``room``; seldom one that is not."""
        return self.make(shape, dtype, room=max(room, 1))

    # ---- steps

    def call(
        self,
        function: str,
        args: Sequence[Any],
        keywords: dict[str, Any] | None = None,
        *,
        kind: str = "exact",
        out: int = 1,
        writes: Sequence[str] = (),
        on: Any = None,
        shortage: bool = True,
        **more: Any,
    ) -> list[str]:
        """Add a step that calls a function; the names of its results, none if it was refused."""
        in_place = function.startswith("Tensor.") and function.endswith("_")
        assert writes or not (in_place or "out" in (keywords or {})), f"what does {function} write?"
        names = [f"t{self.made + i}" for i in range(out)]
        self.made += out
        step: Step = {
            "fn": function,
            "args": list(args),
            "out": names,
            "on": self.place if on is None else on,
            "stream": self.random.randrange(3) if self.several else 0,
            "wait": self.choice(["event", "stream", "event", "host"]),
            "class": kind,
        }
        if keywords:
            step["kw"] = keywords
        if writes:
            step["writes"] = list(writes)
        step.update({key: value for key, value in more.items() if value not in (None, False)})
        special = step.get("mistake") or "expect" in step or step["on"] == "host"
        if shortage and self.shortage and self.thread is None and not special and self.chance(0.15):
            step["oom"] = self.choice([0, 0, 1, 1, 2, 3])
        expected = self.reference.step(step)
        if expected.skipped and step.pop("oom", None) is not None:
            expected = self.reference.step(step)
        if expected.skipped:
            return []
        self.steps.append(step)
        self.expected.append(expected)
        return [] if expected.error else [name for name in names if name in self.reference.registers]

    def add(self, step: Step) -> None:
        """Add a step of another form."""
        expected = self.reference.step(step)
        if not expected.skipped:
            self.steps.append(step)
            self.expected.append(expected)

    def forget(self) -> None:
        """Drop tensors, where there are many."""
        registers = self.reference.registers
        while len(registers) > MOST_REGISTERS or (registers and self.chance(0.05)):
            before = len(registers)
            self.add({"drop": self.choice(list(registers))})
            if len(registers) == before:
                return


def dtype_name(tensor: torch.Tensor) -> str:
    """``float32``."""
    return str(tensor.dtype).removeprefix("torch.")
