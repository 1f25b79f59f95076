"""Steps that make tensors, see them otherwise, put them together or take them apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fuzz.pointwise import form, into, r

if TYPE_CHECKING:
    from fuzz.grammar import Grammar


def make(g: Grammar) -> None:
    """A new tensor, by one of many ways."""
    g.place = g.choice(g.places)
    how = g.random.randrange(8)
    dtype, where = {"dtype": g.dtype()}, {"where": g.place}
    if how < 4:
        g.make(g.shape(), g.dtype())
    elif how == 4:
        fn = g.choice(["torch.zeros", "torch.ones"])
        g.call(fn, [g.shape()], {"dtype": dtype, "device": where})
    elif how == 5:
        g.call("torch.full", [g.shape(), g.choice([0, 1, 2, 3])], {"dtype": dtype, "device": where})
    elif how == 6:
        g.call("torch.arange", [g.random.randrange(9)], {"device": where})
        g.call("torch.eye", [g.random.randrange(1, 5)], {"device": where})
    else:
        x = g.pick()
        fn = g.choice(["torch.zeros_like", "torch.ones_like", "Tensor.clone", "torch.empty_like"])
        (y,) = g.call(fn, [r(x)], kind="copy") or [None]
        if y and fn == "torch.empty_like":  # before it is read
            g.steps[-1]["fn"] = "torch.zeros_like"
            g.reference.registers[y].zero_()


def view(g: Grammar) -> None:
    """The same memory, seen otherwise."""
    x = g.pick()
    t = g.tensor(x)
    dims = t.dim()
    dim = g.random.randrange(-dims, dims) if dims else 0
    size = t.shape[dim] if dims else 1
    start = g.random.randrange(size + 1)
    order = list(range(dims))
    g.random.shuffle(order)
    views: list[tuple[str, list[Any], dict[str, Any], int]] = [
        ("Tensor.permute", [order], {}, 1),
        ("Tensor.t", [], {}, 1),
        ("torch.transpose", [0, dim], {}, 1),
        ("torch.narrow", [dim, start, g.random.randrange(size - start + 1)], {}, 1),
        ("torch.select", [dim, g.random.randrange(size) if size else 0], {}, 1),
        ("helpers.get", [{"slice": [g.choice([None, 0, 1]), None, g.choice([1, 2, 3])]}], {}, 1),
        ("helpers.get", [{"tuple": [{"slice": [1, None, None]}, g.choice([0, None])]}], {}, 1),
        ("Tensor.unsqueeze", [g.random.randrange(dims + 1)], {}, 1),
        ("Tensor.squeeze", [], {}, 1),
        ("Tensor.view", [[-1]], {}, 1),
        ("Tensor.reshape", [[-1, size] if size else [-1]], {}, 1),
        ("Tensor.flatten", [], {}, 1),
        ("Tensor.expand", [[2, *t.shape]], {}, 1),
        ("Tensor.expand", [[g.choice([3, 4]) if s == 1 else s for s in t.shape]], {}, 1),
        ("torch.diagonal", [], {}, 1),
        ("Tensor.unfold", [dim, min(2, size), 1], {}, 1),
        ("torch.chunk", [2, dim], {}, 2),
        ("torch.unbind", [dim], {}, 3),
        ("torch.split", [2, dim], {}, 2),
        ("Tensor.detach", [], {}, 1),
        ("Tensor.contiguous", [], {}, 1),
        ("Tensor.contiguous", [], {"memory_format": {"format": "channels_last"}}, 1),
        ("torch.movedim", [0, dim], {}, 1),
        ("aten.alias", [], {}, 1),
        ("Tensor.view_as", [r(x)], {}, 1),
    ]
    if t.untyped_storage().nbytes() == t.numel() * t.itemsize:  # a result may keep more on the CPU
        views.append(("torch.as_strided", [[2, 2], [1, 1], g.choice([0, 1])], {}, 1))
    if t.dtype in (torch.int16, torch.int32, torch.int64):  # bits of no NaN and of no bool are seen
        views += [("Tensor.view", [{"dtype": g.choice(["int16", "int32", "int64"])}], {}, 1)] * 2
    fn, args, keywords, out = g.choice(views)
    kind = "sharp" if args and isinstance(args[0], dict) and "dtype" in args[0] else "copy"
    g.call(fn, [r(x), *args], keywords, kind=kind, out=out)


def shapes(g: Grammar) -> None:
    """Several tensors put together, or one put in another order."""
    x = g.pick()
    t = g.tensor(x)
    dims = t.dim()
    dim = g.random.randrange(dims) if dims else 0
    which = g.random.randrange(12)
    if which < 3:
        y, z = g.near(x), g.near(x)
        fn = g.choice(["torch.cat", "torch.stack"])
        if g.chance(0.3):
            into(g, fn, [[r(x), r(y)], dim], "copy")
        else:
            g.call(fn, [[r(x), r(y), r(z)], dim], kind="copy")
    elif which == 3:
        g.call("torch.flip", [r(x), [dim]], kind="copy")
    elif which == 4:
        g.call("torch.roll", [r(x), g.choice([1, -2]), dim], kind="copy")
    elif which == 5:
        g.call("Tensor.repeat", [r(x), [2] * (dims + g.random.randrange(2))], kind="copy")
    elif which == 6:
        name = g.choice(["tril", "triu"])
        form(g, name, [r(x)], "copy", {"diagonal": g.choice([0, 1, -1])})
    elif which == 7:
        g.call("torch.repeat_interleave", [r(x), 2], {"dim": dim}, kind="copy")
    elif which == 8:
        g.call("F.pad", [r(x), [1, 2]], {"value": g.choice([0, 1])}, kind="copy")
    elif which == 9:
        g.call("torch.diag_embed", [r(x)], kind="copy")
    elif which == 10:
        g.call("torch.block_diag", [r(x), r(g.near(x))], kind="copy")
    else:
        g.call("torch.meshgrid", [[r(g.near(x, [2])), r(g.near(x, [3]))]], {"indexing": "ij"}, kind="copy", out=2)


def index(g: Grammar) -> None:
    """Reading and writing by indices and masks."""
    x = g.pick()
    t = g.tensor(x)
    dims = t.dim()
    dim = g.random.randrange(dims) if dims else 0
    size = t.shape[dim] if dims else 1
    dtype = str(t.dtype).removeprefix("torch.")
    count = g.choice([1, 2, 3])
    which = g.random.randrange(14)
    rows = [count if i == dim else s for i, s in enumerate(t.shape)]
    wide = g.choice(["int64", "int64", "int32"])
    if which == 0:
        g.call("torch.index_select", [r(x), dim, r(g.indices([count], size, wide))], kind="copy")
    elif which == 1:
        into(g, "torch.index_select", [r(x), dim, r(g.indices([count], size))], "copy")
    elif which == 2:
        form(g, "gather", [r(x), dim, r(g.indices(rows, size))], "copy")
    elif which == 3:
        name = g.choice(["scatter_", "scatter_add_"])
        if name == "scatter_":  # among equal indices any may win
            g.call("Tensor.scatter_", [r(x), dim, r(g.indices(rows, size)), 3], kind="copy", out=0, writes=[x])
        else:
            args = [r(x), dim, r(g.indices(rows, size)), r(g.make(rows, dtype))]
            g.call("Tensor.scatter_add_", args, kind="sum", out=0, writes=[x])
    elif which == 4:
        args = [r(x), dim, r(g.indices([count], size)), r(g.make(rows, dtype))]
        g.call(*((f"{g.choice(['torch.index_add'])}", args)), kind="sum")
        g.call("Tensor.index_add_", args, kind="sum", out=0, writes=[x])
    elif which == 5:
        g.call("Tensor.index_fill_", [r(x), dim, r(g.indices([count], size)), 2], kind="copy", out=0, writes=[x])
    elif which == 6:
        mask = g.near(x, dtype="bool")
        g.call(*g.choice([("torch.masked_select", [r(x), r(mask)]), ("helpers.get", [r(x), r(mask)])]), kind="copy")
    elif which in (7, 8):
        mask = g.near(x, dtype="bool")
        value = g.choice([2, r(g.make([], dtype))])
        if which == 7:
            g.call("Tensor.masked_fill_", [r(x), r(mask), value], kind="copy", out=0, writes=[x])
        else:
            g.call("helpers.put", [r(x), r(mask), value], kind="copy", out=0, writes=[x])
    elif which == 9:
        at = g.indices([count], size, wide)
        g.call("helpers.get", [r(x), {"tuple": [*[{"slice": [None, None, None]}] * dim, r(at)]}], kind="copy")
    elif which == 10:
        at = g.make([1], "int64", room=max(size, 1))
        where = {"tuple": [*[{"slice": [None, None, None]}] * dim, r(at)]}
        g.call("helpers.put", [r(x), where, 4], kind="copy", out=0, writes=[x])
    elif which == 11:
        at = g.indices([count], t.shape[0] if dims else 1)
        fill = g.make([count, *t.shape[1:]], dtype) if dims else g.make([count], dtype)
        args = [r(x), {"tuple": [r(at)]}, r(fill), True]
        g.call("torch.index_put", [args[0], [r(at)], *args[2:]], kind="sum")
        g.call("Tensor.index_put_", [args[0], [r(at)], *args[2:]], kind="sum", out=0, writes=[x])
    elif which == 12:
        g.call("torch.take", [r(x), r(g.indices([count, 2], max(t.numel(), 1)))], kind="copy")
    else:
        g.call("F.embedding", [r(g.indices([count, 2], size)), r(x)], kind="copy")


def cast(g: Grammar) -> None:
    """To another dtype."""
    x = g.pick()
    dtype = g.dtype()
    if g.chance(0.5):
        g.call("Tensor.to", [r(x), {"dtype": dtype}], kind="cast")
    else:
        y = g.near(x, dtype=dtype)
        g.call("Tensor.copy_", [r(y), r(x)], {"non_blocking": g.chance(0.3)}, kind="cast", out=0, writes=[y])
