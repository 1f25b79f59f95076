"""Random programs of collectives, the same on all ranks: each result is what one process makes of all ranks' inputs.

Of all dtypes, sizes and layouts, on streams, asynchronous and waited for in another order. ``COLLECTIVE_PROGRAMS=100``
runs as many of each kind of world in test_collectives.py.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from rank import Rank

from checks import MOVED, REDUCED, numbers, same
from checks.layouts import Placed, layouts_of
from checks.reductions import folded

SHAPES = ((5, 3), (), (0, 4), (1,), (7,), (2, 3, 4), (33, 65))
STEPS: list[Callable[[Program], None]] = []  # of programs


def step(function: Callable[[Program], None]) -> Callable[[Program], None]:
    """Let programs draw it."""
    STEPS.append(function)
    return function


class Program:
    """What one rank does of a program; every rank draws the same."""

    def __init__(self, w: Rank, seed: int) -> None:
        self.w = w
        self.draw = random.Random(seed)
        self.seed = 100 * seed
        self.pending: list[tuple[dist.Work, Callable[[], None]]] = []
        self.streams = [torch.get_device_module(w.device).Stream(w.device) for _ in range(2)]

    def run(self, steps: int) -> None:
        for number in range(steps):
            chosen = self.draw.choice(STEPS)
            try:
                with self.on_some_stream():
                    chosen(self)
                if self.draw.random() < 0.4:
                    self.finish_one()
            except Exception as error:
                error.add_note(f"in step {number}: {chosen.__name__}")
                raise
        while self.pending:
            self.finish_one()

    @contextlib.contextmanager
    def on_some_stream(self) -> Iterator[None]:
        """Inputs are made there, and the call is."""
        module = torch.get_device_module(self.w.device)
        if self.draw.random() < 0.7:
            yield
            return
        stream = self.draw.choice(self.streams)
        stream.wait_stream(module.current_stream())
        with module.stream(stream):
            yield
        module.current_stream().wait_stream(stream)

    def shape(self) -> tuple[int, ...]:
        return self.draw.choice(SHAPES)

    def rows(self) -> tuple[int, ...]:
        """A shape that ranks may share by rows."""
        return (self.draw.choice((0, 1, 4)) * self.w.size, *self.draw.choice(((), (3,), (2, 5))))

    def values(self, shape: tuple[int, ...], dtype: str) -> list[torch.Tensor]:
        """Of each rank, on the CPU."""
        self.seed += 1
        return [numbers(r, shape, dtype, self.seed) for r in self.w.ranks]

    def placed(self, value: torch.Tensor, is_written: bool = False) -> Placed:
        """In some layout, the same on all ranks or another on each."""
        layouts, number = layouts_of(value.dtype, is_written), self.draw.randrange(1000)
        return layouts[(number + self.w.rank * (number % 2)) % len(layouts)](value, self.w.device)

    def output(self, shape: tuple[int, ...], dtype: str) -> Placed:
        return self.placed(torch.ones(shape, dtype=getattr(torch, dtype)), is_written=True)

    def call(self, begin: Callable[[bool], dist.Work | None], *results: tuple[Placed, torch.Tensor | None]) -> None:
        """Make a call, and check its results now or later. None: not this rank's to know."""

        def check() -> None:
            for found, expected in results:
                if expected is not None:
                    same(found.tensor.resolve_neg().contiguous(), expected)
                found.rest_is_untouched()

        is_async = self.draw.random() < 0.5
        work = begin(is_async)
        if is_async and work is not None:
            self.pending.append((work, check))
        else:
            check()

    def finish_one(self) -> None:
        if self.pending:
            work, check = self.pending.pop(self.draw.randrange(len(self.pending)))
            work.wait()
            check()

    def reduction(self) -> tuple[str, str]:
        """A dtype and an operation whose results are exact."""
        dtype = self.draw.choice((*REDUCED, "int16", "bool", "complex64", "float8_e4m3fn"))
        if dtype in ("complex64", "float8_e4m3fn"):
            return dtype, "SUM"
        if dtype == "bool":
            return dtype, self.draw.choice(("MAX", "MIN"))
        is_float = getattr(torch, dtype).is_floating_point
        return dtype, self.draw.choice(("SUM", "PRODUCT", "MIN", "MAX", *(() if is_float else ("BAND", "BOR", "BXOR"))))


