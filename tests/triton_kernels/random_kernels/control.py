"""Loops, branches and calls."""

from __future__ import annotations

from random_kernels.writer import DTYPES, SIGNED, Value, Writer


class Control(Writer):
    """A program's."""

    def carried(self, shape: str | None = None) -> Value:
        """A value that later statements assign to."""
        a = self.pick(shape)
        return (
            self.add(f"{a[0]} + 0", a[1], a[2]) if a[1] != "" or self.chance.random() < 0.9 else self.made("", DTYPES)
        )

    def assign(self, target: Value, inner: list[Value]) -> None:
        name, shape, dtype = target
        fitting = [v for v in inner if v[1] == shape and v[2] in DTYPES]
        if fitting and self.chance.random() < 0.2:
            self.line(f"{name} = {self.cast(self.chance.choice(fitting), dtype)}")
            return
        other = self.cast(self.chance.choice(fitting), dtype) if fitting else "1"
        self.line(f"{name} = {self.bounded(f'{name} + {other}', dtype)}")

    def loop(self) -> None:
        targets = [self.carried() for _ in range(self.chance.randint(1, 4))]
        variable, pointers = self.name("i"), self.chance.random() < 0.35
        head = self.chance.choice(
            ["range(3)", "range(steps)", "range(0, steps, 2)", "tl.range(0, steps, num_stages=2)"]
        )
        head = self.chance.choice(
            [head, "range(steps, 0, -1)", "tl.static_range(2)", "tl.range(0, pid * 2)", "range(1)"]
        )
        if pointers:
            k, p = self.chance.randrange(2), self.name("p")
            self.line(f"{p} = x{k} + rows * N + columns")
        with self.block(f"for {variable} in {head}:") as inner:
            if pointers:
                inner.append(self.add(f"tl.load({p})", "MN", self.dtypes[k]))
                self.line(f"{p} += {self.chance.choice(['1', 'N', 'm', variable + ' % 2'])}")
            for target in targets:
                self.assign(target, inner)
            if len({t[1:] for t in targets[:2]}) == 1 and len(targets) > 1 and self.chance.random() < 0.5:
                a, b = targets[0][0], targets[1][0]
                self.line(f"{a}, {b} = {b}, {a}")
        self.add(f"{targets[0][0]} + 0", *targets[0][1:])

    def while_loop(self) -> None:
        targets, name = [self.carried() for _ in range(self.chance.randint(1, 2))], self.name("w")
        self.line(f"{name} = 0")
        more = f" and tl.max({targets[0][0]}, 0) < 5" if targets[0][1] in ("M", "N") else ""
        with self.block(f"while {name} < steps{more}:") as inner:
            for target in targets:
                self.assign(target, inner)
            self.line(f"{name} += 1")

    def branch(self) -> None:
        targets, scalar = [self.carried() for _ in range(self.chance.randint(1, 3))], self.pick("", SIGNED)
        with self.block(f"if {scalar[0]} > {self.chance.choice([0, 0, 1])}:") as inner:
            for target in targets:
                self.assign(target, inner)
        if self.chance.random() < 0.5:
            with self.block("else:") as inner:
                self.assign(targets[-1], inner)

    def leave(self) -> None:
        """Some programs end here. What follows is in another block of the function, twice behind a nested return."""
        if self.has_left or self.depth > 1:
            return
        self.has_left = True
        condition = self.chance.choice(["pid == 1", f"{self.pick('', SIGNED)[0]} > 0"])
        if self.chance.random() < 0.5:
            self.line(f"if {condition}:")
            self.line("    return")
            return
        targets = [self.carried() for _ in range(self.chance.randint(0, 2))]
        with self.block(f"if {condition}:") as inner:
            for target in targets:
                self.assign(target, inner)
            self.line(f"if m > {self.chance.choice([0, 4])}:")
            self.line("    return")

    def accumulate(self) -> None:
        """A sum of products that a loop carries."""
        if self.m * self.n > 512:
            return
        x, y, acc, kind = self.pick("MN"), self.pick("MN"), self.name("acc"), self.chance.choice(["float32", "float16"])
        scale = self.chance.choice(["", f" * {self.as_('float32', 'M')}[:, None]"])
        product = f"tl.dot({self.cast(x, kind)}, tl.trans({self.cast(y, kind)}), {acc})"
        self.line(f"{acc} = tl.zeros((M, M), tl.float32)")
        self.line(f"for {self.name('i')} in range(steps):")
        if scale:
            self.line(f"    {acc} = {acc}{scale}")
            product = f"tl.minimum(tl.maximum({product}, -8.0), 8.0)"
        self.line(f"    {acc} = {product}")
        self.add(self.bounded(f"tl.sum({acc}, 1)", "float32"), "M", "float32")

    def call(self) -> None:
        self.add(
            self.bounded(f"row_sums(b0 + pid * (M * N), {self.as_('int32', '')}, M, N)", "float32"), "M", "float32"
        )

    def tuples(self) -> None:
        """Nested ones, which a function returns and a loop carries."""
        shape = self.chance.choice(["MN", "M", "N", ""])
        a, b = self.as_("int32", shape), self.as_("float32", shape)
        pair, x, y, z = (self.name("u") for _ in range(4))
        self.line(f"{pair} = nested({a}, {b})")
        if self.chance.random() < 0.5:
            self.line(f"for {self.name('i')} in range(steps):")
            self.line(f"    {pair} = nested({pair}[0], {pair}[1][1])")
        self.line(f"{x}, {pair} = {pair}")
        self.line(f"{y}, {z} = {pair}")
        self.add(f"{x} + {y}", shape, "int32")
        self.add(self.bounded(z, "float32"), shape, "float32")

    def early(self) -> None:
        """A function that returns at several places."""
        self.add(f"clipped({self.as_('int32', '')}, {self.as_('int32', '')}, steps)", "", "int32")
