"""Statements that read and write memory."""

from __future__ import annotations

from random_kernels.writer import INPUTS, PLACES, Writer, is_integer

SIZES = {"8": 1, "6": 2, "2": 4, "4": 8}
"""Of an element, by the last digit of its dtype."""


class Memory(Writer):
    """A program's."""

    def load(self) -> None:
        k, mask = self.chance.randrange(2), self.mask()
        other = self.chance.choice(["2", "0"]) if self.dtypes[k] != "bfloat16" else "0"
        other = f", other={other}" if mask else ""
        place = "rows * N + columns" if self.chance.random() < 0.7 else f"{self.places('MN', 'M * N')}"
        more = self.chance.choice(
            ["", "", "", ", eviction_policy='evict_last'", ", cache_modifier='.cg'", ", volatile=True"]
        )
        self.add(f"tl.load(x{k} + {place}{mask}{other}{more})", "MN", self.dtypes[k])

    def load_small(self) -> None:
        dtype, condition = self.chance.choice(["float32", "float16"]), self.condition("MN")
        text = f"tl.load(x4 + {PLACES['MN']}, mask={condition}).to(tl.{dtype})"
        self.add(f"tl.where({condition}, {text}, 0)", "MN", dtype)

    def block_pointer(self) -> None:
        """Loads at the edges of a tensor, and perhaps a store behind them."""
        k, (i, j) = self.chance.randrange(4), (self.chance.choice(["0", "1", "-1", "pid"]) for _ in range(2))
        order = self.chance.choice(["(1, 0)", "(0, 1)"])
        strides, transposed = ("(N, 1)", False) if self.chance.random() < 0.6 else ("(1, M)", True)
        name = self.name("q")
        base, shape = f"b{k} + pid * (M * N)", self.chance.choice(["(M, N)", "(m, n)"])
        more = "boundary_check=(0, 1), padding_option='zero'"
        self.line(f"{name} = tl.make_block_ptr({base}, {shape}, {strides}, ({i}, {j}), (M, N), {order})")
        self.add(f"tl.load({name}, {more})", "MN", self.dtypes[k])
        if self.chance.random() < 0.6:
            self.line(
                f"{name} = tl.advance({name}, ({self.chance.choice(['0', '1', '-1'])}, {self.chance.choice('01')}))"
            )
            self.add(f"tl.load({name}, {more})", "MN", self.dtypes[k])
        if self.chance.random() < 0.5:
            self.line(f"tl.store({name}, {self.stored(self.dtypes[k], 'MN')}, boundary_check=(0, 1))")
            if not transposed:
                self.add(f"tl.load(b{k} + pid * (M * N) + {PLACES['MN']})", "MN", self.dtypes[k])

    def descriptor(self) -> None:
        """Rows of a tensor have a multiple of 16 bytes, as a descriptor wants them."""
        k = self.chance.randrange(2)
        if self.n * SIZES[self.dtypes[k][-1]] % 16:
            return
        name, i = self.name("t"), self.chance.choice(["0", "1", "pid", "-1"])
        self.line(f"{name} = tl.make_tensor_descriptor(x{k}, shape=[m + 1, n], strides=[N, 1], block_shape=[M, N])")
        self.add(f"{name}.load([{i}, 0])", "MN", self.dtypes[k])
        k = self.chance.randrange(4)
        if self.n * SIZES[self.dtypes[k][-1]] % 16 == 0 and self.chance.random() < 0.5:
            base, name = f"b{k} + pid * (M * N)", self.name("t")
            self.line(f"{name} = tl.make_tensor_descriptor({base}, shape=[m, n], strides=[N, 1], block_shape=[M, N])")
            self.line(f"{name}.store([{self.chance.choice(['0', '1'])}, 0], {self.stored(self.dtypes[k], 'MN')})")

    def write_and_read(self) -> None:
        """A store into a buffer between two loads of it."""
        k = self.chance.randrange(4)
        dtype = self.dtypes[k]
        buffer = f"b{k} + pid * (M * N) + "
        moved = self.chance.choice(["columns * M + rows", "(M * N - 1) - rows * N - columns"])
        if self.chance.random() < 0.6:
            self.add(f"tl.load({buffer}{moved})", "MN", dtype)
        self.line(f"tl.store({buffer}{PLACES['MN']}, {self.stored(dtype, 'MN')}{self.mask()})")
        if self.chance.random() < 0.6:
            self.add(f"tl.load({buffer}{moved})", "MN", dtype)

    def store(self) -> None:
        if self.outputs == 6 or self.depth > 1:
            return
        name, shape, dtype = self.pick(dtypes=INPUTS)
        text = f"{name}.to(tl.float64)" if dtype != "bfloat16" else f"{name}.to(tl.float32)"
        if dtype in ("float32", "float64") and self.chance.random() < 0.3:
            texts = ["tl.exp({})", "tl.sqrt(tl.abs({}))", "tl.sin({})", "{} / 3.0", "tl.log(tl.abs({}) + 1)"]
            text = self.chance.choice([*texts, "tl.exp2({})", "tl.rsqrt(tl.abs({}) + 1)", "tl.erf({})"]).format(name)
        mask = self.mask(shape)
        self.line(f"tl.store(out + ({self.outputs} * 2 + pid) * (M * N) + {PLACES[shape]}, {text}{mask})")
        self.outputs += 1

    def whole_mask(self, shape: str) -> str:
        """The interpreter's atomics read a mask that was broadcast beyond its end."""
        return self.mask(shape).replace("mask=", "mask=(rows + columns >= 0) & " if shape == "MN" else "mask=")

    def atomic(self) -> None:
        kinds = "add max min and or xor".split()
        kind = self.chance.choice(kinds)
        dtype = self.chance.choice(["int32", "int64", "uint32"])
        shape = self.chance.choice(["MN", "MN", "N", ""])
        place = f"{self.places(shape, '8')} + {kinds.index(kind) * 8}"
        mask = self.whole_mask(shape) if self.chance.random() < 0.5 else ""
        sums = {"int32": "sums", "int64": "wide", "uint32": "whole"}[dtype]
        order = self.chance.choice(["", "", ", sem='relaxed'", ", sem='release', scope='cta'"])
        self.line(f"tl.atomic_{kind}({sums} + {place}, {self.as_(dtype, shape)}{mask}{order})")

    def atomic_of_floats(self) -> None:
        """Sums of whole numbers are exact in any order."""
        dtype, sums = self.chance.choice([("float32", "reals"), ("float64", "doubles"), ("float16", "halves")])
        kind = "add" if dtype == "float16" else self.chance.choice(["add", "max", "min"])
        shape = self.chance.choice(["MN", "N", ""])
        value = f"tl.minimum(tl.maximum({self.as_(dtype, shape)}, -1.0), 1.0).to(tl.{dtype})"
        place = f"{self.places(shape, '8')} + {['add', 'max', 'min'].index(kind) * 8}"
        self.line(f"tl.atomic_{kind}({sums} + {place}, {value}{self.whole_mask(shape)})")

    def atomic_result(self) -> None:
        """At places that no other element has, so that what was there is known.

        Of floats the interpreter exchanges none, and returns the bits of the largest and smallest as numbers.
        """
        k = self.chance.randrange(4)
        dtype = self.dtypes[k]
        kinds = "add max min and or xor xchg cas".split() if is_integer(dtype) else ["add"]
        if dtype in ("bfloat16", "int8", "uint8", "int16", "uint16"):
            return
        kind, place = self.chance.choice(kinds), "pid * (M * N) + rows * N + columns"
        if kind == "cas":
            self.add(f"tl.atomic_cas(b{k} + {place}, {self.as_(dtype, 'MN')}, {self.as_(dtype, 'MN')})", "MN", dtype)
        elif self.chance.random() < 0.3:
            self.add(f"tl.atomic_{kind}(b{k} + pid * (M * N), {self.as_(dtype, '')})", "", dtype)
        else:  # what a masked element returns is not defined
            self.add(f"tl.atomic_{kind}(b{k} + {place}, {self.as_(dtype, 'MN')})", "MN", dtype)
        if not is_integer(dtype):
            name, shape, _ = self.values.pop()
            self.add(self.bounded(name, dtype), shape, dtype)
