"""The largest and the mean of windows, and their gradients, against the CPU: sizes, formats, dtypes, forms."""

import pytest
import torch
import torch.nn.functional as F

from portable.compare import FLOATS, each, same, same_error

aten = torch.ops.aten
TOLERANCE = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float32: 1e-5, torch.float64: 1e-5}
each_float = pytest.mark.parametrize("dtype", each(FLOATS))

# Kernel, stride, padding, dilation of max; ceil mode.
WINDOWS = [
    (2, [], 0, 1, False),
    ((3, 2), (2, 1), 1, 1, True),
    ((3, 2), (3, 2), (1, 0), 2, False),
    ((1, 4), 3, (0, 2), (1, 2), True),
]
SHAPES = [(2, 3, 9, 11), (3, 8, 7), (0, 2, 6, 6), (1, 1, 40, 5)]


def formats(tensor, last):
    yield tensor
    if tensor.dim() > 3 and tensor.dim() == last:
        yield tensor.contiguous(memory_format=torch.channels_last if last == 4 else torch.channels_last_3d)
    yield tensor.transpose(-1, -2).contiguous().transpose(-1, -2)


def make(shape, dtype):
    tensor = torch.randint(-20, 20, shape).to(dtype)  # the same number more than once
    if dtype.is_floating_point and tensor.numel() > 60:
        tensor.view(-1)[::53] = torch.nan
        tensor.view(-1)[7::61] = torch.inf
        tensor.view(-1)[11::19] = -torch.inf
    return tensor


def check(actual, expected):
    for a, b in zip(*([one] if isinstance(one, torch.Tensor) else one for one in (actual, expected)), strict=True):
        same(a, b, TOLERANCE, strides=b.numel() > 0)


@pytest.fixture
def both(agree):
    """``both("avg_pool2d", x, 3)``: the operator of that name; the results, more than one for a maximum."""
    return lambda name, *arguments: agree(name, getattr(aten, name), *arguments, compare=check)


def gradient_of(tensor):
    return torch.randn(tensor.shape).to(tensor.dtype) if tensor.dtype.is_floating_point else None


@pytest.mark.parametrize("dtype", each([*FLOATS, torch.int64, torch.uint8], torch.float32, torch.bfloat16, torch.int64))
def test_max(both, dtype):
    for shape in SHAPES:
        for kernel, stride, padding, dilation, ceil in WINDOWS:
            if (dilation, shape) == (2, SHAPES[2]):
                continue
            for x in formats(make(shape, dtype), 4):
                rest = [kernel, stride, padding, dilation, ceil]
                out, index = both("max_pool2d_with_indices", x, *rest)
                grad = gradient_of(out)
                if grad is not None:
                    both("max_pool2d_with_indices_backward", grad, x, *rest, index)


@each_float
def test_mean(both, dtype):
    for shape in SHAPES:
        for kernel, stride, padding, _, ceil in WINDOWS:
            for count_padding, divisor in ((True, None), (False, None), (True, 3)):
                rest = [kernel, stride, padding, ceil, count_padding, divisor]
                for x in formats(torch.randn(shape).to(dtype), 4):
                    out = both("avg_pool2d", x, *rest)
                    both("avg_pool2d_backward", gradient_of(out), x, *rest)
    if dtype == torch.float32:
        both("avg_pool2d", torch.randint(-50, 50, (2, 3, 9, 11)), 3, 2, 1)


