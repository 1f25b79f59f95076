"""Convolutions of every kind through the overrideable operators: values and gradients are the CPU's."""

import itertools

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

CONVOLUTIONS = {1: (F.conv1d, F.conv_transpose1d), 2: (F.conv2d, F.conv_transpose2d), 3: (F.conv3d, F.conv_transpose3d)}


def close(found, expected):
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-4)


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
        if second:
            results.append((output, first, torch.autograd.grad(sum(g.square().sum() for g in first), x)))
        else:
            results.append((output, first, ()))
    (expected, *expected_gradients), (found, *gradients) = results
    assert found.device.type == device.type
    assert (found.shape, found.dtype, found.is_contiguous()) == (expected.shape, expected.dtype, True)  # as its fake
    close(found, expected)
    for a, b in zip(itertools.chain(*gradients), itertools.chain(*expected_gradients), strict=True):
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


def test_padding_by_name_and_output_padding(device):
    compare(device, F.conv2d, tensors(2, 1, False), padding="same", dilation=2)
    compare(device, F.conv1d, tensors(1, 1, False), padding="valid")
    compare(device, F.conv_transpose2d, tensors(2, 2, True), stride=3, output_padding=(1, 2), groups=2)


def test_depthwise_pointwise_and_without_a_batch(device):
    torch.manual_seed(0)
    compare(device, F.conv2d, [torch.randn(2, 4, 6, 6), torch.randn(4, 1, 3, 3)], groups=4)
    compare(device, F.conv2d, [torch.randn(2, 4, 6, 6), torch.randn(8, 4, 1, 1)])
    compare(device, F.conv2d, [torch.randn(4, 6, 6), torch.randn(8, 4, 3, 3), torch.randn(8)])


@pytest.mark.parametrize("transposed", [False, True], ids=["forward", "transposed"])
def test_an_empty_batch(device, transposed):
    compare(device, CONVOLUTIONS[2][transposed], tensors(2, 1, transposed, batch=0), second=False)


LAST = {1: torch.contiguous_format, 2: torch.channels_last, 3: torch.channels_last_3d}


@pytest.mark.parametrize(("dims", "groups"), [(1, 2), (2, 1), (2, 2), (3, 1)])
@pytest.mark.parametrize("transposed", [False, True], ids=["forward", "transposed"])
def test_channels_last_stays(device, dims, transposed, groups):
    """Of the input or the weight: results and gradients have the strides of the CPU's, and of their fakes."""
    call = CONVOLUTIONS[dims][transposed]

    def run(x, weight):
        x, weight = (t.detach().requires_grad_() for t in (x, weight))
        result = call(x, weight, groups=groups, stride=2, padding=1)
        return [result, *torch.autograd.grad(result, (x, weight), torch.ones_like(result))]

    for last in itertools.product([False, True], repeat=2):
        inputs = [
            t.contiguous(memory_format=LAST[dims]) if is_last else t
            for t, is_last in zip(tensors(dims, groups, transposed)[:2], last, strict=True)
        ]
        mine, mode = [t.to(device) for t in inputs], FakeTensorMode()
        expected, found = run(*inputs), run(*mine)
        fakes = [mode.from_tensor(t) for t in mine]
        with mode:
            planned = run(*fakes)
        for a, b, fake in zip(found, expected, planned, strict=True):
            close(a, b)
            assert a.stride() == b.stride() == fake.stride(), last


def test_other_strides(device):
    x, weight, bias = tensors(2, 1, False)
    compare(device, F.conv2d, [x.transpose(2, 3), weight, bias])


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


def test_gradcheck(device):
    inputs = [t.to(device).requires_grad_() for t in tensors(2, 1, False, dtype=torch.float64, batch=1)]
    assert torch.autograd.gradcheck(lambda *t: F.conv2d(*t, padding=1), inputs)
    small = [t[:, :, :3, :3].detach().requires_grad_() if t.dim() == 4 else t for t in inputs]
    assert torch.autograd.gradgradcheck(lambda *t: F.conv2d(*t, stride=2), small)


def test_a_convolution_is_one_call_of_the_fallback(device):
    from torch_backplane import fallback

    x, weight, bias = (t.to(device) for t in tensors(2, 1, False))
    fallback.reset_calls()
    F.conv2d(x, weight, bias)
    assert fallback.calls() == {"aten::convolution": 1}
    with fallback.policy("error"), pytest.raises(NotImplementedError, match="convolution"):
        F.conv2d(x, weight, bias)
