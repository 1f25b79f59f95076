"""Steps of linear algebra, of networks, of gradients and of random numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fuzz.pointwise import form, r
from fuzz.properties import readable

if TYPE_CHECKING:
    from fuzz.grammar import Grammar

ACTIVATIONS = "gelu silu softplus elu leaky_relu hardtanh hardswish relu6 logsigmoid".split()


def matrix(g: Grammar) -> None:
    """Products."""
    k = g.choice([1, 2, 3, 5])
    n, m = g.choice([1, 2, 4]), g.choice([1, 3, 4])
    dtype = g.choice(["float32", "float32", "float64", "int64", "complex64", "bfloat16", "float16"])
    a = g.pick(lambda x: x.dim() == 2, [dtype])
    t = g.tensor(a)
    if t.dim() != 2:
        return
    k, dtype = t.shape[1], str(t.dtype).removeprefix("torch.")
    which = g.random.randrange(9)
    if which == 0:
        b = g.near(a, [k, m], dtype)
        form(g, "mm", [r(a), r(b)], "sum") if g.chance(0.5) else g.call("torch.matmul", [r(a), r(b)], kind="sum")
    elif which == 1:
        form(g, "mv", [r(a), r(g.near(a, [k], dtype))], "sum")
    elif which == 2:
        b = g.near(a, [k, m], dtype)
        c = g.near(a, [m], dtype)
        g.call("torch.addmm", [r(c), r(a), r(b)], {"beta": g.choice([1, 0, 2]), "alpha": g.choice([1, 2])}, kind="sum")
    elif which == 3:
        b = g.near(a, [n, k], dtype)
        args = [r(a), r(b)] if g.chance(0.5) else [r(a), r(b), r(g.near(a, [n], dtype))]
        g.call("F.linear", args, kind="sum")
    elif which == 4:
        v = g.near(a, [k], dtype)
        g.call(g.choice(["torch.dot", "torch.vdot", "torch.inner"]), [r(v), r(g.near(v, [k], dtype))], kind="sum")
    elif which == 5:
        b = g.make([2, n, k], dtype)
        g.call("torch.bmm", [r(b), r(g.make([2, k, m], dtype))], kind="sum")
    elif which == 6:
        g.call("torch.outer", [r(g.near(a, [k], dtype)), r(g.near(a, [n], dtype))], kind="exact")
    elif which == 7:
        g.call("torch.einsum", ["ij,kj->ik", r(a), r(g.near(a, [n, k], dtype))], kind="sum")
    else:
        c = g.near(a, [t.shape[0], m], dtype)
        g.call("Tensor.addmm_", [r(c), r(a), r(g.make([k, m], dtype))], kind="sum", writes=[c], out=0)


def network(g: Grammar) -> None:
    """Layers."""
    x = g.floats(lambda x: x.dim() >= 2 and x.numel() > 0)
    t = g.tensor(x)
    if t.dim() < 2:
        return
    dtype, last = str(t.dtype).removeprefix("torch."), t.shape[-1]
    which = g.random.randrange(10)
    if which == 0:
        g.call("F.layer_norm", [r(x), [last], r(g.near(x, [last], dtype)), r(g.near(x, [last], dtype))], kind="smooth")
    elif which == 1:
        name = g.choice(
            ["gelu", "silu", "softplus", "elu", "leaky_relu", "hardtanh", "hardswish", "relu6", "logsigmoid"]
        )
        g.call(f"F.{name}", [r(x)], kind="smooth")
    elif which == 2:
        image = g.make([1, 2, 5, 5], dtype)  # contiguous: another order of the result is what torch's fakes plan
        weight = g.make([3, 2, 3, 3], dtype)
        g.call("F.conv2d", [r(image), r(weight)], {"padding": g.choice([0, 1])}, kind="smooth")
        g.call(g.choice(["F.max_pool2d", "F.avg_pool2d"]), [r(image), 2], kind="smooth")
    elif which == 3:
        g.call("F.conv1d", [r(g.make([2, 2, 6], dtype)), r(g.make([2, 2, 3], dtype))], kind="smooth")
    elif which == 4:
        q, k, v = (g.make([1, 2, 4, 8], dtype) for _ in range(3))
        g.call("F.scaled_dot_product_attention", [r(q), r(k), r(v)], {"is_causal": g.chance(0.5)}, kind="smooth")
    elif which == 5:
        logits = g.make([4, 3], dtype)
        g.call("F.cross_entropy", [r(logits), r(g.indices([4], 3))], kind="smooth")
    elif which == 6:
        g.call(
            g.choice(["F.mse_loss", "F.smooth_l1_loss", "F.l1_loss"]), [r(x), r(g.near(x, dtype=dtype))], kind="smooth"
        )
    elif which == 7:
        y, mean = g.make([3, 4], dtype), g.make([4], dtype)
        ones = g.call("torch.ones", [[4]], {"dtype": {"dtype": dtype}, "device": {"where": g.place}}, shortage=False)
        g.call("F.batch_norm", [r(y), r(mean), r(ones[0])], kind="smooth")
    elif which == 8:
        g.call("torch._foreach_add", [[r(x), r(g.near(x, dtype=dtype))], 2], kind="exact", out=2)
        g.call("torch._foreach_mul_", [[r(x)], 2], kind="exact", out=0, writes=[x])
    else:
        g.call("F.one_hot", [r(g.indices([3], 4)), 4], kind="copy")


def gradient(g: Grammar) -> None:
    """Derivatives, backwards and forwards."""
    small = [[3], [2, 3], [4, 1]]
    x = g.pick(lambda x: list(x.shape) in small and x.is_floating_point(), ["float32", "float64", "bfloat16"])
    t = g.tensor(x)
    if not t.is_floating_point() or list(t.shape) not in small:
        x = g.make([2, 3], "float32")
        t = g.tensor(x)
    dtype = str(t.dtype).removeprefix("torch.")
    if g.chance(0.3) and g.thread is None:  # of the levels of forward mode torch has one stack for all threads
        fn = g.choice(["torch.dot", "torch.inner", "torch.vdot", "torch.mul", "torch.add", "torch.atan2"])
        if t.dim() != 1 and fn in ("torch.dot", "torch.vdot"):
            x = g.make([3], dtype)
        other = g.near(x, dtype=dtype)
        if g.chance(0.3):
            x, other = other, x
        g.call("helpers.forward_mode", [{"fn": fn}, r(x), r(g.near(x, dtype=dtype)), r(other)], kind="smooth", out=2)
        return
    which = g.random.randrange(8)
    y = g.near(x, dtype=dtype)
    table: list[tuple[str, list[str], list[Any], dict[str, Any]]] = [
        ("torch.mul", [x, y], [], {}),
        ("torch.add", [x, y], [], {}),
        ("torch.sum", [x], [0], {}),
        ("torch.index_select", [x], [0, r(g.indices([3], t.shape[0]))], {}),
        ("torch.gather", [x], [0, r(g.indices(list(t.shape), t.shape[0]))], {}),
        ("torch.softmax", [x], [-1], {}),
        ("torch.cat", [x], [], {}),
        ("torch.exp", [x], [], {}),
    ]
    fn, wanted, others, options = table[which]
    if fn == "torch.cat":
        fn, others = "torch.atleast_2d", []
    args = [{"fn": fn}, [r(name) for name in wanted], others, options]
    g.call("helpers.gradients", args, kind="smooth", out=len(wanted))


def chance(g: Grammar) -> None:
    """Random numbers from which no random result comes."""
    if g.chance(0.5):
        x = g.pick(lambda x: x.is_floating_point() and readable(x), ["float32", "float64"])
        names = "bernoulli_ bernoulli_0 uniform_ normal_ random_ geometric_ exponential_ cauchy_ log_normal_".split()
        g.call("helpers.certain", [r(x), g.choice(names)], kind="copy", out=0, writes=[x])
    else:
        g.place = g.choice(g.places)
        how = g.choice("randperm randint rand randn dropout dropout1 multinomial generator".split())
        g.call("helpers.drawn", [how, g.shape(), {"where": g.place}], kind="copy")
