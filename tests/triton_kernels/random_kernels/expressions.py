"""Statements that compute."""

from __future__ import annotations

from random_kernels.writer import DTYPES, FLOATS, INPUTS, PLACES, SIGNED, SMALL, Writer, is_integer

_REALS = ["float32", "float64"]
LIBRARY = [
    *((name, 1, _REALS) for name in ("abs", "floor", "ceil", "trunc", "rint", "isnan", "signbit")),
    *((name, 2, _REALS) for name in ("copysign", "fdim", "fmod", "remainder")),
    *(("fma", 3, _REALS), ("finitef", 1, ["float32"]), ("isfinited", 1, ["float64"]), ("saturatef", 1, ["float32"])),
    *((name, 1, ["int32", "int64"]) for name in ("popc", "clz", "ffs", "brev")),
    *((name, 2, ["int32"]) for name in ("mulhi", "hadd", "rhadd", "mul24")),
    *((name, 3, ["int32"]) for name in ("sad", "byte_perm")),
]
"""Functions, how many operands they have, and of which types."""
PREDICATES = ["isnan", "signbit", "finitef", "isfinited", "popc", "clz", "ffs"]
"""Those whose result is a bool, or a count."""


class Expressions(Writer):
    """A program's."""

    def binary(self) -> None:
        a = self.pick()
        b = self.pick(a[1] if self.chance.random() < 0.6 else None)
        shape = a[1] if a[1] == b[1] else "MN" if a[1] and b[1] else a[1] or b[1]
        dtype = a[2]
        x, y = self.fit(a, shape), self.cast((self.fit(b, shape), shape, b[2]), dtype)
        if not is_integer(dtype):
            sign = self.chance.choice(["+", "-", "*", "max", "min", "mixed"])
        else:
            sign = self.chance.choice("+ - * & | ^ max min // % << >>".split())
        if sign in ("max", "min"):
            text = f"tl.{sign}imum({x}, {y})"
        elif sign == "mixed":
            text = f"{x} + {self.cast((self.fit(b, shape), shape, b[2]), self.chance.choice(FLOATS))}"
        elif sign in ("//", "%"):
            text = f"{x} {sign} ({y} & 7 | {self.chance.choice([1, 8])})"
        elif sign in ("<<", ">>"):
            text = f"{x} {sign} ({y} & 7)"
        else:
            text = f"{x} {sign} {y}"
        self.add(self.bounded(text, dtype), shape, dtype)

    def unary(self) -> None:
        a = self.pick(dtypes=[*FLOATS, *SIGNED])
        texts = ["-{}", "tl.abs({})"]
        if is_integer(a[2]):
            texts += ["~{}", "{} + 3", "5 - {}", "({} != 0)"]
        elif a[2] != "float16":
            texts += ["tl.floor({} * 0.5)", "tl.ceil({} * 0.5)", "tl.clamp({}, -2.0, 3.0)", "tl.fma({0}, {0}, {0})"]
        self.add(self.bounded(self.chance.choice(texts).format(a[0]), a[2]), a[1], a[2])

    def where(self) -> None:
        a = self.pick()
        self.add(f"tl.where({self.condition(a[1])}, {a[0]}, {self.as_(a[2], a[1])})", a[1], a[2])

    def to_another(self) -> None:
        dtype = self.chance.choice(INPUTS)
        a = self.pick(dtypes=[*INPUTS] if dtype == "float32" else DTYPES if dtype != "bfloat16" else ["float32"])
        self.add(self.cast(a, dtype), a[1], dtype)

    def reduce(self) -> None:
        a = self.pick(self.chance.choice(["MN", "MN", "M", "N"]))
        axis = self.chance.randrange(2) if a[1] == "MN" else 0
        shape = {"MN": "NM"[axis], "M": "", "N": ""}[a[1]]
        kinds = ["sum", "max", "min", "argmax", "argmin", "custom", "pair", "indices", "three", "kept", "all"]
        kind = self.chance.choice(kinds + (["xor_sum", "reduce_or"] if is_integer(a[2]) else []))
        if kind in ("argmax", "argmin"):
            self.add(f"tl.{kind}({a[0]}, {axis})", shape, "int32")
        elif kind == "custom":
            self.add(f"tl.reduce({a[0]}, {axis}, larger)", shape, a[2])
        elif kind == "indices":
            value, place = self.name(), self.name()
            self.line(
                f"{value}, {place} = tl.{self.chance.choice(['max', 'min'])}({a[0]}, {axis}, return_indices=True)"
            )
            self.add(f"{value}.to(tl.{a[2]})", shape, a[2])
            self.add(f"{place} + 0", shape, "int32")
        elif kind == "pair":
            at = PLACES[a[1]] if a[1] != "MN" else "rows * 0 + columns" if axis else "columns * 0 + rows"
            value, place = self.name(), self.name()
            self.line(f"{value}, {place} = tl.reduce(({a[0]}, {at}), {axis}, larger_with_place)")
            self.add(f"{value} + 0", shape, a[2])
            self.add(f"{place} + 0", shape, "int32")
        elif kind == "three":
            names = [self.name() for _ in range(3)]
            x, y, z = self.as_("float32", a[1]), self.as_("int32", a[1]), self.as_("int64", a[1])
            self.line(f"{', '.join(names)} = tl.reduce(({x}, {y}, {z}), {axis}, three)")
            for name, dtype in zip(names, ("float32", "int32", "int64"), strict=True):
                self.add(self.bounded(name, dtype), shape, dtype)
        elif kind == "kept":
            kept = f"tl.max({a[0]}, {axis}, keep_dims=True)"
            self.add(self.bounded(f"{a[0]} - {kept}", a[2]), a[1], a[2])
        elif kind == "all":
            self.add(self.bounded(f"tl.{self.chance.choice(['sum', 'max', 'min'])}({a[0]})", a[2]), "", a[2])
        elif kind == "reduce_or":
            self.add(f"tl.reduce_or({a[0]}, {axis})", shape, a[2])
        else:
            self.add(self.bounded(f"tl.{kind}({a[0]}, {axis})", a[2]), shape, a[2])

    def scan(self) -> None:
        a = self.pick(self.chance.choice(["MN", "MN", "N"]))
        axis = self.chance.randrange(2) if a[1] == "MN" else 0
        reverse = self.chance.choice(["", ", reverse=True"])
        if a[2] == "int32" and self.chance.random() < 0.5:
            b, both = self.as_("int32", a[1]), self.name()
            self.line(f"{both}, {both}o = tl.associative_scan(({a[0]}, {b}), {axis}, first_order{reverse})")
            self.add(f"{both} ^ {both}o", a[1], "int32")
        elif self.chance.random() < 0.2:
            self.add(f"tl.associative_scan({a[0]}, {axis}, larger{reverse})", a[1], a[2])
        else:
            self.add(self.bounded(f"tl.cumsum({a[0]}, {axis}{reverse})", a[2]), a[1], a[2])

    def move(self) -> None:
        a = self.pick("MN", INPUTS)
        texts = ["tl.trans(tl.reshape(tl.trans({}), (N, M)))", "tl.reshape(tl.ravel({}), (M, N))"]
        texts += ["tl.reshape(tl.trans({}), (M, N))", "tl.trans(tl.reshape({}, (N, M)))"]
        if self.n > 1:
            texts += ["tl.reshape(tl.permute(tl.reshape({}, (M, 2, N // 2)), (0, 2, 1)), (M, N))"]
            texts += ["tl.reshape(tl.permute(tl.reshape({}, (M, N // 2, 2)), (2, 1, 0)), (M, N))", "tl.flip({}, 1)"]
            texts += ["tl.reshape(tl.broadcast_to(tl.reshape({}, (M, N))[:, None, :], (M, 2, N)), (2 * M, N))"]
        text = self.chance.choice(texts).format(a[0])
        if "2 * M" in text:
            text = f"tl.sum(tl.reshape({text}, (M, 2, N)).to(tl.int32), 1)" if is_integer(a[2]) else a[0]
            self.add(text, "MN", "int32" if is_integer(a[2]) else a[2])
        else:
            self.add(text, "MN", a[2])

    def joined(self) -> None:
        if self.n == 1:
            return
        a = self.pick("MN", INPUTS)
        first, second, kind = self.name("h"), self.name("g"), self.chance.randrange(3)
        self.line(f"{first}, {second} = tl.split(tl.reshape({a[0]}, (M, N // 2, 2)))")
        if kind == 0:
            self.add(f"tl.reshape(tl.join({second}, {first}), (M, N))", "MN", a[2])
        elif kind == 1:
            self.add(f"tl.interleave({second}, {first})", "MN", a[2])
        else:
            flat = f"tl.cat(tl.ravel({second}), tl.ravel({first}), can_reorder=True)"
            self.add(f"tl.sort(tl.reshape({flat}, (1, M * N)), 1)" if a[2] != "bfloat16" else first, "?", a[2])
            self.values.pop()
            self.add(f"tl.reshape(v{self.count}, (M, N))" if a[2] != "bfloat16" else a[0], "MN", a[2])

    def sort(self) -> None:
        a = self.pick("MN")
        if self.n > 1:
            self.add(f"tl.sort({a[0]}, 1, descending={self.chance.choice([True, False])})", "MN", a[2])

    def top(self) -> None:
        a = self.pick("MN", [*FLOATS, "int32"])
        if self.n > 2:  # the interpreter has no largest one of two
            self.add(self.bounded(f"tl.sum(tl.topk({a[0]}, {self.n // 2}, 1), 1)", a[2]), "M", a[2])

    def gather(self) -> None:
        a, axis = self.pick("MN", INPUTS), self.chance.randrange(2)
        self.add(f"tl.gather({a[0]}, {self.places('MN', 'MN'[axis])}, {axis})", "MN", a[2])

    def product(self) -> None:
        if self.m * self.n > 1024:
            return
        kind = self.chance.choice(["float32", "float16", "int8", "float64"])
        x, y, z = (self.as_(kind, "MN") for _ in range(3))
        if kind == "int8":
            text, result = f"tl.dot(tl.trans({x}), {y})", "int32"
            self.add(f"tl.sum({text}, 0)", "N", result)
        elif kind == "float64":
            self.add(self.bounded(f"tl.sum(tl.dot({x}, tl.trans({y})), 1)", kind), "M", kind)
        else:
            acc = self.chance.choice(["", f", acc={self.as_('float32', 'MN')}"])
            text = (
                f"tl.dot(tl.dot({x}, tl.trans({y}){', out_dtype=tl.float32'}).to(tl.float32), {z}.to(tl.float32){acc})"
            )
            self.add(self.bounded(text, "float32"), "MN", "float32")

    def histogram(self) -> None:
        a = self.pick("N", SIGNED)
        if self.n >= 2:
            mask = self.chance.choice(["", ", mask=tl.arange(0, N) < n"])
            counts = self.name("c")
            self.line(f"{counts} = tl.histogram(({a[0]} & 7).to(tl.int32), 8{mask})")
            self.add(f"tl.sum({counts} * tl.arange(1, 9), 0)", "", "int32")

    # ---- other ranks ----

    def deep(self) -> None:
        """A block of three axes, reduced, scanned or sorted along one of them."""
        if self.n < 4:
            return
        a = self.pick("MN", [*SIGNED, "float32"])
        block = f"tl.permute(tl.reshape({a[0]}, (M, 2, N // 2)), {self.chance.choice(['(0, 1, 2)', '(0, 2, 1)'])})"
        kind, axis = self.chance.choice(["sum", "cumsum", "sort", "max", "flip"]), self.chance.randrange(3)
        name = self.name("d")
        self.line(f"{name} = {block}")
        if kind in ("sum", "max"):
            self.line(f"{name} = tl.sum(tl.{kind}({name}, {axis}, keep_dims=True) + tl.zeros_like({name}), 1)")
            self.line(f"{name} = tl.sum({name}, 1)")
            self.add(self.bounded(name, a[2]), "M", a[2])
            return
        arguments = {"cumsum": f", {axis}", "sort": ", 2", "flip": ", 2"}[kind]
        self.add(self.bounded(f"tl.reshape(tl.{kind}({name}{arguments}), (M, N))", a[2]), "MN", a[2])

    def batches(self) -> None:
        """Products of several blocks."""
        if self.n < 4 or self.m * self.n > 256:
            return
        x, y = (f"tl.reshape({self.as_('float32', 'MN')}, (2, M, N // 2))" for _ in range(2))
        text = f"tl.sum(tl.dot({x}, tl.permute({y}, (0, 2, 1))), 0)"
        self.add(self.bounded(f"tl.sum({text}, 1)", "float32"), "M", "float32")

    # ---- types ----

    def small_floats(self) -> None:
        """Through eight bits, where whole numbers up to 4 are exact."""
        a, small = self.pick(None, ["float32", "float16"]), self.chance.choice([*SMALL.values()])
        text = f"tl.minimum(tl.maximum({a[0]}, -4.0), 4.0).to(tl.{small})"
        if a[1] == "MN" and self.chance.random() < 0.5:
            text = f"tl.reshape(tl.trans({text}), (M, N))"
        self.add(f"{text}.to(tl.{a[2]})", a[1], a[2])

    def bits(self) -> None:
        pairs = {"float32": "int32", "float64": "int64", "float16": "int16"}
        a = self.pick(None, [*pairs])
        whole = pairs[a[2]]
        if self.chance.random() < 0.5:
            self.add(f"({a[0]} + 0.0).to(tl.{whole}, bitcast=True)", a[1], whole)  # a zero may have either sign
        else:
            self.add(f"({a[0]}.to(tl.{whole}, bitcast=True) + 0).to(tl.{a[2]}, bitcast=True)", a[1], a[2])

    def library(self) -> None:
        """Functions of libdevice that are exact; the interpreter has those of reference.py."""
        name, count, kinds = self.chance.choice(LIBRARY)
        kind = self.chance.choice(kinds)
        first = self.pick(None, SIGNED if is_integer(kind) else None)
        texts = [self.cast(first, kind), *(self.as_(kind, first[1]) for _ in range(count - 1))]
        if name == "sad":
            texts = [f"({text} & 255)" for text in texts[:2]] + [f"({texts[2]} & 255).to(tl.uint32)"]
        elif not is_integer(kind):
            texts = [f"({text} + 0.0)" for text in texts]  # a zero may have either sign
            texts[-1:] = [f"tl.abs({texts[-1]}) + 1"] if name in ("fmod", "remainder") else texts[-1:]
        text, result = f"libdevice.{name}({', '.join(texts)})", "int32" if name in PREDICATES else kind
        self.add(
            f"({text} != 0).to(tl.int32)" if name in PREDICATES[:4] else self.bounded(text, result), first[1], result
        )
