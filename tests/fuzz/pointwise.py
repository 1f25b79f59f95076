"""Steps that compute number by number, or along a dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fuzz import values

if TYPE_CHECKING:
    from fuzz.grammar import Grammar

UNARY = "neg abs sign square relu logical_not bitwise_not positive isnan isfinite isinf signbit sgn nan_to_num".split()
UNARY_STEPS = "floor ceil round trunc frac".split()
UNARY_SMOOTH = (
    "exp sin cos tanh sigmoid sqrt rsqrt log1p erf expm1 atan reciprocal log2 asinh sinc special.i0e lgamma".split()
)
BINARY = "add sub mul maximum minimum fmax fmin".split()
BITWISE = "bitwise_and bitwise_or bitwise_xor".split()
COMPARE = "eq ne lt le gt ge logical_and logical_or logical_xor copysign".split()
BINARY_STEPS = "floor_divide remainder fmod".split()
BINARY_SMOOTH = "div true_divide atan2 hypot logaddexp".split()
SUMS = "sum nansum cumsum prod cumprod".split()


def r(name: str) -> dict[str, str]:
    """A tensor, as an argument."""
    return {"r": name}


def form(g: Grammar, name: str, args: list[Any], kind: str, keywords: dict[str, Any] | None = None) -> None:
    """A function of pointwise kind: as it is, in place, or with ``out=``."""
    how = g.random.random()
    if how < 0.55:
        g.call(f"torch.{name}", args, keywords, kind=kind)
    elif how < 0.8 and hasattr(torch.Tensor, f"{name}_") and isinstance(args[0], dict):
        g.call(f"Tensor.{name}_", args, keywords, kind=kind, out=0, writes=[args[0]["r"]], shared=True)
    else:
        into(g, f"torch.{name}", args, kind, keywords)


def into(g: Grammar, function: str, args: list[Any], kind: str, keywords: dict[str, Any] | None = None) -> None:
    """A function with ``out=``: of the right size, of size 0, or any tensor."""

    keywords = keywords or {}
    try:
        wanted = values.function(function)(
            *values.decode(args, g.reference.registers, {0: "cpu", 1: "cpu"}),
            **values.decode_all(keywords, g.reference.registers),
        )
    except Exception:
        return
    if not isinstance(wanted, torch.Tensor):
        return
    dtype = str(wanted.dtype).removeprefix("torch.")
    how = g.random.random()
    same = [
        name
        for name in g.names(lambda x: x.dtype is wanted.dtype, g.place)
        if all(g.reference.group(name) is not g.reference.group(other) for other in values.tensors(args))
    ]
    if how < 0.35:
        out = g.make([0], dtype)
    elif how < 0.6 or not same:
        out = g.make(list(wanted.shape), dtype)
    else:
        out = g.choice(same)
    if out in values.tensors(args):
        return
    g.call(function, args, {**keywords, "out": r(out)}, kind=kind, out=0, writes=[out])


def unary(g: Grammar) -> None:
    """One tensor."""
    which = g.random.random()
    if which < 0.5:
        form(g, g.choice(UNARY), [r(g.pick())], "sharp")
    elif which < 0.65:
        form(g, g.choice(UNARY_STEPS), [r(g.pick())], "sharp")
    else:
        form(g, g.choice(UNARY_SMOOTH), [r(g.floats())], "smooth")


def binary(g: Grammar) -> None:
    """Two tensors, or a tensor and a number."""
    x = g.pick()
    if g.chance(0.3):
        y: Any = g.choice([2, -1, 3, 0, 1, True, 2.0, 0.5])
    elif g.chance(0.3):
        shape = [size if g.chance(0.6) else 1 for size in g.tensor(x).shape]
        y = r(g.near(x, shape[g.random.randrange(len(shape) + 1) :]))
    else:
        y = r(g.near(x))
    which = g.random.random()
    if which < 0.4:
        name = g.choice(BINARY)
        alpha = name in ("add", "sub") and g.chance(0.3)
        form(g, name, [r(x), y], "exact", {"alpha": g.choice([2, -1, 3])} if alpha else None)
    elif which < 0.55:
        form(g, g.choice(COMPARE), [r(x), y], "sharp")
    elif which < 0.65:
        form(g, g.choice(BITWISE), [r(x), y], "exact")
    elif which < 0.75:
        form(g, g.choice(BINARY_STEPS), [r(x), y], "sharp")
    elif which < 0.9:
        form(g, g.choice(BINARY_SMOOTH), [r(x), y], "smooth")
    elif isinstance(y, dict):
        mask = g.near(x, dtype="bool")
        g.call("torch.where", [r(mask), r(x), y], kind="exact")
    else:
        form(g, "clamp", [r(x)], "exact", {"min": -1, "max": g.choice([1, 2, 3])})


def bool_bytes(g: Grammar) -> None:
    """Booleans whose bytes are not 0 and 1 alone."""
    x = g.pick(lambda x: not x.is_complex(), ["uint8"])
    found = g.call("helpers.bool_of_bytes", [r(x)], kind="cast")
    if not found:
        return
    b = found[0]
    which = g.random.randrange(5)
    if which == 0:
        form(g, g.choice([*COMPARE, *BITWISE]), [r(b), g.choice([True, r(g.near(b, dtype="bool"))])], "sharp")
    elif which == 1:
        form(g, g.choice(["bitwise_not", "logical_not"]), [r(b)], "sharp")
    elif which == 2:
        form(g, g.choice(["mul", "add", "div"]), [r(b), g.choice([3, 2.0])], "smooth")
    elif which == 3:
        g.call(g.choice(["torch.sum", "torch.any", "torch.all", "torch.count_nonzero", "torch.cumsum"]), [r(b), 0])
    else:
        g.call("helpers.truths", [r(b)], out=4)


def reduce(g: Grammar) -> None:
    """Along a dimension, or all."""
    x = g.pick()
    dims = g.tensor(x).dim()
    dim = g.random.randrange(-dims, dims) if dims else 0
    keep = {"keepdim": True} if g.chance(0.3) else {}
    which = g.random.random()
    if which < 0.3:
        name = g.choice(SUMS)
        args: list[Any] = [r(x), dim] if name.startswith("cum") or g.chance(0.7) else [r(x)]
        keep = {} if name.startswith("cum") or len(args) == 1 else keep
        if g.chance(0.2):
            keep = {**keep, "dtype": {"dtype": g.choice(["float32", "int64", "float64"])}}
        kind = "cast" if "dtype" in keep else "sum"
        if name.startswith("cum") and g.chance(0.3):
            into(g, f"torch.{name}", args, kind, keep)
        else:
            g.call(f"torch.{name}", args, keep, kind=kind)
    elif which < 0.5:
        name = g.choice(["amax", "amin", "any", "all", "argmax", "argmin", "count_nonzero"])
        g.call(f"torch.{name}", [r(x), dim], {} if name == "count_nonzero" else keep, kind="sharp")
    elif which < 0.65:
        name = g.choice(["mean", "std", "var", "logsumexp", "softmax", "log_softmax", "norm", "median"])
        if name in ("softmax", "log_softmax", "logsumexp"):
            g.call(f"torch.{name}", [r(x), dim], kind="smooth")
        elif name == "median":
            g.call("torch.median", [r(x)], kind="sharp")
        else:
            g.call(f"torch.{name}", [r(x)], {"dim": dim, **keep}, kind="smooth")
    elif which < 0.85:
        name = g.choice(["sort", "max", "min", "cummax", "cummin", "topk", "aminmax"])
        if name == "sort":
            g.call("torch.sort", [r(x)], {"dim": dim, "stable": True, "descending": g.chance(0.5)}, kind="sharp", out=2)
        elif name == "topk":
            found = g.call("torch.topk", [r(x), 1, dim], kind="sharp", out=2)
            if len(found) == 2:
                g.add({"drop": found[1]})  # among equals, any
        elif name == "aminmax":
            g.call("torch.aminmax", [r(x)], {"dim": dim}, kind="sharp", out=2)
        else:
            g.call(f"torch.{name}", [r(x), dim], kind="sharp", out=2)
    else:
        name = g.choice(
            ["nonzero", "unique", "bincount", "argsort", "Tensor.item", "Tensor.tolist", "equal", "flatnonzero"]
        )
        if name == "nonzero":
            g.call("torch.nonzero", [r(x)], kind="sharp")
        elif name == "unique":
            g.call("torch.unique", [r(x)], {"return_counts": True}, kind="sharp", out=2)
        elif name == "argsort":
            g.call("torch.argsort", [r(x)], {"dim": dim, "stable": True}, kind="sharp")
        elif name == "equal":
            g.call("torch.equal", [r(x), r(g.near(x))], kind="sharp", out=0)
        elif name == "flatnonzero":
            g.call("torch.Tensor.nonzero", [r(x)], {"as_tuple": True}, kind="sharp", out=max(dims, 1))
        elif name == "bincount":
            g.call("torch.bincount", [r(g.indices([6], 4))], kind="sharp")
        else:
            g.call(name, [r(x)], kind="exact", out=0)
