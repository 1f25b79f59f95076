"""Losses and their backwards against the CPU."""

import math

import pytest
import torch
import torch.nn.functional as F

aten = torch.ops.aten
USUAL = [
    torch.float32,
    torch.bfloat16,
    pytest.param(torch.float16, marks=pytest.mark.long),
    pytest.param(torch.float64, marks=pytest.mark.long),
]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3, torch.float64: 1e-9}
LOSSES = {
    "mse_loss": F.mse_loss,
    "smooth_l1_loss": lambda x, y, **more: F.smooth_l1_loss(x, y, beta=0.7, **more),
    "huber_loss": lambda x, y, **more: F.huber_loss(x, y, delta=0.7, **more),
    "binary_cross_entropy": lambda x, y, **more: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), **more),
}
REDUCTIONS = ["none", "mean", "sum"]


def compare(got, expected):
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    tolerance = TOLERANCE[expected.dtype]
    torch.testing.assert_close(got.cpu(), expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def result_and_gradient(function, place, *tensors):
    leaf = tensors[0].to(place).detach().requires_grad_()
    y = function(leaf, *(t.to(place) for t in tensors[1:]))
    y.backward(torch.linspace(0.5, 1.5, y.numel()).reshape(y.shape).to(place, y.dtype))
    return y.detach(), leaf.grad


@pytest.mark.parametrize("dtype", USUAL)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_two_tensors(device, ran, name, reduction, dtype):
    x, y = torch.randn(7, 33).to(dtype), torch.randn(7, 33).to(dtype)

    def function(x, y):
        return LOSSES[name](x, y, reduction=reduction)

    expected = result_and_gradient(function, "cpu", x, y)
    with ran(name), ran(f"{name}_backward"):
        got = result_and_gradient(function, device, x, y)
    for a, b in zip(got, expected, strict=True):
        compare(a, b)


def test_layouts_and_out(device):
    x, y = torch.randn(6, 8), torch.randn(6, 8)
    on_device = x.to(device), y.to(device)
    for view in (lambda t: t.t(), lambda t: t[:, ::2]):
        got = F.mse_loss(view(on_device[0]), view(on_device[1]), reduction="none")
        expected = F.mse_loss(view(x), view(y), reduction="none")
        compare(got, expected)
        assert got.stride() == expected.stride()
    out = torch.empty(0, device=device)
    aten.mse_loss.out(*on_device, 1, out=out)
    compare(out, F.mse_loss(x, y))
    aten.huber_loss.out(*on_device, 0, 0.5, out=(none := torch.empty(0, device=device)))
    compare(none, F.huber_loss(x, y, reduction="none", delta=0.5))
    compare(F.mse_loss(on_device[0], on_device[1][:1]), F.mse_loss(x, y[:1]))  # broadcast: the CPU's


def test_binary_cross_entropy_with_weight_and_at_the_ends(device, ran):
    x, y, w = torch.tensor([0.0, 1, 0, 1, 0.3]), torch.tensor([0.0, 1, 1, 0, 0.6]), torch.rand(5)
    for reduction in REDUCTIONS:
        for weight in (None, w):

            def function(x, y, *weight, reduction=reduction):
                return F.binary_cross_entropy(x, y, weight[0] if weight else None, reduction=reduction)

            tensors = [x, y] if weight is None else [x, y, weight]
            with ran("binary_cross_entropy"):
                got = result_and_gradient(function, device, *tensors)
            for a, b in zip(got, result_and_gradient(function, "cpu", *tensors), strict=True):
                compare(a, b)
    beyond = F.binary_cross_entropy(torch.tensor([1.5, 0.5], device=device), torch.tensor([1.0, 0.0], device=device))
    assert math.isnan(beyond.item())


def targets(shape, classes, ignored):
    target = torch.randint(0, classes, shape)
    if target.numel() > 3:
        target.view(-1)[::3] = ignored
    return target


@pytest.mark.parametrize("dtype", USUAL)
@pytest.mark.parametrize("reduction", REDUCTIONS)
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

        def function(x, target, *weight):
            return F.nll_loss(x, target, weight[0] if weight else None, reduction=reduction)

        # The CPU's own sums of half types are coarse.
        exact = result_and_gradient(function, "cpu", x.double(), target, *(w.double() for w in weight))
        expected = [t.to(dtype) for t in exact]
        with ran(f"{kernel}_forward"), ran(f"{kernel}_backward"):
            got = result_and_gradient(function, device, x, target, *weight)
        for a, b in zip(got, expected, strict=True):
            compare(a, b)


def test_nll_loss_total_weight_and_mistakes(device):
    x, target = torch.randn(5, 3), torch.tensor([0, 2, 1, -100, 2])
    for reduction in range(3):
        got = aten.nll_loss_forward(x.to(device), target.to(device), None, reduction, -100)
        for a, b in zip(got, aten.nll_loss_forward(x, target, None, reduction, -100), strict=True):
            compare(a, b)
    ignored = F.nll_loss(x.to(device), torch.full((5,), -100, device=device))
    assert math.isnan(ignored.item())
    for wrong in (3, -1):
        y = x.to(device).requires_grad_()
        with pytest.raises(IndexError, match=f"nll_loss: index {wrong} is out of range for 3 elements"):
            F.nll_loss(y, torch.tensor([0, wrong, 1, 1, 2], device=device)).item()
    with pytest.raises(RuntimeError, match="size mismatch"):
        aten.nll_loss_forward(x.to(device), target[:3].to(device), None, 1, -100)


def test_cross_entropy(device):
    x, target = torch.randn(300, 50), targets((300,), 50, -100)
    for a, b in zip(
        result_and_gradient(F.cross_entropy, device, x, target),
        result_and_gradient(F.cross_entropy, "cpu", x, target),
        strict=True,
    ):
        compare(a, b)
