"""Steps that must be refused, and change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fuzz.pointwise import r
from fuzz.properties import readable

if TYPE_CHECKING:
    from fuzz.grammar import Grammar


def mistake(g: Grammar) -> None:
    """What must be refused, and change nothing."""
    x = g.pick()
    t = g.tensor(x)
    dims = t.dim()
    dtype = str(t.dtype).removeprefix("torch.")
    which = g.random.randrange(15)
    wrong: dict[str, Any] = {"mistake": True}

    def call(fn: str, args: list[Any], keywords: dict[str, Any] | None = None, writes: tuple[str, ...] = ()) -> None:
        g.call(fn, args, keywords, kind="copy", writes=writes, **wrong)

    if which == 0:
        y = g.make([*t.shape, 2, 3], dtype)
        call(g.choice(["torch.add", "torch.mul", "torch.eq"]), [r(x), r(g.make([7, 5], dtype))])
        call("Tensor.add_", [r(x), r(y)], writes=(x,))
    elif which == 1:
        size = t.shape[0] if dims else 1
        at = g.make([2], "int64", least=size, room=3)
        call("torch.index_select", [r(x), 0, r(at)])
    elif which == 2:
        size = t.shape[0] if dims else 1
        at = g.make([2], "int64", least=g.choice([size, -size - 4]), room=3)
        call("helpers.get", [r(x), {"tuple": [r(at)]}])
        call("helpers.put", [r(x), {"tuple": [r(at)]}, 1], writes=(x,))
    elif which == 3:
        at = g.make([1] * dims, "int64", least=50, room=3)
        call("torch.gather", [r(x), 0, r(at)])
        call("Tensor.scatter_", [r(x), 0, r(at), 1], writes=(x,))
    elif which == 4:
        call(g.choice(["torch.sum", "torch.amax", "torch.softmax"]), [r(x), dims + 2])
    elif which == 5:
        call("Tensor.view", [r(x), [t.numel() + 1]])
        call("Tensor.resize_", [r(x), [-1]], writes=(x,))
    elif which == 6:
        call("torch.mm", [r(x), r(g.make([9, 2], dtype))])
    elif which == 7:
        out = g.near(x, dtype=g.choice(["int8", "bool", "float32"]))
        call("torch.add", [r(x), 1.5], {"out": r(out)}, (out,))
    elif which == 8:
        call("torch.bitwise_and", [r(g.near(x, dtype="float32")), r(x)])
    elif which == 9:
        call("F.embedding", [r(g.make([2], "int64", least=90, room=3)), r(x)])
    elif which == 10:
        mask = g.make([*t.shape, 3], "bool")
        call("Tensor.masked_fill_", [r(x), r(mask), 1], writes=(x,))
    elif which == 11:
        call("torch.index_select", [r(x), 0, r(g.make([2], "float32"))])
        call("torch.gather", [r(x), 0, r(g.make([1] * dims, "int32"))])
    elif which == 12:
        call("torch.cat", [[r(x), r(g.make([*t.shape, 2], dtype))]])
    elif which == 13:
        call("Tensor.copy_", [r(x), r(g.make([9, *t.shape], dtype))], writes=(x,))
        call("Tensor.fill_", [r(x), r(g.make([2, 2], dtype))], writes=(x,))
    elif len(g.places) > 1:
        there = 1 - g.place
        others = g.names(lambda y: y.dim() > 0, there)
        if others and dims > 0:
            fn = g.choice(["torch.add", "torch.mm", "torch.cat", "torch.where"])
            y = g.choice(others)
            args: list[Any] = {
                "torch.cat": [[r(x), r(y)]],
                "torch.where": [r(x), r(y), r(x)],
            }.get(fn, [r(x), r(y)])
            if g.tensor(x).shape == g.tensor(y).shape:
                g.call(fn, args, kind="copy", cross=True, expect="devices", out=0)


def shortage(g: Grammar) -> None:
    """More memory than there is."""
    huge = 1 << 46
    which = g.random.randrange(7)
    x = g.pick(lambda x: readable(x) and x.numel() > 0)
    too_much: dict[str, Any] = {"expect": "oom", "out": 0, "kind": "copy"}
    if which == 0:
        g.call("torch.empty", [[huge]], {"device": {"where": g.place}}, **too_much)
    elif which in (1, 2):
        for _ in range(which):
            g.call("Tensor.resize_", [r(x), [huge]], writes=[x], **too_much)
    elif which == 3:
        g.call("helpers.grow_storage", [r(x), huge], writes=[x], **too_much)
    elif which == 4:
        out = g.make([2], "float32")
        g.call("helpers.add_out", [r(g.make([1], "float32")), huge, r(out)], writes=[out], **too_much)
        g.call("helpers.clone_of", [r(x), huge], **too_much)
    elif which == 5:
        g.call("Tensor.set_", [r(x), {"storage": x}, 0, [huge], [1]], writes=[x], **too_much)
    else:
        g.call("torch.zeros", [[3, huge]], {"device": {"where": g.place}}, **too_much)


def freed(g: Grammar) -> None:
    """The memory of a tensor is freed; the tensor cannot be read after that."""
    g.place = g.choice(g.places)
    y = g.make(g.shape(), g.choice(["float32", "int64", "bool", "complex64"]))
    g.call("helpers.free_storage", [r(y)], kind="copy", out=0, writes=[y], shortage=False)
    name = g.choice(["Tensor.half", "torch.neg", "Tensor.clone", "torch.sum", "Tensor.fill_", "torch.mm"])
    args: list[Any] = [r(y)] + ([2] if name == "Tensor.fill_" else [r(y)] if name == "torch.mm" else [])
    g.call(name, args, kind="copy", writes=[y] if name == "Tensor.fill_" else [], expect="freed")
    g.add({"drop": y})