def reduced(operation: str, parts: list[torch.Tensor]) -> torch.Tensor:
    """On the CPU; it adds no float8, and has no minimum of bools."""
    dtype = parts[0].dtype
    if dtype.itemsize == 1 and (dtype.is_floating_point or dtype == torch.bool):
        wide = torch.float32 if dtype.is_floating_point else torch.uint8
        return folded(operation, [part.to(wide) for part in parts]).to(dtype)
    return folded(operation, parts)


def op(name: str) -> dist.ReduceOp:
    return getattr(dist.ReduceOp, name)


@step
def all_reduce(p: Program) -> None:
    dtype, name = p.reduction()
    parts = p.values(p.shape(), dtype)
    x = p.placed(parts[p.w.rank], is_written=True)
    p.call(lambda later: dist.all_reduce(x.tensor, op(name), async_op=later), (x, reduced(name, parts)))


@step
def reduce(p: Program) -> None:
    dtype, name = p.reduction()
    parts, root = p.values(p.shape(), dtype), p.draw.randrange(p.w.size)
    x = p.placed(parts[p.w.rank], is_written=True)
    expected = reduced(name, parts) if p.w.rank == root else parts[p.w.rank]
    p.call(lambda later: dist.reduce(x.tensor, root, op(name), async_op=later), (x, expected))


@step
def reduce_scatter(p: Program) -> None:
    dtype, name = p.reduction()
    shape = p.shape()
    parts = [p.values(shape, dtype) for _ in p.w.ranks]  # of each destination, of each rank
    inputs = [p.placed(parts[d][p.w.rank]) for d in p.w.ranks]
    out = p.output(shape, dtype)
    p.call(
        lambda later: dist.reduce_scatter(out.tensor, [x.tensor for x in inputs], op(name), async_op=later),
        (out, reduced(name, parts[p.w.rank])),
        *((x, parts[d][p.w.rank]) for d, x in enumerate(inputs)),
    )


