"""Layer, group and batch norm and their backwards against the CPU."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from portable.compare import FLOATS, each, same, same_error, with_gradients

TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3, torch.float64: 1e-9}
aten = torch.ops.aten


each_dtype = pytest.mark.parametrize("dtype", each(FLOATS))
compare = partial(same, tolerance=TOLERANCE)


def check(device, function, x, parameters, wide=False):
    got, expected = (with_gradients(function, place, x, *parameters) for place in (device, "cpu"))
    values = [b.double() for b in expected]
    if wide:  # the CPU adds many half values in their own precision
        values = with_gradients(function, "cpu", *(None if t is None else t.double() for t in (x, *parameters)))
    for a, b, value in zip(got, expected, values, strict=True):
        scale = max(value.abs().max().item(), 1)  # a sum's error is that of its terms
        assert a.dtype == b.dtype
        assert a.stride() == b.stride()
        tolerance = TOLERANCE[b.dtype]
        torch.testing.assert_close(a.cpu().double(), value, rtol=tolerance, atol=tolerance * scale)


def parameters(shape, dtype, given=(True, True)):
    return [torch.randn(shape).to(dtype) if there else None for there in given]


@each_dtype
@pytest.mark.parametrize(
    ("shape", "dims"),
    [((6, 40), 1), ((3, 4, 5, 6), 2), ((2, 1000), 1), ((700, 9), 1), ((1040, 8), 1), ((1, 5), 1), ((2, 4097), 1)],
)
def test_layer_norm(device, ran, dtype, shape, dims):
    x = torch.randn(shape).to(dtype) * 2 + 1
    size = shape[-dims:]

    def function(x, w, b):
        return F.layer_norm(x, size, w, b)

    with ran("native_layer_norm"), ran("native_layer_norm_backward"):
        with_gradients(function, device, x, *parameters(size, dtype))
    check(device, function, x, parameters(size, dtype), wide=True)
    if dtype == torch.float32:
        for given in [(True, False), (False, True), (False, False)]:
            check(device, function, x, parameters(size, dtype, given))


def test_layer_norm_statistics_and_layouts(device):
    x = torch.randn(4, 6, 5)
    for view in (lambda t: t, lambda t: t.permute(2, 0, 1), lambda t: t[:, ::2]):
        size = view(x).shape[-1:]
        got = aten.native_layer_norm(view(x.to(device)), size, None, None, 1e-5)
        compare(got, aten.native_layer_norm(view(x), size, None, None, 1e-5))
    assert aten.native_layer_norm(x.bfloat16().to(device), [5], None, None, 1e-5)[1].dtype == torch.float32
    w, b = torch.randn(2, 5)
    for dtype in (torch.bfloat16, torch.float16):  # parameters wider than the rows
        got = F.layer_norm(x.to(dtype).to(device), (5,), w.to(device), b.to(device))
        torch.testing.assert_close(got.cpu(), F.layer_norm(x.to(dtype), (5,), w, b))


@each_dtype
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(8, 5), (1040, 8), (4, 6, 7), (3, 4, 5, 6), (2, 3, 2, 3, 4)])
def test_batch_norm(device, ran, dtype, training, shape):
    x = torch.randn(shape).to(dtype) * 2 + 1
    channels = shape[1]
    statistics = {}

    def function(x, w, b):
        mean = torch.zeros(channels, dtype=dtype, device=x.device)
        var = torch.full((channels,), 2.0, dtype=dtype, device=x.device)
        y = F.batch_norm(x, mean, var, w, b, training=training, momentum=0.3)
        statistics[x.device.type] = mean, var
        return y

    with ran("native_batch_norm"), ran("native_batch_norm_backward"):
        with_gradients(function, device, x, *parameters(channels, dtype))
    check(device, function, x, parameters(channels, dtype))
    compare(statistics[device.type], statistics["cpu"])
    if dtype == torch.float32:
        for given in [(True, False), (False, False)]:
            check(device, function, x, parameters(channels, dtype, given))


def test_batch_norm_without_statistics_and_channels_last(device):
    x = torch.randn(3, 4, 5, 6).contiguous(memory_format=torch.channels_last)
    check(device, lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), x, parameters(4, torch.float32))
    y = x.bfloat16()
    w, b = parameters(4, torch.float32)
    mean, var = torch.zeros(4), torch.ones(4)
    expected = F.batch_norm(y, mean.clone(), var.clone(), w, b, training=True)
    got = F.batch_norm(*(t.to(device) for t in (y, mean, var, w, b)), training=True)
    compare(got, expected)


@each_dtype
@pytest.mark.parametrize(("shape", "groups"), [((2, 6, 4, 3), 3), ((3, 8), 2), ((2, 8, 40), 1), ((2, 4, 5, 6), 4)])
def test_group_norm(device, ran, dtype, shape, groups):
    x = torch.randn(shape).to(dtype) * 2 + 1

    def function(x, w, b):
        return F.group_norm(x, groups, w, b)

    with ran("native_group_norm"), ran("native_group_norm_backward"):
        with_gradients(function, device, x, *parameters(shape[1], dtype))
    check(device, function, x, parameters(shape[1], dtype))
    if dtype == torch.float32:
        check(device, function, x, parameters(shape[1], dtype, (False, False)))
        if len(shape) == 4:
            check(device, function, x.contiguous(memory_format=torch.channels_last), parameters(shape[1], dtype))


def test_errors_are_the_cpus(device):
    for call in (lambda t: F.layer_norm(t, (5,)), lambda t: aten.native_layer_norm(t, [3], None, None, 1e-5)):
        same_error(device, call, torch.randn(3, 4))
