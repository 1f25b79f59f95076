"""``python -m benchmarks.sweep``: random calls of operators on the device and on the CPU, the slowest ones first.

The rows of the bench are of round sizes and dense operands. Here shapes, strides and dtypes are drawn, which finds
calls that no row has. A call is drawn from its number alone: ``--seed`` with a line's number and ``--count 1`` measure
it again.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import random
import re
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table
from torch.nn import functional

from benchmarks.report import machine, time_text
from benchmarks.row import COMPILED, Result
from benchmarks.timing import ratio, wait

SIZES = (
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    10,
    16,
    17,
    24,
    31,
    32,
    49,
    64,
    77,
    96,
    100,
    128,
    196,
    256,
    384,
    512,
    768,
    1000,
    1024,
    4096,
)
TOTALS = (2**12, 2**15, 2**18, 2**20)
LAYOUTS = ("dense", "dense", "dense", "permuted", "sliced", "stepped", "expanded")
UNARY = "abs neg exp log sin tanh sigmoid sqrt rsqrt erf floor round square relu isnan logical_not reciprocal".split()
ACTIVATIONS = "gelu silu mish hardswish hardsigmoid softplus elu leaky_relu logsigmoid relu6 hardtanh".split()
BINARY = "add sub mul div maximum minimum pow atan2 remainder floor_divide lt eq logical_and hypot copysign".split()
FOLDS = "sum prod argmax max any median logsumexp".split()  # along one dimension
FOLDS_OF_SEVERAL = "sum mean amax amin var logsumexp norm count_nonzero".split()
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)
LOSSES = "mse_loss l1_loss smooth_l1_loss binary_cross_entropy_with_logits".split()


View = Callable[[torch.Tensor], torch.Tensor]


def _layout(layout: str, shape: list[int], dim: int, order: list[int]) -> tuple[list[int], View]:
    """The shape of a dense tensor, and a view of it that has the given shape."""
    own = list(shape)
    if layout == "permuted":
        return [shape[d] for d in order], lambda t: t.permute([order.index(d) for d in range(len(order))])
    if layout == "sliced":
        own[-1] += 3
        return own, lambda t: t[..., 1:-2]
    if layout == "stepped":
        own[dim] *= 2
        return own, lambda t: t.unflatten(dim, (-1, 2)).select(dim + 1, 0)
    if layout == "expanded":
        own[dim] = 1
        return own, lambda t: t.expand(shape)
    if layout == "channels_last":
        return own, lambda t: t.contiguous(memory_format=torch.channels_last)
    return own, torch.Tensor.contiguous


class Draw:
    """A call that is drawn: random numbers, and the operands that its statement names.

    Attributes:
        operands: by name, a dense tensor on the CPU, and the view of it that the call takes.
        layouts: by name.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.dtype = self.pick(torch.float32, torch.float32, torch.float32, torch.bfloat16)
        self.operands: dict[str, tuple[torch.Tensor, View]] = {}
        self.layouts: dict[str, str] = {}

    def pick(self, *values: Any) -> Any:
        return self.random.choice(values)

    def shape(self, *ranks: int, total: int = 0) -> list[int]:
        """Of about so many elements."""
        rank, total = self.pick(*ranks) if ranks else self.pick(1, 2, 2, 3, 3, 4), total or self.pick(*TOTALS)
        if rank == 1:
            return [total + self.pick(0, 1, -3)]
        while True:
            shape = [self.pick(*SIZES) for _ in range(rank)]
            if total / 4 <= math.prod(shape) <= total * 1.5:
                return shape

    def dim(self, shape: Sequence[int]) -> int:
        return self.random.randrange(len(shape))

    def tensor(self, shape: Sequence[int], dtype: torch.dtype | None = None, layout: str = "") -> str:
        """Adds an operand, and returns its name."""
        layout, dtype = layout or self.pick(*LAYOUTS), dtype or self.dtype
        own, view = _layout(layout, list(shape), self.dim(shape), self.random.sample(range(len(shape)), len(shape)))
        numbers = torch.randn(own, generator=self.generator)
        return self._add(numbers.to(dtype) if dtype.is_floating_point else (numbers * 50).to(dtype), view, layout)

    def places(self, size: int, shape: Sequence[int]) -> str:
        """Adds an operand of integers below ``size``."""
        return self._add(torch.randint(0, size, shape, generator=self.generator), torch.Tensor.contiguous, "dense")

    def _add(self, base: torch.Tensor, view: View, layout: str) -> str:
        name = "abcdefgh"[len(self.operands)]
        self.operands[name], self.layouts[name] = (base, view), layout
        return name

    def broadcast(self, shape: Sequence[int]) -> list[int]:
        return [1 if self.random.random() < 0.3 else size for size in shape]

    def image(self) -> tuple[list[int], str]:
        side = self.pick(1, 4, 7, 8, 14, 16, 28, 32, 56)
        return [self.pick(1, 2, 4), self.pick(3, 16, 64, 256), side, side], self.pick("dense", "dense", "channels_last")

    def names(self, where: str) -> dict[str, Any]:
        """What the statement refers to, on that device."""
        operands = {name: view(base.to(where)) for name, (base, view) in self.operands.items()}
        return {"torch": torch, "functional": functional, "device": where, **operands}

    def describe(self) -> str:
        shapes = {name: "x".join(map(str, view(base).shape)) for name, (base, view) in self.operands.items()}
        return ", ".join(f"{name}: {shapes[name]} {layout}" for name, layout in self.layouts.items())


