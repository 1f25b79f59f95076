"""Reductions of segments against the CPU."""

import pytest
import torch

REDUCES = ["sum", "mean", "prod", "max", "min"]
DTYPES = [torch.float32, *(pytest.param(x, marks=pytest.mark.long) for x in (torch.float64, torch.bfloat16))]
NAN = float("nan")


def check(device, x, reduce, **words):
    results = []
    for place in ("cpu", device):
        leaf = x.to(place).detach().requires_grad_()
        given = {k: v.to(place) if isinstance(v, torch.Tensor) else v for k, v in words.items()}
        y = torch.segment_reduce(leaf, reduce, **given)
        y.backward(torch.linspace(0.5, 1.5, y.numel()).reshape(y.shape).to(place, y.dtype))
        results.append((y.detach(), leaf.grad))
    for got, expected in zip(results[1], results[0], strict=True):
        tolerance = 2e-2 if expected.dtype == torch.bfloat16 else 1e-5
        assert got.stride() == expected.stride()
        torch.testing.assert_close(got.cpu(), expected, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("initial", [None, 2])
@pytest.mark.parametrize("reduce", REDUCES)
def test_segments(device, ran, reduce, initial, dtype):
    x = torch.randn(7, 3, 2).to(dtype)
    x[0, 0, 0], x[2, 1, 0], x[3, 0, 1] = 0, NAN, 0
    x[4] = x[5]
    lengths = torch.tensor([2, 0, 1, 4])
    offsets = torch.tensor([0, 2, 2, 3, 7])
    with ran("segment_reduce"), ran("_segment_reduce_backward"):
        check(device, x, reduce, lengths=lengths, initial=initial)
        check(device, x, reduce, offsets=offsets, initial=initial)
        check(device, x, reduce, lengths=lengths.int(), initial=initial, unsafe=True)
        check(device, x.permute(1, 0, 2), reduce, lengths=torch.stack([lengths, lengths.flip(0), lengths]), axis=1)


def test_lengths_that_do_not_fit_are_the_cpus_error(device):
    x = torch.randn(5)
    for lengths in ([2, 2], [7, -2]):
        with pytest.raises(RuntimeError) as expected:
            torch.segment_reduce(x, "sum", lengths=torch.tensor(lengths))
        with pytest.raises(RuntimeError) as got:
            torch.segment_reduce(x.to(device), "sum", lengths=torch.tensor(lengths, device=device))
        assert str(got.value) == str(expected.value)


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
