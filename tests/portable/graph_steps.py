"""The steps of random functions (graphs.py): what each computes, and how its operands and arguments are drawn."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

FLOATS = [torch.float32, torch.float32, torch.float16, torch.bfloat16, torch.bfloat16, torch.float64]
WHOLE = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
HALVES = (torch.float16, torch.bfloat16)
SIZES = [1, 2, 3, 5, 8, 17, 33, 64]
MOST = 20_000

Tensors = list[torch.Tensor]


def is_whole(dtype: torch.dtype | None) -> bool:
    return dtype is not None and not dtype.is_floating_point and not dtype.is_complex


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
        return r.choice(fit[-1:] if r.random() < 0.5 else fit[-4:] if r.random() < 0.6 else fit) if fit else None

    return choose


_any = _of(lambda x: True)
_float = _of(lambda x: x.is_floating_point())
_matrix = _of(lambda x: x.is_floating_point() and x.dim() == 2 and x.numel() > 0)
_axes = _of(lambda x: x.dim() > 0 and x.numel() > 0)
_float_axes = _of(lambda x: x.is_floating_point() and x.dim() > 0 and x.numel() > 0)
_mask = _of(lambda x: x.dtype == torch.bool and x.dim() > 0 and x.numel() > 0)
_vector = _of(lambda x: x.dim() == 1 and x.numel() > 1)
_index = _of(lambda x: is_whole(x.dtype) and 0 < x.numel() <= 500)


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
    "inverse": torch.bitwise_not,
    "square": torch.square,
    "whole": lambda x: torch.where(x.isfinite(), x, 0).clamp(-100, 100).to(torch.int64),
    "floor": lambda x: x.floor() if x.is_floating_point() else x,
    "round": lambda x: x.round() if x.is_floating_point() else x,
    "reciprocal": lambda x: 1 / (x.abs() + 0.5),
    "copy": torch.clone,
    "double": lambda x: x + x if x.dtype != torch.bool else x | x,
    "parts": lambda x: torch.view_as_real(x.resolve_conj()) if x.is_complex() else torch.complex(x.float(), -x.float()),
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
    "bits": lambda x, y: (x.short() & y.short()) | 1 if x.dtype != torch.bool else x ^ (y > 1),
    "scale": lambda x, y: x * (y > 0).to(x.dtype),
    "shift": lambda x, y: x << (y & 3),
    "isin": lambda x, y: torch.isin(x, y.reshape(-1)[:50]),
    "buckets": lambda x, y: torch.bucketize(x, y.reshape(-1)[:50].sort()[0], right=True),
    "hypot": lambda x, y: torch.hypot(x.float(), y.float()),
    "lerp": lambda x, y: torch.lerp(x.float(), y.float(), 0.25),
    "addcmul": lambda x, y: torch.addcmul(x.float(), y.float(), y.float(), value=0.5),
    "copysign": lambda x, y: torch.copysign(x.float(), y.float()),
}


@step(_pair_with(name=_name(*_BINARY, *["add", "sub", "mul"] * 4)))
def binary(x: torch.Tensor, y: torch.Tensor, name: str) -> torch.Tensor:
    return _BINARY[name](x, y)


@step(
    _with(
        _any,
        name=_name("add", "mul", "mul", "rsub", "clamp", "pow"),
        number=lambda r, _: r.choice([0, 1, 2, -1, 0.5, 3, 100.5]),
    )
)
def with_number(x: torch.Tensor, name: str, number: float) -> torch.Tensor:
    if name == "clamp":
        most = abs(number if x.is_floating_point() else int(number))  # else torch does not know its own result's dtype
        return (x.int() if x.dtype == torch.bool else x).clamp(min=-most, max=most)
    if name == "pow":  # of floats: a whole number to a power whose size is dynamic is an error of torch's, everywhere
        return x.float().abs().clamp(max=5) ** abs(number)
    if name == "rsub":
        return number - (x.int() if x.dtype == torch.bool else x)
    return x + number if name == "add" else x * number


@step(
    _with(
        _any,
        dtype=lambda r, x: r.choice([*FLOATS, *WHOLE, torch.complex64, *[torch.float64] * 8 * (x.dtype in HALVES)]),
    )
)
def converted(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if x.is_floating_point() and is_whole(dtype):
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
    "sorted": lambda x, dim: x.sort(dim=dim, stable=True)[0],  # gradients show the order of equal elements
    "normal": lambda x, dim: F.normalize(x.float(), dim=dim),
}


@step(_with(_float_axes, name=_name(*_ROWS), dim=_axis))
def rows(x: torch.Tensor, name: str, dim: int) -> torch.Tensor:
    return _ROWS[name](x, dim)


_SCANS = {
    "cumsum": lambda x, dim: x.cumsum(dim),
    "cummax": lambda x, dim: x.cummax(dim)[0],
    "argsort": lambda x, dim: x.argsort(dim=dim, stable=True),
    "ranks": lambda x, dim: x.argsort(dim=dim, stable=True).argsort(dim=dim),
    "difference": lambda x, dim: x.diff(dim=dim, prepend=x.narrow(dim, 0, 1)),
}


@step(_with(_axes, name=_name(*_SCANS), dim=_axis))
def scanned(x: torch.Tensor, name: str, dim: int) -> torch.Tensor:
    return _SCANS[name](x, dim)


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


_REPEATS = {
    "repeat": lambda x, k: x.repeat(k, *[1] * (x.dim() - 1)),
    "repeat last": lambda x, k: x.repeat(*[1] * (x.dim() - 1), k),
    "tile": lambda x, k: x.tile(k),
    "repeat each": lambda x, k: x.repeat_interleave(k),
    "cat": lambda x, k: torch.cat([x] * k),
    "cat with another": lambda x, k: torch.cat([x, x.flip(0), x]),
    "stack": lambda x, k: torch.stack([x] * k, -1).reshape(-1),
    "expand": lambda x, k: x.unsqueeze(0).expand(k, *x.shape).reshape(-1),
    "expand last": lambda x, k: x.unsqueeze(-1).expand(*x.shape, k).reshape(-1),
    "outer": lambda x, k: x.reshape(-1, 1) == x.reshape(1, -1),
}


@step(
    lambda r, known: _with(
        _vector if r.random() < 0.7 else _axes, name=_name(*_REPEATS), k=lambda r, _: r.choice([2, 3, 3, 4])
    )(r, known)
)
def repeats(x: torch.Tensor, name: str, k: int) -> torch.Tensor:
    return _REPEATS[name](x, k)


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


def _with_places(name: Callable[[random.Random, torch.Tensor], str]) -> Callable[..., Any]:
    """A tensor, and one of whole numbers: places as they are, if they are, or made such."""

    def draw(r: random.Random, known: Tensors) -> Any:
        k, i = _index(r, known), (_mask if r.random() < 0.3 else _axes)(r, known)
        if i is None or k is None:
            return None
        dim = _axis(r, known[i])
        least, most = (int(one) for one in known[k].long().aminmax())
        fits = least >= 0 and most < known[i].shape[dim] and r.random() < 0.9
        how = r.choice(["sign", "long", "as it is"] if fits else ["sign", "sign", "rest", "clamp", "mask"])
        return [i, k], {"name": name(r, known[i]), "dim": dim, "how": how}

    return draw


def _places(places: torch.Tensor, size: int, how: str) -> torch.Tensor:
    """An index for a dimension of that size. What makes it so is little, lest it hides what the one before has done."""
    if how == "as it is" and places.dtype not in (torch.bool, torch.uint8):  # as an index these two are masks
        return places.to(torch.int32) if places.dtype in (torch.int8, torch.int16) else places
    if how == "rest":
        return (places.long() % size).abs()
    if how == "clamp":
        return places.clamp(0, size - 1).long() if places.dtype != torch.bool else places.long() % size
    if how == "sign":  # 0 or 1, the commonest computed index
        return (places > 0).long() if size > 1 else (places > 0).long() * 0
    return torch.where(places > 1, size - 1, 0) if how == "mask" else places.long()


_READS = {
    "index": lambda x, at, dim: x.transpose(0, dim)[at],
    "index_select": lambda x, at, dim: x.index_select(dim, at.reshape(-1)),
    "take": lambda x, at, dim: x.take(at.long()),
    "embedding": lambda x, at, dim: F.embedding(at, x.transpose(0, dim).reshape(x.shape[dim], -1)),
    "gather": lambda x, at, dim: x.gather(dim, _along(at, x, dim)),
    "take_along_dim": lambda x, at, dim: x.take_along_dim(_along(at, x, dim), dim),
}


def _along(at: torch.Tensor, x: torch.Tensor, dim: int) -> torch.Tensor:
    """An index of gather and scatter."""
    at = at.long().reshape(-1).view([-1 if i == dim % x.dim() else 1 for i in range(x.dim())])
    return at.expand([-1 if i == dim % x.dim() else n for i, n in enumerate(x.shape)])


@step(_with_places(_name(*_READS)))
def read(x: torch.Tensor, places: torch.Tensor, name: str, dim: int, how: str) -> torch.Tensor:
    return _READS[name](x, _places(places, x.shape[dim], how), dim)


def _ones(x: torch.Tensor, shape: Any) -> torch.Tensor:
    return torch.ones(shape, dtype=x.dtype, device=x.device)


def _signs(x: torch.Tensor) -> torch.Tensor:
    """Of half types, whose sums are then exact: the CPU adds in float32, and devices in the dtype, as CUDA does."""
    return x.sign() if x.dtype in HALVES else x


# Where places repeat, the order must not decide: what is written over is one number.
_WRITES = {
    "index_put": lambda x, at, dim: x.index_put((at.clamp(max=x.shape[0] - 1),), _ones(x, ())),
    "index_put sums": lambda x, at, dim: x.index_put((at.clamp(max=x.shape[0] - 1),), _ones(x, ()), accumulate=True),
    "index_put_ sums": lambda x, at, dim: x.clone().index_put_(
        (at.clamp(max=x.shape[0] - 1),), _ones(x, ()), accumulate=True
    ),
    "index_add": lambda x, at, dim: x.index_add(dim, at.reshape(-1), _signs(x.index_select(dim, at.reshape(-1)))),
    "index_fill": lambda x, at, dim: x.index_fill(dim, at.reshape(-1).long(), 1),
    "scatter": lambda x, at, dim: x.scatter(dim, _along(at, x, dim), 1),
    "scatter_add": lambda x, at, dim: x.scatter_add(dim, _along(at, x, dim), _ones(x, _along(at, x, dim).shape)),
    "scatter_reduce": lambda x, at, dim: x.scatter_reduce(
        dim, _along(at, x, dim), x.gather(dim, _along(at, x, dim)).flip(0), "amax"
    ),
    "setitem": lambda x, at, dim: _set(x.clone(), at.clamp(max=x.shape[0] - 1)),
}


def _set(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    x[at] = 1
    return x


@step(_with_places(_name(*_WRITES, "index_put sums", "index_put_ sums", "index_add")))
def written(x: torch.Tensor, places: torch.Tensor, name: str, dim: int, how: str) -> torch.Tensor:
    return _WRITES[name](x, _places(places, x.shape[dim], how), dim)


@step(lambda r, known: (lambda pair: pair and (pair[0], {}))(_pair(r, known)))
def masked(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x, y = torch.broadcast_tensors(x, y)
    return x.masked_fill(y if y.dtype == torch.bool else y > 0, 1)


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


@step(_pair_with(name=_name("add", "mul", "copy", "fill"), is_copy=lambda r, _: r.random() < 0.8))
def changed(x: torch.Tensor, y: torch.Tensor, name: str, is_copy: bool) -> torch.Tensor:
    x = x.clone() if is_copy else x
    part = x[..., ::2] if x.dim() and x.shape[-1] > 1 else x
    y = y.sum().to(x.dtype)
    if name == "copy":
        part.copy_(y)
    elif name == "fill":
        part.masked_fill_(part > 1, 1)
    elif name == "add":
        part.add_(y) if x.dtype != torch.bool else part.logical_or_(y)
    else:
        part.mul_(y)
    return x * 1


SHARP = {
    *("is positive", "is none", "not", "inverse", "sign", "whole", "floor", "round", "larger", "equal", "where"),
    *("remainder", "fmod", "floors", "truncates", "and", "xor", "copysign", "isin", "buckets", "scale", "any", "all"),
    *("argmax", "argmin", "min's place", "count", "argsort", "ranks", "outer", "masked", "fill"),
}
"""Where a little decides: of what is exact alone."""
SMOOTH = {
    *("sigmoid", "tanh", "exp", "sin", "cos", "root", "rsqrt", "log1p", "erf", "gelu", "silu", "atan", "reciprocal"),
    *("softplus", "leaky", "div", "atan2", "hypot", "lerp", "pow", "mean", "var", "norm", "logsumexp", "prod"),
    *("softmax", "log softmax", "cumprod", "logcumsumexp", "centred", "scaled", "normal", "layer_norm", "bilinear"),
}
"""Never exact, whatever comes out."""
ONCE = {"add", "sub", "mul", "rsub", "double"}
"""One operation."""
WEIGHTS = {"unary": 5, "binary": 5, "folded": 3, "view": 3, "repeats": 3, "read": 6, "written": 4}
WEIGHTS |= {"rows": 2, "converted": 2, "with_number": 2}
