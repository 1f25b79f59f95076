"""Steps about memory: copies, lazy bits, other sizes, copies on write, overlaps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuzz.pointwise import form, r
from fuzz.properties import readable

if TYPE_CHECKING:
    from fuzz.grammar import Grammar


def copy(g: Grammar) -> None:
    """Between devices, the host and pinned memory, with other dtypes and strides, waited for or not."""
    g.place = g.choice(g.places)
    non_blocking = {"non_blocking": True} if g.chance(0.7) else {}
    which = g.random.randrange(7)
    if which == 0 or not g.names(place="host"):
        g.make(g.shape(), g.dtype(), where=g.choice(["pinned", "pinned", "host"]))
    elif which == 1:  # to the device
        h = g.choice(g.names(place="host"))
        g.call("helpers.move", [r(h), {"where": g.place}], non_blocking, kind="copy", cross=True)
    elif which == 2:  # from it
        x = g.pick()
        g.call("helpers.move", [r(x), {"where": "host"}], non_blocking, kind="copy", cross=True, result="host")
    elif which in (3, 4):
        h = g.choice(g.names(place="host"))
        t = g.tensor(h)
        x = g.near(h, t.shape, None if g.chance(0.6) else g.dtype())
        a, b = (x, h) if which == 3 else (h, x)
        if g.chance(0.3) and t.dim() >= 2:
            moved = g.call("torch.transpose", [r(a), 0, 1], kind="copy", on=g.reference.places[a], shortage=False)
            back = g.call("torch.transpose", [r(b), 0, 1], kind="copy", on=g.reference.places[b], shortage=False)
            if moved and back:
                a, b = moved[0], back[0]
        to = g.reference.places[a]
        g.call("Tensor.copy_", [r(a), r(b)], non_blocking, kind="cast", out=0, writes=[a], cross=True, result=to)
    elif which == 5:  # on the host itself
        h = g.choice(g.names(place="host"))
        name = g.choice(["Tensor.mul_", "Tensor.add_", "Tensor.fill_"])
        g.call(name, [r(h), 2], kind="exact", out=0, writes=[h], on="host")
    else:
        x = g.pick()
        there = g.choice(g.places)
        g.place, here = there, g.place
        if g.chance(0.5):
            g.call("helpers.move", [r(x), {"where": there}], non_blocking, kind="copy", cross=True)
        else:
            y = g.near(x, g.tensor(x).shape)
            g.call("Tensor.copy_", [r(y), r(x)], non_blocking, kind="cast", out=0, writes=[y], cross=True)
        g.place = here


def lazy(g: Grammar) -> None:
    """Conjugates and negatives that are not computed yet, and zeros without memory."""
    which = g.random.random()
    if which < 0.3:
        g.place = g.choice(g.places)
        dtype = g.choice(["float32", "float32", "complex64", "float64"])
        found = g.call("helpers.zeros_without_memory", [g.shape(2), {"dtype": dtype}, {"where": g.place}], kind="copy")
        if found and g.chance(0.7):
            z = found[0]
            shape = list(g.tensor(z).shape)
            other = g.near(z, shape, dtype)
            name = g.choice(["dot", "vdot", "inner", "mul", "add", "matmul", "mm", "mv", "linalg.vecdot", "sum", "neg"])
            args = [r(z)] if name in ("sum", "neg") else [r(z), r(other)] if g.chance(0.5) else [r(other), r(z)]
            g.call(f"torch.{name}", args, kind="sum")
        return
    x = g.pick(lambda x: x.is_complex(), ["complex64", "complex64", "complex128"])
    if which < 0.7:
        names = ["Tensor.conj", "torch.imag", "torch.real", "torch._neg_view", "torch.view_as_real", "Tensor.mH"]
        names += ["torch.resolve_conj", "torch.resolve_neg", "torch.conj_physical"]
        fn = g.choice(names)
        if fn == "Tensor.mH":
            g.call("Tensor.adjoint", [r(x)], kind="copy")
        else:
            g.call(fn, [r(x)], kind="copy")
        return
    bits = g.names(lambda x: x.is_conj() or x.is_neg())
    if not bits:
        return
    x = g.choice(bits)
    g.place = g.reference.places[x]
    name = g.choice(["mul", "add", "copy", "sum", "clone", "matmul", "fill", "out", "to", "index", "cat", "view"])
    if name in ("mul", "add"):
        form(g, name, [r(x), r(g.near(x))], "exact")
    elif name == "copy":
        a, b = (x, g.near(x)) if g.chance(0.5) else (g.near(x), x)
        g.call("Tensor.copy_", [r(a), r(b)], {"non_blocking": g.chance(0.5)}, kind="cast", out=0, writes=[a])
    elif name == "sum":
        g.call("torch.sum", [r(x)], kind="sum")
    elif name == "clone":
        g.call("Tensor.clone", [r(x)], kind="copy")
    elif name == "matmul":
        g.call("torch.matmul", [r(x), r(x)], kind="sum")
    elif name == "fill":
        g.call("Tensor.fill_", [r(x), 2], kind="copy", out=0, writes=[x])
    elif name == "out":
        y = g.near(x)
        g.call("torch.mul", [r(y), 2], {"out": r(x)}, kind="exact", out=0, writes=[x])
    elif name == "index":
        g.call("torch.index_select", [r(x), 0, r(g.indices([2], 1))], kind="copy")
    elif name == "cat":
        g.call("torch.cat", [[r(x), r(g.near(x))]], kind="copy")
    elif name == "view":
        g.call("Tensor.reshape", [r(x), [-1]], kind="copy")
    else:
        g.call("Tensor.to", [r(x), {"dtype": "complex128"}], kind="cast")


def overlap(g: Grammar) -> None:
    """Writing where tensors share memory, or elements do."""
    x = g.pick(lambda x: x.dim() >= 1 and x.numel() >= 2)
    t = g.tensor(x)
    which = g.random.randrange(4)
    if which == 0 and t.dim() >= 1:
        n = t.shape[0]
        a = g.call("torch.narrow", [r(x), 0, 0, max(n - 1, 0)], kind="copy")
        b = g.call("torch.narrow", [r(x), 0, min(1, n), max(n - 1, 0)], kind="copy")
        if a and b:
            g.call("Tensor.copy_", [r(a[0]), r(b[0])], kind="copy", out=0, writes=[a[0]], mistake=True, shared=True)
    elif which == 1:
        a = g.call("Tensor.expand", [r(g.near(x, [1])), [3]], kind="copy")
        if a:
            name, args = g.choice(
                [("fill_", [2]), ("zero_", []), ("add_", [1]), ("copy_", [r(g.near(x, [3]))]), ("neg_", [])]
            )
            g.call(f"Tensor.{name}", [r(a[0]), *args], kind="exact", out=0, writes=[a[0]], mistake=True, shared=True)
    elif which == 2:
        a = g.call("torch.select", [r(x), 0, 0], kind="copy")
        if a:
            g.call("Tensor.add_", [r(x), r(a[0])], kind="exact", out=0, writes=[x], mistake=True, shared=True)
    else:
        a = g.call("Tensor.t", [r(x)], kind="copy")
        if a:
            g.call("Tensor.copy_", [r(x), r(a[0])], kind="copy", out=0, writes=[x], mistake=True, shared=True)


def resize(g: Grammar) -> None:
    """Other sizes, other memory."""
    x = g.pick()
    t = g.tensor(x)
    which = g.random.randrange(8)
    if which < 3:
        smaller = t.numel()
        shape = g.choice([[smaller], [max(smaller - 1, 0)], [smaller, 1], [0]])
        g.call("Tensor.resize_", [r(x), shape], kind="copy", writes=[x], out=0)
    elif which == 3:
        if readable(t):
            g.call("helpers.resize_and_fill", [r(x), g.shape()], kind="copy", writes=[x], out=0)
    elif which == 4:
        y = g.near(x, g.shape(), str(t.dtype).removeprefix("torch."))
        g.call("Tensor.set_", [r(x), r(y)], kind="copy", out=0, writes=[x, y])
    elif which == 5:
        y = g.near(x, g.shape(), str(t.dtype).removeprefix("torch."))
        n = g.tensor(y).numel()
        g.call("Tensor.set_", [r(x), {"storage": y}, 0, [n], [1]], kind="copy", out=0, writes=[x, y])
    elif which == 6:
        y = g.near(x, g.shape(), str(t.dtype).removeprefix("torch."))
        g.call("helpers.set_data", [r(x), r(y)], kind="copy", out=0, writes=[x, y])
    else:
        g.call("helpers.grow_storage", [r(x), g.choice([1, 100])], kind="copy", out=0, writes=[x])


def clones(g: Grammar) -> None:
    """Copies on write, and writing to one side of them."""
    x = g.pick(lambda x: readable(x) and x.numel() > 0)
    found = g.call("torch._lazy_clone", [r(x)], kind="copy")
    if not found:
        return
    c = found[0] if g.chance(0.6) else x
    t = g.tensor(c)
    dtype = str(t.dtype).removeprefix("torch.")
    which = g.random.randrange(9)
    if which == 0:
        g.call("Tensor.masked_fill_", [r(c), r(g.near(c, dtype="bool")), 5], kind="copy", out=0, writes=[c])
    elif which == 1:
        index = g.indices([1], t.shape[0] if t.dim() else 1)
        g.call("Tensor.index_fill_", [r(c), 0, r(index), 2], kind="copy", out=0, writes=[c])
    elif which == 2:
        g.call(
            f"Tensor.{g.choice(['add_', 'mul_', 'fill_', 'div_', 'sub_'])}", [r(c), 2], kind="smooth", out=0, writes=[c]
        )
    elif which == 3:
        g.call("torch.cumsum", [r(g.near(c, dtype=dtype)), 0], {"out": r(c)}, kind="sum", out=0, writes=[c])
    elif which == 4:
        how = g.choice(["exponential_", "cauchy_", "log_normal_", "geometric_", "random_", "normal_", "uniform_"])
        g.call("helpers.certain", [r(c), how], kind="copy", out=0, writes=[c])
    elif which == 5:
        index = g.indices([1], t.shape[0] if t.dim() else 1)
        g.call("Tensor.index_put_", [r(c), [r(index)], r(g.make([], dtype))], kind="copy", out=0, writes=[c])
    elif which == 6:
        g.call("Tensor.copy_", [r(c), r(g.near(c))], kind="cast", out=0, writes=[c])
    elif which == 7:
        g.call("Tensor.neg_", [r(c)], kind="exact", out=0, writes=[c])
    else:
        v = g.call("Tensor.view", [r(c), [-1]], kind="copy")
        if v:
            g.call("Tensor.zero_", [r(v[0])], kind="copy", out=0, writes=[v[0]])
