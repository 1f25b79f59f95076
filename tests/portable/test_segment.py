"""Reductions of segments against the CPU."""

import pytest
import torch

from portable.compare import each, same_error, same_with_gradients


def check(device, x, reduce, **words):
    tensors = {key: words.pop(key) for key in ("lengths", "offsets") if key in words}

    def function(x, *given):
        return torch.segment_reduce(x, reduce, **dict(zip(tensors, given, strict=True)), **words)

    how = {"leaves": 1, "weights": (0.5, 1.5)}  # equal extremes share a gradient on the CPU if it is positive
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-5, torch.bfloat16: 2e-2}
    same_with_gradients(device, function, x, *tensors.values(), tolerance=tolerance, **how)


@pytest.mark.parametrize("dtype", each([torch.float32, torch.float64, torch.bfloat16]))
@pytest.mark.parametrize("initial", [None, 2])
@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "max", "min"])
def test_segments(device, ran, reduce, initial, dtype):
    x = torch.randn(7, 3, 2).to(dtype)
    x[0, 0, 0], x[2, 1, 0], x[3, 0, 1] = 0, torch.nan, 0
    x[4] = x[5]
    lengths = torch.tensor([2, 0, 1, 4])
    offsets = torch.tensor([0, 2, 2, 3, 7])
    with ran("segment_reduce"), ran("_segment_reduce_backward"):
        check(device, x, reduce, lengths=lengths, initial=initial)
        check(device, x, reduce, offsets=offsets, initial=initial)
        check(device, x, reduce, lengths=lengths.int(), initial=initial, unsafe=True)
        check(device, x.permute(1, 0, 2), reduce, lengths=torch.stack([lengths, lengths.flip(0), lengths]), axis=1)


def test_lengths_that_do_not_fit_are_the_cpus_error(device):
    for lengths in ([2, 2], [7, -2]):
        same_error(
            device, lambda x, n: torch.segment_reduce(x, "sum", lengths=n), torch.randn(5), torch.tensor(lengths)
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_product_beyond_the_dtype_has_an_infinite_gradient(device, dtype):
    x, lengths = torch.full((2, 3), 4.0, dtype=dtype), torch.tensor([2])
    grads = []
    for place in ("cpu", device):
        leaf = x.to(place).detach().requires_grad_()
        y = torch.segment_reduce(leaf, "prod", lengths=lengths.to(place))
        y.backward(torch.full_like(y, 30000.0))
        grads.append(leaf.grad.cpu())
    torch.testing.assert_close(grads[1], grads[0], rtol=0, atol=0)
    assert torch.isinf(grads[0]).all() == (dtype == torch.float16)