def _cast(d: Draw) -> str:
    return f"{d.tensor(d.shape(), d.pick(*DTYPES))}.to({d.pick(*DTYPES)})"


def _fill(d: Draw) -> str:
    layout = d.pick("dense", "permuted", "sliced", "stepped")  # without repeated places
    return f"{d.tensor(d.shape(), layout=layout)}.{d.pick('zero_()', 'fill_(1)', 'mul_(1)')}"


def _binary(d: Draw) -> str:
    shape = d.shape()
    return f"torch.{d.pick(*BINARY)}({d.tensor(shape)}, {d.tensor(d.broadcast(shape))})"


def _fold(d: Draw) -> str:
    shape = d.shape()
    if d.pick(True, False):
        return f"{d.tensor(shape)}.{d.pick(*FOLDS)}(dim={d.dim(shape)})"
    dims = sorted(d.random.sample(range(len(shape)), d.random.randint(1, len(shape))))
    return f"{d.tensor(shape)}.{d.pick(*FOLDS_OF_SEVERAL)}(dim={dims})"


def _along(*names: str, ranks: tuple[int, ...] = (1, 2, 3, 4), total: int = 0) -> Callable[[Draw], str]:
    """Operators of a tensor and a dimension, with what stands before that."""

    def statement(d: Draw) -> str:
        shape = d.shape(*ranks, total=total)
        return d.pick(*names).replace("@", d.tensor(shape)) + f"{d.dim(shape)})"

    return statement


def _join(d: Draw) -> str:
    shape = d.shape(total=2**16)
    return f"torch.{d.pick('cat', 'stack')}([{d.tensor(shape)}, {d.tensor(shape)}], {d.dim(shape)})"


def _norm(d: Draw) -> str:
    shape, layout = d.image()
    image = d.tensor(shape, layout=layout)
    if d.pick(True, False):
        mean, variance = (d.tensor(shape[1:2], layout="dense") for _ in range(2))
        return f"functional.batch_norm({image}, {mean}, {variance}.abs())"
    return d.pick(
        f"functional.layer_norm({image}, {shape[-1:]})",
        f"functional.group_norm({image}, {d.pick(1, shape[1])})",
        f"functional.normalize({image}, dim={d.dim(shape)})",
    )


def _product(d: Draw) -> str:
    sizes = (1, 2, 3, 4, 5, 8, 16, 17, 32, 50, 64, 100, 128, 256, 512, 1024, 4096)
    while True:
        batch, m, k, n = d.pick(1, 1, 3, 16, 64), *(d.pick(*sizes) for _ in range(3))
        if 1e4 <= batch * m * k * n <= 2e8:
            break
    lead = [] if batch == 1 else [batch]
    a = d.tensor([*lead, m, k], layout=d.pick("dense", "permuted", "expanded"))
    if d.pick(True, False):
        return f"functional.linear({a}, {d.tensor([n, k], layout='dense')})"
    return f"{a} @ {d.tensor([*lead, k, n], layout=d.pick('dense', 'permuted'))}"


