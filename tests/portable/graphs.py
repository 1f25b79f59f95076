"""Random functions of tensors, as data: what torch.compile makes of them is compared with the CPU's eager results.

A program is drawn while it runs on the CPU, so that each step fits what is there. It runs there once more in float64:
how far the two are apart is how far a result may be from either, and what rounding decides (a comparison, a place) is
left out.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

# The last is no input's: what rounding decides in it the other run, in float64, would not show.
FLOATS = [torch.float32, torch.float32, torch.float32, torch.float16, torch.bfloat16, torch.float64]
WHOLE = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
SIZES = [1, 2, 3, 5, 8, 17, 33]
MOST = 20_000

Tensors = list[torch.Tensor]
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

    def gradients(self, *inputs: torch.Tensor) -> Tensors:
        """Of a sum of the results, for each input of floats. Only copies are changed: autograd needs what there was."""
        steps = [
            (name, operands, {key: key == "is_copy" or one for key, one in arguments.items()})
            for name, operands, arguments in self.steps
        ]
        leaves = [one.clone().requires_grad_(one.is_floating_point()) for one in inputs]
        results = [one for one in Program([], steps, self.results)(*(one * 1 for one in leaves)) if one.requires_grad]
        wanted = [one for one in leaves if one.requires_grad]
        if not results or not wanted:
            return []
        total = sum((one.to(torch.float64) * 0.5).sum() / one.numel() for one in results)
        found = torch.autograd.grad(total, wanted, allow_unused=True)
        return [torch.zeros_like(x) if one is None else one for x, one in zip(wanted, found, strict=True)]

    def has_halves(self) -> bool:
        """Whether anything is of a half type."""
        dtypes = [one.dtype for one in self.inputs] + [arguments.get("dtype") for _, _, arguments in self.steps]
        return torch.float16 in dtypes or torch.bfloat16 in dtypes

    def __repr__(self) -> str:
        inputs = [f"{one.dtype}{tuple(one.shape)}" for one in self.inputs]
        return "\n".join([f"inputs {inputs}, results {self.results}", *map(str, enumerate(self.steps, len(inputs)))])


@dataclass
class Kind:
    """A kind of step: ``draw`` gives operands and arguments, or None where it does not fit."""

    draw: Callable[[random.Random, Tensors], tuple[list[int], dict[str, Any]] | None]
    run: Callable[..., torch.Tensor]


STEPS: dict[str, Kind] = {}


def step(draw: Callable[..., Any]) -> Callable[[Callable[..., torch.Tensor]], Callable[..., torch.Tensor]]:
    """Register a kind under the name of what runs it."""

    def register(run: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        STEPS[run.__name__] = Kind(draw, run)
        return run

    return register


# ---- what steps are drawn with


def _of(test: Callable[[torch.Tensor], bool]) -> Callable[[random.Random, Tensors], int | None]:
    def choose(r: random.Random, known: Tensors) -> int | None:
        fit = [i for i, one in enumerate(known) if test(one)]
        return r.choice(fit[-4:] if r.random() < 0.7 else fit) if fit else None

    return choose


_any = _of(lambda x: True)
_float = _of(lambda x: x.is_floating_point())
_matrix = _of(lambda x: x.is_floating_point() and x.dim() == 2 and x.numel() > 0)
_axes = _of(lambda x: x.dim() > 0 and x.numel() > 0)
_float_axes = _of(lambda x: x.is_floating_point() and x.dim() > 0 and x.numel() > 0)
_whole = _of(lambda x: x.dtype in (torch.int64, torch.int32))


def _with(
    choose: Callable[..., int | None], **draw: Callable[[random.Random, torch.Tensor], Any]
) -> Callable[..., Any]:
    def one(r: random.Random, known: Tensors) -> Any:
        i = choose(r, known)
        return None if i is None else ([i], {key: make(r, known[i]) for key, make in draw.items()})

    return one


def _axis(r: random.Random, x: torch.Tensor) -> int:
    return r.randrange(-x.dim(), x.dim())


def _name(*names: str) -> Callable[[random.Random, torch.Tensor], str]:
    return lambda r, _: r.choice(names)


def _flag(r: random.Random, _: torch.Tensor) -> bool:
    return r.random() < 0.5


def _pair(r: random.Random, known: Tensors) -> Any:
    i = _any(r, known)
    fit = [k for k, one in enumerate(known) if _meets(known[i], one)]
    return [i, r.choice(fit or [i])], {}


def _meets(x: torch.Tensor, y: torch.Tensor) -> bool:
    try:
        return torch.broadcast_shapes(x.shape, y.shape).numel() <= MOST
    except RuntimeError:
        return False


def _pair_with(**draw: Any) -> Callable[..., Any]:
    def one(r: random.Random, known: Tensors) -> Any:
        operands, _ = _pair(r, known)
        return operands, {key: make(r, known[operands[0]]) for key, make in draw.items()}

    return one


# ---- elements

_UNARY = {
    "abs": torch.abs,
    "neg": lambda x: -x.to(torch.int16) if x.dtype == torch.bool else -x,
    "relu": lambda x: torch.relu(x.to(torch.uint8) if x.dtype == torch.bool else x),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "exp": lambda x: x.clamp(-9, 9).exp(),
    "sin": torch.sin,
    "cos": torch.cos,
    "root": lambda x: x.abs().sqrt(),
    "rsqrt": lambda x: (x.abs() + 1).rsqrt(),
    "log1p": lambda x: x.abs().log1p(),
    "erf": torch.erf,
    "gelu": lambda x: F.gelu(x if x.is_floating_point() else x.float()),
    "silu": lambda x: F.silu(x if x.is_floating_point() else x.float()),
    "atan": torch.atan,
    "sign": torch.sign,
    "is positive": lambda x: x > 0,
    "is none": lambda x: x == 0,
    "not": torch.logical_not,
    "square": torch.square,
    "whole": lambda x: torch.where(x.isfinite(), x, 0).clamp(-100, 100).to(torch.int64),
    "floor": lambda x: x.floor() if x.is_floating_point() else x,
    "round": lambda x: x.round() if x.is_floating_point() else x,
    "reciprocal": lambda x: 1 / (x.abs() + 0.5),
    "copy": torch.clone,
    "softplus": lambda x: F.softplus(x if x.is_floating_point() else x.float()),
    "leaky": lambda x: F.leaky_relu(x if x.is_floating_point() else x.float(), 0.1),
}


@step(_with(_any, name=_name(*_UNARY)))
def unary(x: torch.Tensor, name: str) -> torch.Tensor:
    return _UNARY[name](x)


_BINARY = {
    "add": torch.add,
    "sub": lambda x, y: x.to(torch.int32) - y if torch.bool in (x.dtype, y.dtype) else x - y,
    "mul": torch.mul,
    "div": lambda x, y: x / (y.abs() + 1),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "larger": lambda x, y: x > y,
    "equal": lambda x, y: x == y,
    "where": lambda x, y: torch.where(x > y, x, y * 2),
    "atan2": torch.atan2,
    "remainder": lambda x, y: torch.remainder(x, y.abs() + 1),
    "fmod": lambda x, y: torch.fmod(x, y.abs() + 1),
    "floors": lambda x, y: torch.div(x, y.abs() + 1, rounding_mode="floor"),
    "truncates": lambda x, y: torch.div(x, y.abs() + 1, rounding_mode="trunc"),
    "and": torch.logical_and,
    "xor": torch.logical_xor,
    "hypot": lambda x, y: torch.hypot(x.float(), y.float()),
    "lerp": lambda x, y: torch.lerp(x.float(), y.float(), 0.25),
    "addcmul": lambda x, y: torch.addcmul(x.float(), y.float(), y.float(), value=0.5),
    "copysign": lambda x, y: torch.copysign(x.float(), y.float()),
}


@step(_pair_with(name=_name(*_BINARY)))
def binary(x: torch.Tensor, y: torch.Tensor, name: str) -> torch.Tensor:
    return _BINARY[name](x, y)


@step(
    _with(_any, name=_name("add", "mul", "rsub", "clamp", "pow"), number=lambda r, _: r.choice([0, 1, 2, -1, 0.5, 3]))
)
def with_number(x: torch.Tensor, name: str, number: float) -> torch.Tensor:
    if name == "clamp":
        return x.clamp(min=-abs(number), max=abs(number))
    if name == "pow":  # of floats: a whole number to a power whose size is dynamic is an error of torch's, everywhere
        return x.float().abs().clamp(max=5) ** abs(number)
    if name == "rsub":
        return number - (x.int() if x.dtype == torch.bool else x)
    return x + number if name == "add" else x * number


@step(_with(_any, dtype=lambda r, _: r.choice(FLOATS + WHOLE)))
def converted(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if x.is_floating_point() and not dtype.is_floating_point:
        x = torch.where(x.isfinite(), x, 0).clamp(0, 100)
    return x.to(dtype)


# ---- along axes

_FOLDS = {
    "sum": torch.sum,
    "mean": lambda x, dim, keepdim: x.float().mean(dim, keepdim),
    "amax": torch.amax,
    "amin": torch.amin,
    "var": lambda x, dim, keepdim: x.float().var(dim, correction=0, keepdim=keepdim),
    "norm": lambda x, dim, keepdim: torch.linalg.vector_norm(x.float(), 2, dim, keepdim),
    "any": torch.any,
    "all": torch.all,
    "logsumexp": lambda x, dim, keepdim: x.float().logsumexp(dim, keepdim),
    "argmax": torch.argmax,
    "argmin": torch.argmin,
    "max": lambda x, dim, keepdim: x.max(dim, keepdim)[0],
    "min's place": lambda x, dim, keepdim: x.min(dim, keepdim)[1],
    "prod": lambda x, dim, keepdim: x.float().clamp(-1.5, 1.5).prod(dim, keepdim),
    "count": lambda x, dim, keepdim: (x != 0).sum(dim, keepdim),
}


@step(_with(_axes, name=_name(*_FOLDS), dim=_axis, keepdim=_flag))
def folded(x: torch.Tensor, name: str, dim: int, keepdim: bool) -> torch.Tensor:
    if x.dtype == torch.bool and name in ("argmax", "argmin", "min's place", "max", "amax", "amin"):
        x = x.int()
    return _FOLDS[name](x, dim, keepdim)


@step(_with(_axes, name=_name("sum", "amax", "mean", "any")))
def folded_whole(x: torch.Tensor, name: str) -> torch.Tensor:
    return {"sum": torch.sum, "amax": torch.amax, "mean": lambda x: x.float().mean(), "any": torch.any}[name](x)


_ROWS = {
    "softmax": lambda x, dim: x.softmax(dim),
    "log softmax": lambda x, dim: x.log_softmax(dim),
    "cumsum": lambda x, dim: x.cumsum(dim),
    "cumprod": lambda x, dim: x.clamp(-1.2, 1.2).cumprod(dim),
    "cummax": lambda x, dim: x.cummax(dim)[0],
    "logcumsumexp": lambda x, dim: x.float().logcumsumexp(dim),
    "centred": lambda x, dim: x - x.mean(dim, keepdim=True),
    "scaled": lambda x, dim: x / (x.abs().amax(dim, keepdim=True) + 1),
    "sorted": lambda x, dim: x.sort(dim)[0],
    "normal": lambda x, dim: F.normalize(x.float(), dim=dim),
}


@step(_with(_float_axes, name=_name(*_ROWS), dim=_axis))
def rows(x: torch.Tensor, name: str, dim: int) -> torch.Tensor:
    return _ROWS[name](x, dim)


@step(_with(_float_axes))
def layer_norm(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:])


# ---- views and joins

_VIEWS = {
    "turned": lambda x, dim, k: x.transpose(dim, -1),
    "flat": lambda x, dim, k: x.reshape(-1),
    "deeper": lambda x, dim, k: x.unsqueeze(dim),
    "flipped": lambda x, dim, k: x.flip(dim),
    "rolled": lambda x, dim, k: x.roll(k, dim),
    "part": lambda x, dim, k: x.narrow(dim, min(k, x.shape[dim] - 1), x.shape[dim] - min(k, x.shape[dim] - 1)),
    "every other": lambda x, dim, k: x.transpose(0, dim)[:: k + 1].transpose(0, dim),
    "chosen": lambda x, dim, k: x.select(dim, min(k, x.shape[dim] - 1)),
    "split": lambda x, dim, k: x.chunk(2, dim)[-1].clone(),
    "windows": lambda x, dim, k: x.unfold(dim, min(k + 1, x.shape[dim]), 1),
    "expanded": lambda x, dim, k: x.unsqueeze(0).expand(k + 1, *x.shape),
    "repeated": lambda x, dim, k: x.repeat_interleave(k + 1, dim),
    "laid out": lambda x, dim, k: x.transpose(0, -1).contiguous().transpose(0, -1),
    "padded": lambda x, dim, k: F.pad(x, (k, 1)),
    "lower": lambda x, dim, k: x.tril(k) if x.dim() > 1 else x,
    "diagonal": lambda x, dim, k: x.diagonal(k - 1) if x.dim() > 1 else x,
}


@step(_with(_axes, name=_name(*_VIEWS), dim=_axis, k=lambda r, _: r.randrange(3)))
def view(x: torch.Tensor, name: str, dim: int, k: int) -> torch.Tensor:
    return _VIEWS[name](x, dim, k)


def _alike(r: random.Random, known: Tensors) -> Any:
    i = _axes(r, known)
    if i is None:
        return None
    fit = [k for k, one in enumerate(known) if one.shape == known[i].shape]
    return [i, r.choice(fit)], {"dim": _axis(r, known[i]), "stacked": r.random() < 0.3}


@step(_alike)
def joined(x: torch.Tensor, y: torch.Tensor, dim: int, stacked: bool) -> torch.Tensor:
    return (torch.stack if stacked else torch.cat)([x, y], dim)


# ---- by places


def _with_places(r: random.Random, known: Tensors) -> Any:
    i, k = _axes(r, known), _whole(r, known)
    if i is None or k is None or not 0 < known[k].numel() <= 500:
        return None
    return [i, k], {"dim": _axis(r, known[i])}


def _in_range(places: torch.Tensor, size: int) -> torch.Tensor:
    return (places.reshape(-1).long() % size).abs()


@step(_with_places)
def selected(x: torch.Tensor, places: torch.Tensor, dim: int) -> torch.Tensor:
    return x.index_select(dim, _in_range(places, x.shape[dim]))


@step(_with_places)
def read(x: torch.Tensor, places: torch.Tensor, dim: int) -> torch.Tensor:
    return x.transpose(0, dim)[_in_range(places, x.shape[dim])]


@step(_with_places)
def gathered(x: torch.Tensor, places: torch.Tensor, dim: int) -> torch.Tensor:
    index = _in_range(places, x.shape[dim]).view([-1 if i == dim % x.dim() else 1 for i in range(x.dim())])
    return x.gather(dim, index.expand([-1 if i == dim % x.dim() else n for i, n in enumerate(x.shape)]))


@step(_with_places)
def summed_into(x: torch.Tensor, places: torch.Tensor, dim: int) -> torch.Tensor:
    at = _in_range(places, x.shape[dim])
    return x.float().index_add(dim, at, x.float().index_select(dim, at))


@step(_with_places)
def put(x: torch.Tensor, places: torch.Tensor, dim: int) -> torch.Tensor:
    at = _in_range(places, x.shape[0])
    return x.float().index_put((at,), x.float().new_ones(()), accumulate=True)


@step(lambda r, known: (lambda pair: pair and (pair[0], {}))(_pair(r, known)))
def masked(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x, y = torch.broadcast_tensors(x, y)
    return x.masked_fill(y > 0, 1)


# ---- products and windows


def _matrices(r: random.Random, known: Tensors) -> Any:
    i = _matrix(r, known)
    if i is None:
        return None
    fit = [
        k
        for k, one in enumerate(known)
        if one.dim() == 2 and one.dtype == known[i].dtype and one.shape[0] == known[i].shape[1]
    ]
    return ([i, r.choice(fit)] if fit else [i, i]), {"turned": not fit}


@step(_matrices)
def product(x: torch.Tensor, y: torch.Tensor, turned: bool) -> torch.Tensor:
    return x @ (y.t() if turned else y)


_image = _of(lambda x: x.is_floating_point() and x.dim() in (3, 4) and min(x.shape[-2:]) >= 2)


@step(_with(_image, name=_name("max", "mean", "nearest", "bilinear", "reflected")))
def windows(x: torch.Tensor, name: str) -> torch.Tensor:
    x = x.unsqueeze(0) if x.dim() == 3 else x
    if name == "max":
        return F.max_pool2d(x, 2, 1, 1)
    if name == "mean":
        return F.avg_pool2d(x, 2, 2)
    if name == "reflected":
        return F.pad(x, (1, 1, 1, 0), mode="reflect")
    return F.interpolate(x, scale_factor=2, mode=name)


# ---- in place: on a copy, or on an input


@step(_pair_with(name=_name("add", "mul", "copy"), is_copy=lambda r, _: r.random() < 0.8))
def changed(x: torch.Tensor, y: torch.Tensor, name: str, is_copy: bool) -> torch.Tensor:
    x = x.clone() if is_copy else x
    part = x[..., ::2] if x.dim() and x.shape[-1] > 1 else x
    y = y.sum().to(x.dtype)
    if name == "copy":
        part.copy_(y)
    elif name == "add":
        part.add_(y) if x.dtype != torch.bool else part.logical_or_(y)
    else:
        part.mul_(y)
    return x * 1


# ---- programs


def draw(seed: int, length: int = 12) -> Program:
    """The program of a seed, the same each time."""
    r = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    shape = [r.choice(SIZES) for _ in range(r.choice([1, 2, 2, 3, 3, 4]))]
    inputs = []
    for k in range(r.choice([2, 3])):
        one = list(shape)
        if k and r.random() < 0.5:
            one[r.randrange(len(one))] = 1
        values = torch.randint(-16, 17, one, generator=generator) / 4
        dtype = r.choice(FLOATS[:-1]) if k == 0 or r.random() < 0.6 else r.choice(WHOLE)
        inputs.append((values if dtype.is_floating_point else values.abs()).to(dtype))
    inputs.append(torch.randint(0, 50, (r.choice(SIZES),), generator=generator))
    program = Program([one.clone() for one in inputs])
    known = inputs
    names = list(STEPS)
    weights = [
        {"unary": 5, "binary": 5, "folded": 3, "view": 4, "rows": 2, "converted": 2}.get(name, 1) for name in names
    ]
    while len(program.steps) < length:
        (name,) = r.choices(names, weights)
        drawn = STEPS[name].draw(r, known)
        if drawn is None:
            continue
        before = [one.clone() for one in known]
        try:
            made = STEPS[name].run(*(known[i] for i in drawn[0]), **drawn[1])
        except (RuntimeError, IndexError, TypeError, ValueError):
            known[:] = before
            continue
        if not 0 < made.numel() <= MOST or made.dim() > 5 or not bool(made.float().isfinite().all()):
            known[:] = before
            continue
        known.append(made)
        program.steps.append((name, *drawn))
    used = {i for _, operands, _ in program.steps for i in operands}
    program.results = [i for i in range(len(program.inputs), len(known)) if i not in used or r.random() < 0.2]
    return program
