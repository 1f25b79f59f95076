"""Losses and their backwards against the CPU."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

from portable.compare import FLOATS, each, same, same_with_gradients, with_gradients

aten = torch.ops.aten
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3, torch.float64: 1e-9}
each_dtype = pytest.mark.parametrize("dtype", each(FLOATS))
LOSSES = {
    "mse_loss": F.mse_loss,
    "smooth_l1_loss": lambda x, y, **more: F.smooth_l1_loss(x, y, beta=0.7, **more),
    "huber_loss": lambda x, y, **more: F.huber_loss(x, y, delta=0.7, **more),
    "binary_cross_entropy": lambda x, y, **more: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), **more),
}
REDUCTIONS = ["none", "mean", "sum"]
each_reduction = pytest.mark.parametrize("reduction", REDUCTIONS)
compare = partial(same, tolerance=TOLERANCE)
check = partial(same_with_gradients, leaves=1, tolerance=TOLERANCE)


@each_dtype
@each_reduction
@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_two_tensors(device, ran, name, reduction, dtype):
    x, y = torch.randn(7, 33).to(dtype), torch.randn(7, 33).to(dtype)
    with ran(name), ran(f"{name}_backward"):
        check(device, lambda x, y: LOSSES[name](x, y, reduction=reduction), x, y)


def test_layouts_and_out(device):
    x, y = torch.randn(6, 8), torch.randn(6, 8)
    on_device = x.to(device), y.to(device)
    for view in (lambda t: t.t(), lambda t: t[:, ::2]):
        got = F.mse_loss(view(on_device[0]), view(on_device[1]), reduction="none")
        compare(got, F.mse_loss(view(x), view(y), reduction="none"))
    out = torch.empty(0, device=device)
    aten.mse_loss.out(*on_device, 1, out=out)
    compare(out, F.mse_loss(x, y))
    aten.huber_loss.out(*on_device, 0, 0.5, out=(none := torch.empty(0, device=device)))
    compare(none, F.huber_loss(x, y, reduction="none", delta=0.5))
    compare(F.mse_loss(on_device[0], on_device[1][:1]), F.mse_loss(x, y[:1]))  # broadcast: the CPU's


def test_binary_cross_entropy_with_weight_and_at_the_ends(device, ran):
    x, y, w = torch.tensor([0.0, 1, 0, 1, 0.3]), torch.tensor([0.0, 1, 1, 0, 0.6]), torch.rand(5)
    for reduction in REDUCTIONS:
        for weight in ([], [w]):

            def function(x, y, weight=None, reduction=reduction):
                return F.binary_cross_entropy(x, y, weight, reduction=reduction)

            with ran("binary_cross_entropy"):
                check(device, function, x, y, *weight)
    beyond = F.binary_cross_entropy(torch.tensor([1.5, 0.5], device=device), torch.tensor([1.0, 0.0], device=device))
    assert math.isnan(beyond.item())


def targets(shape, classes, ignored):
    target = torch.randint(0, classes, shape)
    if target.numel() > 3:
        target.view(-1)[::3] = ignored
    return target


@each_dtype
@each_reduction
@pytest.mark.parametrize(
    ("shape", "kernel"),
    [((40, 7), "nll_loss"), ((5,), "nll_loss"), ((3, 6, 4, 5), "nll_loss2d"), ((2, 3, 9), "nll_loss")],
)
def test_nll_loss(device, ran, shape, kernel, reduction, dtype):
    x = torch.randn(shape).to(dtype)
    classes = shape[0] if len(shape) == 1 else shape[1]
    target = targets(shape[:1] * (len(shape) > 1) + shape[2:], classes, -100)
    if len(shape) == 3:
        kernel = "nll_loss2d"
    for weight in ([], [torch.rand(classes).to(dtype) + 0.5]):

        def function(x, target, weight=None):
            return F.nll_loss(x, target, weight, reduction=reduction)

        # The CPU's own sums of half types are coarse.
        exact = with_gradients(function, "cpu", x.double(), target, *(w.double() for w in weight), leaves=1)
        with ran(f"{kernel}_forward"), ran(f"{kernel}_backward"):
            got = with_gradients(function, device, x, target, *weight, leaves=1)
        compare(got, [t.to(dtype) for t in exact])


def test_nll_loss_total_weight_and_mistakes(device):
    x, target = torch.randn(5, 3), torch.tensor([0, 2, 1, -100, 2])
    for reduction in range(3):
        got = aten.nll_loss_forward(x.to(device), target.to(device), None, reduction, -100)
        compare(got, aten.nll_loss_forward(x, target, None, reduction, -100))
    ignored = F.nll_loss(x.to(device), torch.full((5,), -100, device=device))
    assert math.isnan(ignored.item())
    for wrong in (3, -1):
        y = x.to(device).requires_grad_()
        with pytest.raises(IndexError, match=f"nll_loss: index {wrong} is out of range for 3 elements"):
            F.nll_loss(y, torch.tensor([0, wrong, 1, 1, 2], device=device)).item()
    with pytest.raises(RuntimeError, match="size mismatch"):
        aten.nll_loss_forward(x.to(device), target[:3].to(device), None, 1, -100)


def test_cross_entropy(device):
    check(device, F.cross_entropy, torch.randn(300, 50), targets((300,), 50, -100))