def _convolution(d: Draw) -> str:
    while True:
        shape, layout = d.image()
        kernel, stride, groups = d.pick(1, 3, 3, 5, 7), d.pick(1, 1, 2), d.pick(1, 1, shape[1])
        out = max(d.pick(1, 16, 64, 256) // groups, 1) * groups
        work = shape[0] * shape[1] // groups * out * (kernel * shape[2]) ** 2
        if 3e5 <= work <= 3e8 and shape[2] >= kernel:
            break
    transposed = groups == 1 and d.pick(True, False, False)
    weight = [shape[1], out] if transposed else [out, shape[1] // groups]
    name = "conv_transpose2d" if transposed else "conv2d"
    image, filters = d.tensor(shape, layout=layout), d.tensor([*weight, kernel, kernel], layout=layout)
    return f"functional.{name}({image}, {filters}, stride={stride}, padding={kernel // 2}, groups={groups})"


def _image(d: Draw) -> str:
    shape, layout = d.image()
    image = d.tensor(shape, layout=layout)
    k = min(shape[2], d.pick(2, 3))
    return "functional." + d.pick(
        f"max_pool2d({image}, {k}, {d.pick(1, 2)}, {k // 2})",
        f"avg_pool2d({image}, {k}, {d.pick(1, 2)}, {k // 2})",
        f"adaptive_avg_pool2d({image}, {d.pick(1, 3, 7)})",
        f"adaptive_max_pool2d({image}, {d.pick(1, 3, 7)})",
        f"interpolate({image}, scale_factor=2, mode='{d.pick('nearest', 'bilinear', 'bicubic')}')",
        f"pad({image}, (1, 1, 1, 1), '{d.pick('constant', 'replicate', 'circular')}')",
        f"fold(functional.unfold({image}, {k}, stride={k}), {shape[2:]}, {k}, stride={k})",
    )


def _index(d: Draw) -> str:
    shape = d.shape(1, 2, 3)
    dim = d.dim(shape)
    a = d.tensor(shape)
    if d.pick(True, False):
        return f"{a}.gather({dim}, {d.places(shape[dim], shape)})"
    count = min(d.pick(1, 10, 100, 1000), max(1, 2**21 * shape[dim] // math.prod(shape)))
    places = d.places(shape[dim], [count])
    name = d.pick("index_select", "index_add", "index_copy")
    others = "" if name == "index_select" else ", " + d.tensor([*shape[:dim], count, *shape[dim + 1 :]])
    return f"{a}.{name}({dim}, {places}{others})"


def _mask(d: Draw) -> str:
    shape = d.shape()
    a, mask = d.tensor(shape), d.tensor(shape, torch.bool, "dense")
    return d.pick(f"{a}.masked_fill({mask}, 0)", f"{a}[{mask}]")


def _loss(d: Draw) -> str:
    shape = d.shape(2)
    if d.pick(True, False):
        return f"functional.cross_entropy({d.tensor(shape)}, {d.places(shape[1], shape[:1])})"
    return f"functional.{d.pick(*LOSSES)}({d.tensor(shape)}, {d.tensor(shape)})"


def _embedding(d: Draw) -> str:
    table = d.tensor([100, d.pick(8, 64, 768)], layout="dense")
    return f"functional.embedding({d.places(100, [d.pick(1, 512, 4096)])}, {table})"


def _attention(d: Draw) -> str:
    queries, keys, size = d.pick(1, 7, 64, 197), d.pick(7, 64, 197, 512), d.pick(16, 40, 64, 128)
    lead = [d.pick(1, 4), d.pick(1, 8)]
    operands = [d.tensor([*lead, count, size], layout="dense") for count in (queries, keys, keys)]
    return f"functional.scaled_dot_product_attention({', '.join(operands)})"


def _random(d: Draw) -> str:
    shape = d.shape()
    return d.pick(f"torch.rand({shape}, device=device)", f"functional.dropout({d.tensor(shape)})")


# The statement of a call of each family.
FAMILIES: dict[str, Callable[[Draw], str]] = {
    "unary": lambda d: f"{d.tensor(d.shape())}.{d.pick(*UNARY)}()",
    "activation": lambda d: f"functional.{d.pick(*ACTIVATIONS)}({d.tensor(d.shape())})",
    "binary": _binary,
    "number": lambda d: f"{d.tensor(d.shape())} {d.pick('+ 1', '* 2.5', '% 0.3', '// 0.3', '> 0.5', '** 2')}",
    "clamp": lambda d: f"{d.tensor(d.shape())}.{d.pick('clamp(-0.5, 0.5)', 'clamp(max=0.1)', 'nan_to_num()')}",
    "cast": _cast,
    "copy": lambda d: f"{d.tensor(d.shape(), d.pick(*DTYPES))}.clone(memory_format=torch.contiguous_format)",
    "fill": _fill,
    "fold": _fold,
    "softmax": _along("torch.softmax(@, ", "torch.log_softmax(@, "),
    "norm": _norm,
    "scan": _along("torch.cumsum(@, ", "torch.cumprod(@, ", "torch.logcumsumexp(@, "),
    "join": _join,
    "move": _along("@.flip(", "torch.roll(@, 1, ", "torch.diff(@, dim=", "torch.repeat_interleave(@, 2, "),
    "triangle": lambda d: f"{d.tensor(d.shape(2, 3))}.{d.pick('tril', 'triu')}()",
    "order": _along("torch.sort(@, ", "torch.argsort(@, ", "torch.topk(@, 1, ", ranks=(1, 2), total=2**16),
    "index": _index,
    "mask": _mask,
    "loss": _loss,
    "embedding": _embedding,
    "product": _product,
    "convolution": _convolution,
    "image": _image,
    "attention": _attention,
    "random": _random,
}


def draw(seed: int) -> tuple[str, str, Draw]:
    """The family, the statement and the operands of call number ``seed``."""
    call = Draw(seed)
    family = call.pick(*FAMILIES)
    return family, FAMILIES[family](call), call


def measure(statement: str, call: Draw, device: str) -> Result:
    """Processor time of the device's call and of the CPU's."""
    ours, theirs = call.names(device), call.names("cpu")
    return ratio(statement, ours, theirs, after=wait, round_s=0.005, rounds=5, timer=time.process_time)


def main() -> None:
    """Parse the options, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweep", description=__doc__.splitlines()[0])
    parser.add_argument("--module", default="mydevice", help="the backend's Python package")
    parser.add_argument("--device", default="", help="the device's name (default: the module's)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the first call")
    parser.add_argument("--count", type=int, default=500, metavar="N", help="of calls; ten take a second")
    parser.add_argument(
        "--only", default="", metavar="REGEX", help="families whose name matches: " + ", ".join(FAMILIES)
    )
    parser.add_argument("--least", type=float, default=1.3, metavar="RATIO", help="the least ratio that is printed")
    arguments = parser.parse_args()
    device = arguments.device or arguments.module
    os.environ.setdefault(f"{device.upper()}_OPTIONS", COMPILED.options)
    importlib.import_module(arguments.module)
    torch.set_num_threads(1)
    seeds = range(arguments.seed, arguments.seed + arguments.count)
    lines = []
    for seed in track(seeds, "measuring", console=Console(stderr=True), transient=True):
        family, statement, call = draw(seed)
        if re.search(arguments.only, family):
            lines.append((measure(statement, call, device), seed, statement, call))
    table = Table("ratio", "device", "CPU", "seed", "dtype", "call", "operands")
    lines = sorted(lines, key=lambda line: -line[0].best)
    for result, seed, statement, call in lines:
        if result.best >= arguments.least:
            times = (time_text(result.device), time_text(result.cpu))
            dtype = str(call.dtype).removeprefix("torch.")
            table.add_row(f"{result.best:.2f} x", *times, str(seed), dtype, escape(statement), call.describe())
    console = Console()
    console.width = max(console.width, 160)
    console.print(" · ".join(f"{name} {value}" for name, value in machine().items()))
    console.print(table)
    ratios = [result.best for result, *_ in lines]
    if ratios:
        over = sum(ratio >= arguments.least for ratio in ratios)
        console.print(
            f"{len(ratios)} calls, of which {over} take {arguments.least:g} x or more; median {median(ratios):.2f} x"
        )


if __name__ == "__main__":
    main()
