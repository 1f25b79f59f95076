"""Operators of lists of tensors, and the optimizers that call them, against the CPU."""

import pytest
import torch

from portable.compare import FLOATS, each, on
from torch_backplane import fallback

HALVES = (torch.bfloat16, torch.float16)
SHAPES = [(3, 5), (1,), (), (2049,), (0,), (4, 6), (2, 2, 2)] + [(7,)] * 30


def lists(count, dtype=torch.float32, shapes=SHAPES):
    generator = torch.Generator().manual_seed(count)
    return [[(torch.rand(shape, generator=generator) * 3 + 0.25).to(dtype) for shape in shapes] for _ in range(count)]


def compare(got, expected):
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a.cpu(), b)


LINES = {
    "add.List": (2, {"alpha": 2}),
    "add.Scalar": (1, {}, 0.5),
    "add.ScalarList": (1, {}, [0.1 * k for k in range(len(SHAPES))]),
    "add.Tensor": (1, {}, torch.tensor(1.5)),
    "sub.List": (2, {"alpha": 2}),
    "mul.List": (2, {}),
    "mul.Scalar": (1, {}, 0.5),
    "mul.Tensor": (1, {}, torch.tensor(1.5)),
    "mul.ScalarList": (1, {}, [0.1 * k for k in range(len(SHAPES))]),
    "div.List": (2, {}),
    "div.Scalar": (1, {}, 3),
    "div.ScalarList": (1, {}, [0.1 * k + 1 for k in range(len(SHAPES))]),
    "maximum.List": (2, {}),
    "clamp_max.Scalar": (1, {}, 1.0),
    "addcmul.Scalar": (3, {}, 0.5),
    "addcdiv.Scalar": (3, {}, -0.5),
    "addcdiv.ScalarList": (3, {}, [0.1 * k for k in range(len(SHAPES))]),
    "addcdiv.Tensor": (3, {}, torch.arange(len(SHAPES)) * 0.1),
    "lerp.List": (3, {}),
    "lerp.Scalar": (2, {}, 0.3),
    "sqrt": (1, {}),
    "neg": (1, {}),
    "reciprocal": (1, {}),
    "zero": (1, {}),
    "copy": (2, {}),
}


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("dtype", each(FLOATS))
def test_both_forms(device, ran, name, dtype):
    base, _, overload = name.partition(".")
    count, keywords, *more = LINES[name]
    more = [x.to(dtype) if isinstance(x, torch.Tensor) and x.dim() == 0 else x for x in more]
    inputs = lists(count, dtype)
    place = [on(device, x) if not (isinstance(x, torch.Tensor) and x.dim() == 1) else x for x in more]
    for suffix in ("", "_"):
        function = getattr(getattr(torch.ops.aten, f"_foreach_{base}{suffix}"), overload or "default")
        mine, theirs = on(device, inputs), [[t.clone() for t in x] for x in inputs]
        if dtype in HALVES and base in ("addcmul", "addcdiv", "lerp"):
            theirs = [[t.float() for t in x] for x in theirs]
        with ran(f"_foreach_{base}{suffix}{'.' if overload else ''}{overload}"):
            got = function(*mine, *place, **keywords)
        expected = function(*theirs, *more, **keywords)
        if suffix:
            got, expected = mine[0], theirs[0]
        compare(got, [t.to(dtype) for t in expected])


def test_what_a_table_does_not_take(device):
    for xs in (
        [torch.arange(4), torch.arange(3)],
        [torch.randn(3), torch.randn(3).double()],
        [torch.randn(4, 4)[:, ::2], torch.randn(3)],
        [torch.randn(4, 4).t(), torch.randn(3)],
    ):
        mine = [x.to(device) for x in xs[:-1]] + [xs[-1].to(device)]
        compare(torch._foreach_add(mine, 1), torch._foreach_add(xs, 1))
        torch._foreach_mul_(mine, mine)
        torch._foreach_mul_(xs, xs)
        compare(mine, xs)
    with pytest.raises(RuntimeError, match=r"at least one tensor|same"):
        torch._foreach_add(on(device, lists(1)[0]), on(device, lists(1)[0][:3]))


OPTIMIZERS = {
    "Adam": {"weight_decay": 0.1},
    "Adam amsgrad": {"amsgrad": True, "maximize": True},
    "AdamW": {"weight_decay": 0.1},
    "AdamW amsgrad": {"amsgrad": True},
    "SGD": {"weight_decay": 0.1},
    "SGD momentum": {"momentum": 0.9, "dampening": 0.1},
    "SGD nesterov": {"momentum": 0.9, "nesterov": True, "maximize": True},
}


@pytest.mark.parametrize("way", ["fused", "foreach"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(device, name, way):
    results = []
    for place in ("cpu", device):
        values, *grads = lists(4, shapes=SHAPES[:4] + [(7,)] * 14)
        parameters = [torch.nn.Parameter(x.clone().to(place)) for x in values]
        optimizer = getattr(torch.optim, name.split()[0])(parameters, lr=0.01, **OPTIMIZERS[name], **{way: True})
        with fallback.budget(calls=0):
            for grad in grads:
                for parameter, g in zip(parameters, grad, strict=True):
                    parameter.grad = (g - 1.5).to(place)
                optimizer.step()
        results.append([p.detach().cpu() for p in parameters])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-6)


def scaled_step(name, place, found):
    """The values after a step by gradients that were scaled by 4."""
    values, grads, means, squares = on(place, lists(4, shapes=SHAPES[:4]))
    scaler = {"grad_scale": torch.tensor(4.0, device=place), "found_inf": torch.tensor(found, device=place)}
    if name == "_fused_adam_":
        steps = [torch.tensor(3.0, device=place) for _ in values]
        numbers = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-8, "amsgrad": False}
        torch._fused_adam_(values, grads, means, squares, [], steps, maximize=False, **numbers, **scaler)
    else:
        numbers = {"weight_decay": 0.0, "momentum": 0.9, "lr": 0.1, "dampening": 0.0}
        flags = {"nesterov": False, "maximize": False, "is_first_step": False}
        torch._fused_sgd_(values, grads, means, **numbers, **flags, **scaler)
    return [x.cpu() for x in values]


@pytest.mark.parametrize("found", [0.0, 1.0])
@pytest.mark.parametrize("name", ["_fused_adam_", "_fused_sgd_"])
def test_a_gradient_scaler(device, ran, name, found):
    with ran(name):
        got = scaled_step(name, device, found)
    expected = lists(4, shapes=SHAPES[:4])[0] if found else scaled_step(name, "cpu", found)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b)