@step
def reduce_scatter_tensor(p: Program) -> None:
    dtype, name = p.reduction()
    shape = p.rows()
    parts = p.values(shape, dtype)
    x, out = p.placed(parts[p.w.rank]), p.output((shape[0] // p.w.size, *shape[1:]), dtype)
    p.call(
        lambda later: dist.reduce_scatter_tensor(out.tensor, x.tensor, op(name), async_op=later),
        (out, reduced(name, parts).chunk(p.w.size)[p.w.rank] if shape[0] else reduced(name, parts)),
        (x, parts[p.w.rank]),
    )


@step
def broadcast(p: Program) -> None:
    parts, root = p.values(p.shape(), p.draw.choice(MOVED)), p.draw.randrange(p.w.size)
    x = p.placed(parts[p.w.rank], is_written=True)
    p.call(lambda later: dist.broadcast(x.tensor, root, async_op=later), (x, parts[root]))


@step
def all_gather(p: Program) -> None:
    """Of one size or, by rows, of another on each rank."""
    dtype, shape = p.draw.choice(MOVED), p.shape()
    shapes = [(r + 1, *shape) if p.seed % 2 else shape for r in p.w.ranks]
    p.seed += 1
    parts = [numbers(r, shapes[r], dtype, p.seed) for r in p.w.ranks]
    x, outs = p.placed(parts[p.w.rank]), [p.output(shapes[r], dtype) for r in p.w.ranks]
    p.call(
        lambda later: dist.all_gather([out.tensor for out in outs], x.tensor, async_op=later),
        *zip(outs, parts, strict=True),
        (x, parts[p.w.rank]),
    )


@step
def all_gather_into_tensor(p: Program) -> None:
    dtype, shape = p.draw.choice(MOVED), p.shape()
    parts = p.values(shape, dtype)
    x, out = p.placed(parts[p.w.rank]), p.output((p.w.size, *shape), dtype)
    p.call(
        lambda later: dist.all_gather_into_tensor(out.tensor, x.tensor, async_op=later),
        (out, torch.stack(parts)),
        (x, parts[p.w.rank]),
    )


@step
def gather(p: Program) -> None:
    dtype, shape, root = p.draw.choice(MOVED), p.shape(), p.draw.randrange(p.w.size)
    parts = p.values(shape, dtype)
    x, outs = p.placed(parts[p.w.rank]), [p.output(shape, dtype) for _ in p.w.ranks]
    given = [out.tensor for out in outs] if p.w.rank == root else None
    expected = parts if p.w.rank == root else [None] * p.w.size
    p.call(lambda later: dist.gather(x.tensor, given, root, async_op=later), *zip(outs, expected, strict=True))


@step
def scatter(p: Program) -> None:
    dtype, shape, root = p.draw.choice(MOVED), p.shape(), p.draw.randrange(p.w.size)
    parts = [p.values(shape, dtype)[root] for _ in p.w.ranks]
    inputs, out = [p.placed(part) for part in parts], p.output(shape, dtype)
    given = [x.tensor for x in inputs] if p.w.rank == root else None
    p.call(lambda later: dist.scatter(out.tensor, given, root, async_op=later), (out, parts[p.w.rank]))


@step
def all_to_all_single(p: Program) -> None:
    """In parts that differ for each pair of ranks, or of one size."""
    dtype, tail = p.draw.choice(MOVED), p.draw.choice(((), (3,), (2, 2)))
    most = p.draw.choice((0, 1, 4))
    rows = [[p.draw.randint(0, most) if most > 1 else most for _ in p.w.ranks] for _ in p.w.ranks]
    p.seed += 1
    parts = [numbers(r, (sum(rows[r]), *tail), dtype, p.seed) for r in p.w.ranks]
    received = [rows[r][p.w.rank] for r in p.w.ranks]
    x, out = p.placed(parts[p.w.rank]), p.output((sum(received), *tail), dtype)
    expected = torch.cat([parts[r].split(rows[r])[p.w.rank] for r in p.w.ranks])
    splits = (received, rows[p.w.rank]) if most > 1 or p.draw.random() < 0.5 else (None, None)
    p.call(
        lambda later: dist.all_to_all_single(out.tensor, x.tensor, *splits, async_op=later),
        (out, expected),
        (x, parts[p.w.rank]),
    )


@step
def all_to_all(p: Program) -> None:
    dtype, shape = p.draw.choice(MOVED), p.shape()
    parts = [p.values(shape, dtype) for _ in p.w.ranks]
    inputs, outs = [p.placed(parts[d][p.w.rank]) for d in p.w.ranks], [p.output(shape, dtype) for _ in p.w.ranks]
    p.call(
        lambda later: dist.all_to_all([out.tensor for out in outs], [x.tensor for x in inputs], async_op=later),
        *zip(outs, parts[p.w.rank], strict=True),
    )


@step
def messages_around(p: Program) -> None:
    dtype, shape = p.draw.choice(MOVED), p.draw.choice(SHAPES)
    parts = p.values(shape, dtype)
    x, out = p.placed(parts[p.w.rank]), p.output(shape, dtype)
    operations = [dist.P2POp(dist.isend, x.tensor, p.w.next), dist.P2POp(dist.irecv, out.tensor, p.w.previous)]
    works = dist.batch_isend_irecv(operations)
    for work in works[1:]:
        work.wait()
    p.call(lambda later: works[0] if later else works[0].wait(), (out, parts[p.w.previous]), (x, parts[p.w.rank]))


@step
def functional_all_reduce(p: Program) -> None:
    """Its input is kept."""
    parts = p.values(p.shape(), "float32")
    x = p.placed(parts[p.w.rank])
    y = functional.all_reduce(x.tensor, "sum", dist.group.WORLD)
    same(y + 0, reduced("SUM", parts))
    same(x.tensor.resolve_neg().contiguous(), parts[p.w.rank])


def programs(w: Rank, first: int, count: int, steps: int = 12) -> None:
    """With seeds from `first` on; an error has its seed."""
    for seed in range(first, first + count):
        try:
            Program(w, seed).run(steps)
        except Exception as error:
            error.add_note(f"of the program with seed {seed}")
            raise
