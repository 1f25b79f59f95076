"""Softmax, log_softmax, the masked one and their backwards against the CPU."""

import pytest
import torch

from portable.compare import FLOATS, each, same, same_error

aten = torch.ops.aten
FORWARD = {"_softmax": aten._softmax, "_log_softmax": aten._log_softmax}
BACKWARD = {"_softmax": aten._softmax_backward_data, "_log_softmax": aten._log_softmax_backward_data}
each_function = pytest.mark.parametrize("name", FORWARD)


@pytest.mark.parametrize("dtype", each(FLOATS, torch.float32, torch.bfloat16, torch.float16))
@each_function
def test_forward_and_backward(agree, name, dtype):
    shapes = [((5, 7, 11), 2), ((5, 7, 11), 1), ((5, 7, 11), 0), ((3, 1000), -1), ((2, 5000), 1), ((9, 33), 0)]
    for shape, dim in shapes:
        x, grad = torch.randn(shape).to(dtype) * 4, torch.randn(shape).to(dtype)
        expected = agree(name, FORWARD[name], x, dim, False)
        agree(f"{name}_backward_data", BACKWARD[name], grad, expected, dim, dtype)


@each_function
def test_sizes(agree, name):
    for shape in (
        (),
        (0,),
        (3, 0),
        (1,),
        (300, 1),
        (40, 64),
        (40, 65),
        (3, 300, 2),
        (1, 70_001),
        (130, 1),
        (17, 2),
        (300, 23),
    ):
        x = torch.randn(shape)
        for dim in range(-1, max(len(shape) - 1, 0)):
            agree(None, FORWARD[name], x, dim, False)


@each_function
def test_layouts_and_forms(agree, device, name):
    x = torch.randn(6, 8, 4)
    y = x.to(device)
    for view in (x.permute(2, 0, 1), x[:, ::2], x[:1].expand(5, 8, 4)):
        for dim in range(3):
            agree(None, FORWARD[name], view, dim, False)
    out = torch.empty(0, device=device)
    FORWARD[name].out(y, 1, False, out=out)
    same(out, FORWARD[name](x, 1, False))
    strided = torch.zeros(6, 8, 4, 2, device=device)[..., 0]
    FORWARD[name].out(y, 1, False, out=strided)
    same(strided.contiguous(), FORWARD[name](x, 1, False))


@each_function
def test_nan_and_infinity(agree, name):
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[1, nan, 2], [inf, 1, 2], [-inf, 1, 2], [-inf, -inf, -inf], [inf, -inf, 0], [1e30, -1e30, 0]])
    for dim in (0, 1):
        agree(None, FORWARD[name], x, dim, False)


def test_half_to_float(device, ran):
    x = torch.randn(5, 9).half()
    with ran("_softmax"):
        got = aten._softmax(x.to(device), 1, True)
    same(got, aten._softmax(x.float(), 1, False))
    with ran("_softmax_backward_data"):
        grad = aten._softmax_backward_data(torch.ones_like(got), got, 1, torch.float16)
    assert grad.dtype == torch.float16
    assert grad.abs().max() < 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_masked(agree, dtype):
    x = torch.randn(2, 3, 5, 5).to(dtype)
    masks = {0: torch.rand(5, 5) > 0.6, 1: torch.rand(2, 5) > 0.6, 2: torch.rand(2, 3, 5, 5) > 0.6}
    masks[2][0, 0, 0] = True
    for kind, mask in masks.items():
        agree("_masked_softmax", aten._masked_softmax, x, mask, 3, kind)
    mask = masks[2]
    mask[0, 0, 0] = False
    for dim in (3, 1, None):
        y = agree("_masked_softmax", aten._masked_softmax, x, mask, dim, 2)
        agree("_masked_softmax_backward", aten._masked_softmax_backward, torch.randn_like(x), y, mask, dim)


def test_errors_are_the_cpus(device):
    for call in (lambda t: t.softmax(2), lambda t: aten._softmax(t.long(), 1, False)):
        same_error(device, call, torch.randn(3, 4))
