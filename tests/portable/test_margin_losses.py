"""Margin losses over classes against the CPU."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from portable.compare import each, same_with_gradients

each_dtype = pytest.mark.parametrize("dtype", each([torch.float32, torch.float64]))
each_reduction = pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
check = partial(same_with_gradients, leaves=1)


@each_dtype
@each_reduction
@pytest.mark.parametrize("p", [1, 2])
def test_multi_margin_loss(device, ran, p, reduction, dtype):
    x, target = torch.randn(6, 5, dtype=dtype), torch.tensor([0, 4, 2, 2, 1, 3])
    weight = torch.rand(5, dtype=dtype) + 0.5
    with ran("multi_margin_loss"), ran("multi_margin_loss_backward"):
        check(device, lambda a, t: F.multi_margin_loss(a, t, p, 0.7, reduction=reduction), x, target)
        check(device, lambda a, t, w: F.multi_margin_loss(a, t, p, 0.7, w, reduction=reduction), x, target, weight)
        check(device, lambda a, t: F.multi_margin_loss(a, t, p, reduction=reduction), x[0], target[0])
        check(device, lambda a, t: F.multi_margin_loss(a.t(), t, p, reduction=reduction), x.t().contiguous(), target)


@each_dtype
@each_reduction
def test_multilabel_margin_loss(device, ran, reduction, dtype):
    x = torch.randn(5, 4, dtype=dtype)
    target = torch.tensor([[3, 0, -1, 1], [-1, 0, 1, 2], [0, 1, 2, 3], [2, 2, -1, -1], [1, 3, 0, -1]])

    def function(a, t):
        return F.multilabel_margin_loss(a, t, reduction=reduction)

    with ran("multilabel_margin_loss_forward"), ran("multilabel_margin_loss_backward"):
        check(device, function, x, target)
        check(device, function, x[0], target[0])
        check(device, lambda a, t: function(a.t(), t.t()), x.t().contiguous(), target.t().contiguous())


def test_a_class_that_there_is_not_is_an_error(device):
    x = torch.randn(3, 4, device=device)
    with pytest.raises(IndexError, match="multi_margin_loss: index 4 is out of range for 4 elements"):
        F.multi_margin_loss(x, torch.tensor([0, 4, 1], device=device)).cpu()
    for wrong in (4, -2):
        target = torch.tensor([[0, wrong, -1, -1]] * 3, device=device)
        with pytest.raises(IndexError, match=f"multilabel_margin_loss: index {wrong} is out of range for 4 elements"):
            F.multilabel_margin_loss(x, target).cpu()
    with pytest.raises(ValueError, match="p == 1 and p == 2"):
        F.multi_margin_loss(x, torch.tensor([0, 1, 2], device=device), p=3)
