"""Convolutions of every kind through the overrideable operators: values and gradients are the CPU's."""

import pytest
import torch
from torch.nn import functional as F

CONVOLUTIONS = {1: (F.conv1d, F.conv_transpose1d), 2: (F.conv2d, F.conv_transpose2d), 3: (F.conv3d, F.conv_transpose3d)}


def close(found, expected):
    torch.testing.assert_close(found.detach().cpu(), expected.detach(), rtol=1e-4, atol=1e-4)


def tensors(dims, groups, transposed, bias=True, batch=2, dtype=torch.float32):
    torch.manual_seed(0)
    channels, out = 2 * groups, 3 * groups
    weight = (channels, out // groups) if transposed else (out, channels // groups)
    shapes = [(batch, channels, *[6, 5, 4][:dims]), (*weight, *[3, 2, 2][:dims])] + [(out,)] * bias
    return [torch.randn(s, dtype=dtype) for s in shapes]


def compare(device, function, inputs, second=True, **options):
    """Outputs, first gradients and, of those, second ones."""
    results = []
    for on in ("cpu", device):
        x = [t.detach().to(on).requires_grad_() for t in inputs]
        output = function(*x, **options)
        first = torch.autograd.grad(output.sin().sum(), x, create_graph=second)
        more = torch.autograd.grad(sum(g.square().sum() for g in first), x) if second else ()
        results.append([output, *first, *more])
    (expected, *_), (found, *_) = results
    assert found.device.type == device.type
    assert (found.shape, found.dtype, found.is_contiguous()) == (expected.shape, expected.dtype, True)  # as its fake
    for b, a in zip(*results, strict=True):
        close(a, b)


# In each dimension one call, and each option in two.
OPTIONS = [
    (1, {"groups": 3, "stride": 2, "padding": 1}),
    (3, {"groups": 3, "stride": 2, "padding": 1}),
    *((2, options) for options in ({}, {"stride": 2, "padding": 1}, {"dilation": 2, "padding": 2}, {"groups": 2})),
    (2, {"bias": False}),
]


@pytest.mark.parametrize("transposed", [False, True], ids=["forward", "transposed"])
@pytest.mark.parametrize(("dims", "options"), OPTIONS, ids=str)
def test_convolutions(device, dims, transposed, options):
    options = dict(options)
    bias = options.pop("bias", True)
    compare(
        device, CONVOLUTIONS[dims][transposed], tensors(dims, options.get("groups", 1), transposed, bias), **options
    )


SPECIAL = {
    "padding by name": (F.conv2d, tensors(2, 1, False), {"padding": "same", "dilation": 2}),
    "no padding, by name": (F.conv1d, tensors(1, 1, False), {"padding": "valid"}),
    "output padding": (F.conv_transpose2d, tensors(2, 2, True), {"stride": 3, "output_padding": (1, 2), "groups": 2}),
    "depthwise": (F.conv2d, [torch.randn(2, 4, 6, 6), torch.randn(4, 1, 3, 3)], {"groups": 4}),
    "pointwise": (F.conv2d, [torch.randn(2, 4, 6, 6), torch.randn(8, 4, 1, 1)], {}),
    "without a batch": (F.conv2d, [torch.randn(4, 6, 6), torch.randn(8, 4, 3, 3), torch.randn(8)], {}),
    "an empty batch": (F.conv2d, tensors(2, 1, False, batch=0), {"second": False}),
    "an empty batch, transposed": (F.conv_transpose2d, tensors(2, 1, True, batch=0), {"second": False}),
}


@pytest.mark.parametrize(("function", "inputs", "options"), SPECIAL.values(), ids=SPECIAL.keys())
def test_special_convolutions(device, function, inputs, options):
    compare(device, function, inputs, **options)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_dtypes(device, dtype):
    inputs = tensors(2, 1, False, dtype=torch.float64)
    found = F.conv2d(*(t.to(dtype).to(device) for t in inputs))
    expected = F.conv2d(*(t.to(dtype) for t in inputs))
    assert found.dtype == dtype
    close(found, expected)
    if dtype == torch.float64:
        complex_inputs = [t + 1j * t.flip(0) for t in inputs]
        close(F.conv2d(*(t.to(device) for t in complex_inputs)), F.conv2d(*complex_inputs))


@pytest.mark.parametrize("wanted", [(True, False, False), (False, True, False), (False, False, True)], ids=str)
def test_the_backward_operator_returns_the_wanted_gradients(device, wanted):
    x, weight, bias = tensors(2, 1, False)
    grad = torch.randn(F.conv2d(x, weight, bias).shape)
    call = torch.ops.aten.convolution_backward_overrideable
    shape = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    gradients = call(grad.to(device), x.to(device), weight.to(device), *shape, list(wanted))
    expected = torch.ops.aten.convolution_backward(grad, x, weight, [3], *shape, list(wanted))
    for a, b in zip(gradients, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            close(a, b)


def test_gradients_of_some_inputs_only(device):
    x, weight, bias = (t.to(device) for t in tensors(2, 1, False))
    weight.requires_grad_()
    F.conv2d(x, weight, bias).sum().backward()
    assert (x.grad, bias.grad, weight.grad.shape) == (None, None, weight.shape)


def test_a_convolution_is_one_call_of_the_fallback(device):
    from torch_backplane import fallback

    x, weight, bias = (t.to(device) for t in tensors(2, 1, False))
    fallback.reset_calls()
    F.conv2d(x, weight, bias)
    assert fallback.calls() == {"aten::convolution": 1}
    with fallback.policy("error"), pytest.raises(NotImplementedError, match="convolution"):
        F.conv2d(x, weight, bias)
