"""What the programs are written with: lines, and named values of a shape and a dtype.

A program is a kernel over blocks of ``M x N`` elements, of one axis each, and scalars. Integers wrap around.
Floating-point values are small whole numbers, so that arithmetic is exact in whatever order; functions that are not
exact are only stored. Triton's interpreter computes with the bits of bfloat16 and float8, so that these are loaded,
moved, cast and stored, and nothing is computed with them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

FLOATS, SIGNED = ["float32", "float16", "float64"], ["int32", "int64", "int8", "int16"]
UNSIGNED = ["uint8", "uint32", "uint16", "uint64"]
DTYPES = [*FLOATS, *SIGNED, *UNSIGNED]
INPUTS = [*DTYPES, "bfloat16"]
SMALL = {"float8_e4m3fn": "float8e4nv", "float8_e5m2": "float8e5"}
"""Of torch and of Triton."""
PLACES = {"MN": "rows * N + columns", "M": "tl.arange(0, M)", "N": "tl.arange(0, N)", "": "0"}
Value = tuple[str, str, str]
"""A name, a shape (a key of PLACES), a dtype."""


def is_integer(dtype: str) -> bool:
    return dtype[0] in "iu"


class Writer:
    """One kernel while it is written."""

    INNER: ClassVar[dict[str, int]]
    PLAIN: ClassVar[dict[str, int]]
    """Statements below a head, and how often; those of the innermost."""

    def __init__(self, seed: float) -> None:
        self.chance = random.Random(seed)
        self.seed = self.chance.randrange(1 << 30)
        self.m, self.n = 2 ** self.chance.randint(0, 3), 2 ** self.chance.randint(0, 5)
        if self.chance.random() < 0.15:
            self.m, self.n = 2 ** self.chance.randint(0, 1), 128
        self.dtypes = [self.chance.choice(INPUTS) for _ in range(4)]
        self.small = self.chance.choice([*SMALL])
        self.kinds: Counter[str] = Counter()
        """How many statements of each there are."""
        self.lines: list[str] = []
        self.values: list[Value] = []
        self.count = self.outputs = 0
        self.has_left = False
        self.depth = 1

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def name(self, hint: str = "v") -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def add(self, text: str, shape: str, dtype: str) -> Value:
        value = (self.name(), shape, dtype)
        self.line(f"{value[0]} = {text}")
        self.values.append(value)
        return value

    def pick(self, shape: str | None = None, dtypes: list[str] | None = None) -> Value:
        dtypes = DTYPES if dtypes is None else dtypes
        found = [v for v in self.values if (shape is None or v[1] == shape) and v[2] in dtypes]
        return self.chance.choice(found) if found else self.made("MN" if shape is None else shape, dtypes)

    def made(self, shape: str, dtypes: list[str]) -> Value:
        """A new value of a shape."""
        dtype = self.chance.choice(dtypes)
        text = {"MN": "rows + columns * 3", "M": "tl.arange(0, M)", "N": "tl.arange(0, N)", "": "pid"}[shape]
        return self.add(f"(({text}) % 7{'' if dtype[0] == 'u' else ' - 3'}).to(tl.{dtype})", shape, dtype)

    def cast(self, value: Value, dtype: str) -> str:
        """A value as another type. Large integers are no floats that are exact, negative floats no unsigned ones."""
        name, _, own = value
        if own == dtype:
            return name
        if is_integer(own) and not is_integer(dtype):
            return f"({name} & 15).to(tl.{dtype})"
        if dtype[0] == "u" and not is_integer(own):
            return f"tl.abs({name}).to(tl.{dtype})"
        return f"{name}.to(tl.{dtype})"

    def as_(self, dtype: str, shape: str | None = None) -> str:
        """Any value of a shape, as a type."""
        return self.cast(self.pick(shape), dtype)

    def stored(self, dtype: str, shape: str) -> str:
        """The same, of types that nothing is computed with too."""
        return f"{self.as_('float32', shape)}.to(tl.bfloat16)" if dtype == "bfloat16" else self.as_(dtype, shape)

    def fit(self, value: Value, shape: str) -> str:
        name, own, _ = value
        return name if own in (shape, "") else {"M": f"{name}[:, None]", "N": f"{name}[None, :]"}[own]

    def places(self, shape: str, length: str) -> str:
        """A block of whole numbers below a length."""
        return f"(({self.pick(shape, SIGNED)[0]} & 127).to(tl.int32) % {length})"

    def condition(self, shape: str) -> str:
        a, sign = self.pick(shape), self.chance.choice(["<", "<=", ">", ">=", "==", "!="])
        text = f"({a[0]} {sign} {self.as_(a[2], shape)})"
        if self.chance.random() < 0.3:
            text = f"({text} {self.chance.choice('&|^')} {self.condition(shape)})"
        return text

    def bounded(self, text: str, dtype: str) -> str:
        if is_integer(dtype):
            return f"({text}).to(tl.{dtype})"
        return f"tl.minimum(tl.maximum({text}, -8.0), 8.0).to(tl.{dtype})"

    def mask(self, shape: str = "MN") -> str:
        if shape != "MN":
            return self.chance.choice(["", f", mask=tl.arange(0, {shape}) < {shape.lower()}"]) if shape else ""
        masks = ["", ", mask=columns < n", ", mask=(rows < m) & (columns < n)", ", mask=rows < m"]
        if self.chance.random() < 0.15:
            return f", mask={self.condition('MN')}"
        return self.chance.choice(masks)

    @contextmanager
    def block(self, head: str) -> Iterator[list[Value]]:
        """Statements below a head, whose values are gone behind them."""
        self.line(head)
        values, self.depth = list(self.values), self.depth + 1
        inner: list[Value] = []
        for _ in range(self.chance.randint(1, 3)):
            self.statement(self.INNER if self.depth < 4 else self.PLAIN)
        inner += [value for value in self.values if value not in values]
        yield inner
        self.depth -= 1
        self.values = values

    def statement(self, kinds: dict[str, int]) -> None:
        (kind,) = self.chance.choices([*kinds], [*kinds.values()])
        self.kinds[kind] += 1
        chosen: Callable[[], None] = getattr(self, kind)
        chosen()