@each_float
def test_adaptive(both, dtype):
    for shape in SHAPES:
        even = [shape[-2] // 3 if shape[-2] % 3 == 0 else 1, 1]
        for size in ([1, 1], [3, 4], [13, 2], even, list(shape[-2:])):
            for x in formats(torch.randn(shape).to(dtype), 4):
                out = both("_adaptive_avg_pool2d", x, size)
                both("_adaptive_avg_pool2d_backward", gradient_of(out), x)
                out, index = both("adaptive_max_pool2d", x, size)
                both("adaptive_max_pool2d_backward", gradient_of(out), x, index)


@pytest.mark.parametrize("dtype", each([torch.float32, torch.float64]))
def test_three_dimensions(both, dtype):
    for shape in ((2, 3, 5, 6, 7), (2, 4, 6, 5)):
        for x in formats(torch.randn(shape).to(dtype), 5):
            for kernel, stride, padding, dilation, ceil in (
                (2, [], 0, 1, False),
                ((2, 3, 3), (1, 2, 2), (1, 0, 1), (1, 1, 2), True),
            ):
                rest = [kernel, stride or kernel, padding, dilation, ceil]
                out, index = both("max_pool3d_with_indices", x, *rest)
                both("max_pool3d_with_indices_backward", gradient_of(out), x, *rest, index)
                rest = [kernel, stride or kernel, padding, ceil, False, None]
                out = both("avg_pool3d", x, *rest)
                both("avg_pool3d_backward", gradient_of(out), x, *rest)
            for size in ([1, 1, 1], [2, 4, 9]):
                out = both("_adaptive_avg_pool3d", x, size)
                both("_adaptive_avg_pool3d_backward", gradient_of(out), x)
                out, index = both("adaptive_max_pool3d", x, size)
                both("adaptive_max_pool3d_backward", gradient_of(out), x, index)


def test_forms_of_one_dimension(agree):
    x = torch.randn(2, 3, 17)
    agree("max_pool2d_with_indices", lambda t: F.max_pool1d(t, 3, 2, 1, return_indices=True)[0], x, compare=check)
    agree("avg_pool2d", F.avg_pool1d, x, 3, 2, 1, compare=check)
    agree("_adaptive_avg_pool2d", F.adaptive_avg_pool1d, x, 5, compare=check)
    agree("adaptive_max_pool2d", F.adaptive_max_pool1d, x, 5, compare=check)


def test_out(device, ran):
    x = torch.randn(2, 3, 8, 8)
    for size in ((2, 3, 4, 4), (0,)):
        out, index = torch.empty(size, device=device), torch.empty(size, dtype=torch.long, device=device)
        with ran("max_pool2d_with_indices"):
            aten.max_pool2d_with_indices.out(x.to(device), 2, out=out, indices=index)
        for a, b in zip((out, index), aten.max_pool2d_with_indices(x, 2), strict=True):
            check(a, b)
        with ran("avg_pool2d"):
            aten.avg_pool2d.out(x.to(device), 2, out=out)
        check(out, aten.avg_pool2d(x, 2))
    wide = torch.empty(2, 3, 4, 8, device=device)[..., ::2]
    with ran("avg_pool2d"):
        aten.avg_pool2d.out(x.to(device), 2, out=wide)
    torch.testing.assert_close(wide.cpu(), aten.avg_pool2d(x, 2))


def test_errors_are_those_of_the_cpu(device):
    x = torch.randn(2, 3, 8, 8)
    for call, *arguments in (
        (aten.max_pool2d_with_indices, x, 0),
        (aten.max_pool2d_with_indices, x, 2, 0),
        (aten.max_pool2d_with_indices, x, 2, 2, 2),
        (aten.max_pool2d_with_indices, x.bool(), 2),
        (aten.avg_pool2d, x, 9),
        (aten.avg_pool2d, x[0, 0], 2),
        (aten.avg_pool2d, x, 2, 2, 0, False, True, 0),
        (aten.adaptive_max_pool2d, x[:, :, :0], [2, 2]),
        (aten.adaptive_max_pool2d, x, [2, -2]),
    ):
        same_error(device, call, *arguments)


@pytest.mark.parametrize("transposed", [False, True])
def test_the_gradient_of_a_maximum_is_written_to_out_of_any_strides(device, ran, transposed):
    x = torch.randn(2, 3, 9, 8)
    y, places = F.max_pool2d(x, 3, 2, 1, return_indices=True)
    grad = torch.randn_like(y)
    out = torch.full((2, 3, 8, 9), 7.0).mT if transposed else torch.full((2, 3, 9, 8), 7.0)
    expected = aten.max_pool2d_with_indices_backward(grad, x, [3], [2], [1], [1], False, places)
    of_device = [tensor.to(device) for tensor in (grad, x)]
    found = out.to(device)
    assert found.stride() == out.stride()
    with ran("max_pool2d_with_indices_backward"):
        aten.max_pool2d_with_indices_backward.grad_input(
            *of_device, [3], [2], [1], [1], False, places.to(device), grad_input=found
        )
    assert found.stride() == out.stride()
    torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=0)


def test_a_place_that_the_input_does_not_have_is_an_error(device):
    x, places = torch.ones(1, 1, 2, 2, device=device), torch.tensor([[[[4]]]], device=device)
    with pytest.raises(RuntimeError, match="index 4 is out of bounds"):
        aten.max_pool2d_with_indices_backward(
            torch.ones(1, 1, 1, 1, device=device), x, [2], [2], [0], [1], False, places
        ).cpu()


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_gradient_of_a_mean_of_integers_is_divided(device, layout):
    x = torch.ones(1, 2, 4, 4, dtype=torch.int64).to(device, memory_format=layout)
    grad = torch.full((1, 2, 2, 2), 9, device=device)
    found = aten.avg_pool2d_backward(grad, x, [2, 2], [2, 2], [0, 0], False, True, None)
    assert found.flatten().tolist() == [2] * 32


@pytest.mark.parametrize("pool", [F.max_pool2d, F.avg_pool2d, lambda x, *_: F.adaptive_avg_pool2d(x, (4, 3))])
def test_many_planes(device, pool):
    """A core takes whole planes of many, and rows of few."""
    x = torch.randn(2, 40, 9, 11)
    results = []
    for where in (device, "cpu"):
        leaf = x.to(where).requires_grad_()
        y = pool(leaf, 3, 2, 1)
        y.sin().sum().backward()
        results.append((y.detach().cpu(), leaf.grad.cpu()))
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs)
