"""Whole programs: the functions that a kernel calls, and its first and last statements."""

from __future__ import annotations

from typing import ClassVar

from random_kernels.control import Control
from random_kernels.expressions import Expressions
from random_kernels.memory import Memory

HEAD = """import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def first_order(a1, b1, a2, b2):
    return a1 & a2, (b1 & a2) | b2


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def larger_with_place(a, i, b, j):
    is_first = (a > b) | ((a == b) & (i < j))
    return tl.where(is_first, a, b), tl.where(is_first, i, j)


@triton.jit
def three(a, b, c, d, e, f):
    return a + d, tl.minimum(b, e), c ^ f


@triton.jit
def nested(a, b):
    return a ^ 5, (a + 1, tl.minimum(b + 1, 8.0))


@triton.jit(noinline=True)
def clipped(a, limit, steps):
    if limit > 3:
        return a & 7
    for i in range(steps):
        a = a * 3 + i
    if limit < 0:
        a = tl.maximum(a, limit)
    return a - limit


@triton.jit(noinline=True)
def row_sums(p, scale, M: tl.constexpr, N: tl.constexpr):
    x = tl.load(p + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    if scale > 1:
        return tl.sum(x.to(tl.float32), 1) * scale
    return tl.max(x.to(tl.float32), 1)


"""
ARGUMENTS = "x0, x1, x2, x3, x4, b0, b1, b2, b3, out, sums, wide, whole, reals, doubles, halves, m, n, steps"
"""Tensors that are read, tensors that are written too, and numbers."""


class Program(Expressions, Memory, Control):
    """One kernel: ``text``, and what it is launched with."""

    PLAIN: ClassVar = dict(binary=6, unary=3, where=3, to_another=2, bits=1, small_floats=1, library=2, reduce=5)
    PLAIN |= dict(load=2, move=2, joined=1, gather=1)
    INNER: ClassVar = dict(PLAIN, scan=1, sort=1, deep=1, product=1, write_and_read=2, block_pointer=1, atomic=1)
    INNER |= dict(atomic_of_floats=1, loop=1, while_loop=1, branch=1, tuples=1, early=1)
    OUTER: ClassVar = dict(INNER, scan=2, top=1, histogram=1, batches=1, descriptor=1, load_small=1, store=2)
    OUTER |= dict(atomic_result=1, accumulate=1, loop=2, branch=2, call=1, leave=1)

    def __init__(self, seed: float) -> None:
        super().__init__(seed)
        self.text = self._text()

    def _text(self) -> str:
        self.load()
        self.load()
        self.values += [("l2", "M", self.dtypes[2]), ("l3", "N", self.dtypes[3])]
        self.lines += ["    l2 = tl.load(x2 + tl.arange(0, M))", "    l3 = tl.load(x3 + tl.arange(0, N))"]
        for _ in range(self.chance.randint(4, 16)):
            self.statement(self.OUTER)
        while self.outputs < 3:
            self.store()
        head = [
            "@triton.jit",
            f"def kernel({ARGUMENTS}, M: tl.constexpr, N: tl.constexpr):",
            "    pid = tl.program_id(0)",
            "    rows = tl.arange(0, M)[:, None]",
            "    columns = tl.arange(0, N)[None, :]",
        ]
        return HEAD + "\n".join([*head, *self.lines]) + "\n"
