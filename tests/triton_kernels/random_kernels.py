"""Random kernels, on the device and by Triton's interpreter: ``python random_kernels.py --programs 100 --seed 1``.

A program is a kernel over two blocks of ``M x N`` elements and one of each axis. Values are small whole numbers, so
that floating-point arithmetic is exact in whatever order; functions that are not exact are only stored.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

HEAD = """import triton
import triton.language as tl


@triton.jit
def first_order(a1, b1, a2, b2):
    return a1 & a2, (b1 & a2) | b2


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


"""
DTYPES = ["float32", "float16", "int32", "int64", "int8", "int16"]
SHAPES = ["MN", "M", "N", ""]


class Writer:
    """One kernel."""

    def __init__(self, number: int, chance: random.Random) -> None:
        self.chance, self.number = chance, number
        self.m, self.n = (2 ** chance.randint(0, 5) for _ in range(2))
        self.dtypes = [chance.choice(DTYPES) for _ in range(4)]
        self.lines: list[str] = []
        self.values: list[tuple[str, str, str]] = []  # name, shape, dtype
        self.count = self.outputs = 0
        self.depth = 1

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def add(self, text: str, shape: str, dtype: str) -> str:
        name = f"v{self.count}"
        self.count += 1
        self.line(f"{name} = {text}")
        self.values.append((name, shape, dtype))
        return name

    def pick(self, shape: str | None = None, kinds: str = "fi") -> tuple[str, str, str]:
        found = [v for v in self.values if (shape is None or v[1] == shape) and v[2][0] in kinds]
        return self.chance.choice(found) if found else self.loaded(shape if shape is not None else "MN", kinds)

    def loaded(self, shape: str, kinds: str) -> tuple[str, str, str]:
        """A new value of a shape."""
        dtype = self.chance.choice([d for d in DTYPES if d[0] in kinds])
        text = {"MN": "rows + columns * 0", "M": "tl.arange(0, M)", "N": "tl.arange(0, N)", "": "pid"}[shape]
        self.add(f"(({text}) % 7 - 3).to(tl.{dtype})", shape, dtype)
        return self.values[-1]

    def bounded(self, text: str, dtype: str) -> str:
        if dtype[0] == "f":
            return f"tl.minimum(tl.maximum({text}, -8.0), 8.0).to(tl.{dtype})"
        return f"(({text}) & 15).to(tl.{dtype})"

    def fit(self, value: tuple[str, str, str], shape: str) -> str:
        name, own, _ = value
        if own == shape or own == "":
            return name
        return {"M": f"{name}[:, None]", "N": f"{name}[None, :]"}[own]

    # ---- statements ----

    def statement(self) -> None:
        kinds = [self.binary] * 6 + [self.unary] * 3 + [self.where, self.cast] * 2 + [self.reduce] * 4 + [self.scan] * 2
        kinds += [
            self.load,
            self.move,
            self.sort,
            self.gather,
            self.product,
            self.branch,
            self.loop,
            self.joined,
        ]
        kinds += [self.while_loop, self.atomic, self.histogram, self.store]
        self.chance.choice(kinds)()

    def load(self) -> None:
        k = self.chance.randrange(2)
        mask, other = self.chance.choice(
            [("", ""), (", mask=columns < n", ", other=2"), (", mask=(rows < m) & (columns < n)", ", other=0")]
        )
        self.add(f"tl.load(x{k} + rows * N + columns{mask}{other})", "MN", self.dtypes[k])

    def binary(self) -> None:
        a = self.pick()
        b = self.pick(a[1] if self.chance.random() < 0.6 else None)
        shape = a[1] if a[1] == b[1] else "MN" if a[1] and b[1] else a[1] or b[1]
        x, y = self.fit(a, shape), self.fit(b, shape)
        dtype = a[2]
        if a[2][0] != b[2][0] or a[2] != b[2]:
            y = f"{y}.to(tl.{dtype})"
        signs = ["+", "-", "*"] + (["&", "|", "^"] if dtype[0] == "i" else [])
        sign = self.chance.choice([*signs, "max", "min", "//", "%"] if dtype[0] == "i" else [*signs, "max", "min"])
        if sign in ("max", "min"):
            text = f"tl.{sign}imum({x}, {y})"
        elif sign in ("//", "%"):
            text = f"{x} {sign} ({y} * {y} + 1)" if dtype in ("int32", "int64") else f"{x} + {y}"
        else:
            text = f"{x} {sign} {y}"
        self.add(self.bounded(text, dtype), shape, dtype)

    def unary(self) -> None:
        a = self.pick()
        texts = ["-{}", "tl.abs({})"] + (["tl.floor({} * 0.5)", "tl.ceil({} * 0.5)"] if a[2] == "float32" else [])
        self.add(self.bounded(self.chance.choice(texts).format(a[0]), a[2]), a[1], a[2])

    def where(self) -> None:
        a = self.pick()
        b, c = self.pick(a[1]), self.pick(a[1])
        sign = self.chance.choice(["<", "<=", ">", "==", "!="])
        self.add(f"tl.where({a[0]} {sign} {b[0]}.to(tl.{a[2]}), {a[0]}, {c[0]}.to(tl.{a[2]}))", a[1], a[2])

    def cast(self) -> None:
        a, dtype = self.pick(), self.chance.choice(DTYPES)
        self.add(f"{a[0]}.to(tl.{dtype})", a[1], dtype)

    def reduce(self) -> None:
        a = self.pick(self.chance.choice(["MN", "MN", "M", "N"]))
        axis = self.chance.randrange(2) if a[1] == "MN" else 0
        shape = {"MN": "NM"[axis], "M": "", "N": ""}[a[1]]
        kind = self.chance.choice(
            ["sum", "max", "min", "argmax", "argmin", "custom"] + (["xor_sum"] if a[2][0] == "i" else [])
        )
        if kind in ("argmax", "argmin"):
            self.add(f"tl.{kind}({a[0]}, {axis})", shape, "int32")
        elif kind == "custom":
            self.add(f"tl.reduce({a[0]}, {axis}, larger)", shape, a[2])
        else:
            self.add(self.bounded(f"tl.{kind}({a[0]}, {axis})", a[2]), shape, a[2])

    def scan(self) -> None:
        a = self.pick("MN")
        axis, reverse = self.chance.randrange(2), self.chance.choice(["", ", reverse=True"])
        if a[2] == "int32" and self.chance.random() < 0.4:
            b = self.pick("MN", "i")
            self.add(
                f"tl.associative_scan(({a[0]}, {b[0]}.to(tl.int32)), {axis}, first_order{reverse})[1]", "MN", "int32"
            )
        else:
            self.add(self.bounded(f"tl.cumsum({a[0]}, {axis}{reverse})", a[2]), "MN", a[2])

    def move(self) -> None:
        a = self.pick("MN")
        texts = ["tl.flip({}, 1)", "tl.trans(tl.reshape(tl.trans({}), (N, M)))", "tl.reshape(tl.ravel({}), (M, N))"]
        texts += ["tl.reshape(tl.trans({}), (M, N))", "tl.trans(tl.reshape({}, (N, M)))"]
        if self.n > 1:
            texts.append("tl.reshape(tl.permute(tl.reshape({}, (M, 2, N // 2)), (0, 2, 1)), (M, N))")
        else:
            del texts[0]
        self.add(self.chance.choice(texts).format(a[0]), "MN", a[2])

    def joined(self) -> None:
        a, b = self.pick("MN"), self.pick("MN")
        if self.n == 1:
            return
        first, second = f"h{self.count}", f"g{self.count}"
        self.line(f"{first}, {second} = tl.split(tl.reshape({a[0]}, (M, N // 2, 2)))")
        self.add(f"tl.reshape(tl.join({second}, {first}), (M, N)) + {b[0]}.to(tl.{a[2]})", "MN", a[2])
        name, shape, dtype = self.values.pop()
        self.add(self.bounded(name, dtype), shape, dtype)

    def sort(self) -> None:
        a = self.pick("MN")
        if self.n > 1:
            self.add(f"tl.sort({a[0]}, 1, descending={self.chance.choice([True, False])})", "MN", a[2])

    def gather(self) -> None:
        a, b = self.pick("MN"), self.pick("MN", "i")
        axis = self.chance.randrange(2)
        length = "MN"[axis]
        self.add(f"tl.gather({a[0]}, ({b[0]}.to(tl.int32) & 255) % {length}, {axis})", "MN", a[2])

    def product(self) -> None:
        if min(self.m, self.n) < 16:
            return
        a, b, c = self.pick("MN", "f"), self.pick("MN", "f"), self.pick("MN", "f")
        x, y, z = (f"{name}.to(tl.float32)" for name, _, _ in (a, b, c))
        text = f"tl.dot(tl.dot({x}, tl.trans({y})), {z})"
        self.add(self.bounded(text, "float32"), "MN", "float32")

    def histogram(self) -> None:
        a = self.pick("N", "i")
        if self.n >= 2:
            self.add(f"tl.histogram({a[0]}.to(tl.int32) & 7, 8)", "8", "int32")
            name, _, _ = self.values.pop()
            self.add(f"tl.max({name}, 0)", "", "int32")

    def nested(self) -> list[tuple[str, str, str]]:
        """A few statements, whose values are gone behind them."""
        values, self.depth = list(self.values), self.depth + 1
        for _ in range(self.chance.randint(1, 3)):
            self.chance.choice([self.binary, self.unary, self.reduce, self.where, self.load, self.move])()
        self.depth -= 1
        inner, self.values = self.values, values
        return [value for value in inner if value not in values]

    def carried(self) -> tuple[str, str, str]:
        """A value that later statements assign to."""
        a = self.pick()
        self.add(f"{a[0]} + 0", a[1], a[2])
        return self.values[-1]

    def assign(self, target: tuple[str, str, str], inner: list[tuple[str, str, str]]) -> None:
        name, shape, dtype = target
        fitting = [v for v in inner if v[1] == shape]
        other = self.chance.choice(fitting)[0] + f".to(tl.{dtype})" if fitting else "1"
        self.depth += 1
        self.line(f"{name} = {self.bounded(f'{name} + {other}', dtype)}")
        self.depth -= 1

    def loop(self) -> None:
        a, b = self.carried(), self.carried()
        self.line(f"for i{self.count} in range({self.chance.choice(['3', 'steps', '0, steps, 2'])}):")
        inner = self.nested()
        self.assign(a, inner)
        self.assign(b, inner)
        if a[1:] == b[1:] and self.chance.random() < 0.5:
            self.line(f"    {a[0]}, {b[0]} = {b[0]}, {a[0]}")

    def while_loop(self) -> None:
        a, name = self.carried(), f"w{self.count}"
        self.line(f"{name} = 0")
        self.line(f"while {name} < steps:")
        inner = self.nested()
        self.assign(a, inner)
        self.line(f"    {name} += 1")

    def branch(self) -> None:
        a, scalar = self.carried(), self.pick("")
        self.line(f"if {scalar[0]} > 0:")
        self.assign(a, self.nested())
        if self.chance.random() < 0.5:
            self.line("else:")
            self.assign(a, self.nested())

    def atomic(self) -> None:
        a = self.pick("MN", "i")
        kind = self.chance.choice(["add", "max", "min", "and", "or", "xor"])
        place = (
            f"(({self.pick('MN', 'i')[0]}.to(tl.int32) & 255) % 8) + {'add max min and or xor'.split().index(kind)} * 8"
        )
        self.line(f"tl.atomic_{kind}(sums + {place}, {a[0]}.to(tl.int32))")

    def store(self) -> None:
        if self.outputs == 6:
            return
        name, shape, dtype = self.pick()
        inexact = ["tl.exp({})", "tl.sqrt(tl.abs({}))", "tl.sin({})", "{} / 3.0", "tl.log(tl.abs({}) + 1)"]
        text = f"{name}.to(tl.float32)"
        if dtype == "float32" and self.chance.random() < 0.3:
            text = self.chance.choice(inexact).format(name)
        place = {"MN": "rows * N + columns", "M": "tl.arange(0, M)", "N": "tl.arange(0, N)", "": "0"}[shape]
        mask = ", mask=columns < n" if shape == "MN" and self.chance.random() < 0.4 else ""
        self.line(f"tl.store(out + ({self.outputs} * 2 + pid) * (M * N) + {place}, {text}{mask})")
        self.outputs += 1

    def text(self) -> str:
        self.load()
        self.load()
        self.values.append(("l2", "M", self.dtypes[2]))
        self.values.append(("l3", "N", self.dtypes[3]))
        self.lines += ["    l2 = tl.load(x2 + tl.arange(0, M))", "    l3 = tl.load(x3 + tl.arange(0, N))"]
        for _ in range(self.chance.randint(4, 16)):
            self.statement()
        while self.outputs < 3:
            self.store()
        head = [
            "@triton.jit",
            f"def kernel{self.number}(x0, x1, x2, x3, out, sums, m, n, steps, M: tl.constexpr, N: tl.constexpr):",
            "    pid = tl.program_id(0)",
            "    rows = tl.arange(0, M)[:, None]",
            "    columns = tl.arange(0, N)[None, :]",
        ]
        return "\n".join([*head, *self.lines]) + "\n\n\n"


def run(path: Path, facts: list[tuple[int, int, list[str], int]], device: str, results: Path) -> None:
    """Run the kernels of a file, and save what each stored or why it failed."""
    import importlib.util

    import torch

    spec = importlib.util.spec_from_file_location("programs", path)
    programs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(programs)
    found = []
    for number, (m, n, dtypes, seed) in enumerate(facts):
        generator = torch.Generator().manual_seed(seed)
        sizes = [m * n, m * n, m, n]
        inputs = [
            torch.randint(-4, 5, (size,), generator=generator).to(getattr(torch, dtype))
            for size, dtype in zip(sizes, dtypes, strict=True)
        ]
        inputs = [x & 15 if not x.dtype.is_floating_point else x for x in inputs]
        out = torch.full((12 * m * n,), -7.0)
        sums = torch.arange(48, dtype=torch.int32)
        tensors = [t.to(device) for t in (*inputs, out, sums)]
        try:
            getattr(programs, f"kernel{number}")[(2,)](*tensors, max(1, m - 1), max(1, n - 1), 2, M=m, N=n)
            found.append((tensors[4].cpu(), tensors[5].cpu()))
        except Exception as error:
            found.append(f"{type(error).__name__}: {str(error)[-300:]}")
    torch.save(found, results)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", nargs=3, metavar=("FILE", "DEVICE", "RESULTS"))
    given = parser.parse_args()
    chance = random.Random(given.seed)
    writers = []
    texts = []
    for number in range(given.programs):
        writer = Writer(number, random.Random(chance.random()))
        texts.append(writer.text())
        writers.append(writer)
    facts = [(w.m, w.n, w.dtypes, given.seed * 1000 + i) for i, w in enumerate(writers)]
    if given.run:
        run(Path(given.run[0]), facts, given.run[1], Path(given.run[2]))
        return 0
    import torch

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "programs.py"
        path.write_text(HEAD + "".join(texts))
        found = []
        for device in ("cpu", "mydevice"):
            results = Path(folder) / device
            command = [sys.executable, __file__, "--programs", str(given.programs), "--seed", str(given.seed), "--run"]
            env = {**os.environ, **({"TRITON_INTERPRET": "1"} if device == "cpu" else {})}
            subprocess.run([*command, str(path), device, str(results)], env=env, check=True)
            found.append(torch.load(results))
    findings = skipped = 0
    for number, (expected, actual) in enumerate(zip(*found, strict=True)):
        if isinstance(expected, str):
            skipped += 1
            if "-v" in os.environ.get("FUZZ", ""):
                print(f"program {number}: the interpreter: {expected}")
            continue
        try:
            if isinstance(actual, str):
                raise AssertionError(actual)
            for e, a in zip(expected, actual, strict=True):
                torch.testing.assert_close(a, e, rtol=1e-5, atol=1e-5, equal_nan=True)
        except AssertionError as error:
            findings += 1
            print(f"---- program {number} of seed {given.seed}: {error}\n{texts[number]}")
    print(f"{given.programs} programs, {skipped} that the interpreter refuses, {findings} findings")
    return int(findings > 0)


if __name__ == "__main__":
    sys.exit(main())
