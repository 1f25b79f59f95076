"""Convolutions and their gradients against the CPU: dimensions, groups, strides, padding, transposed, dtypes."""

import copy
from pathlib import Path

import pytest
import shims
import torch
import torch.nn.functional as F

from portable.compare import FLOATS, cases, same_error
from torch_backplane import _backend

PAIRS = Path(__file__).parents[1] / "device" / "drivers" / "pairs.c"
CASES = {
    "3x3": (F.conv2d, (2, 3, 9, 11), (5, 3, 3, 3), {"padding": 1}),
    "1x1": (F.conv2d, (2, 4, 9, 11), (7, 4, 1, 1), {}),
    "1x1 strided": (F.conv2d, (2, 4, 9, 11), (7, 4, 1, 1), {"stride": 2, "padding": 1}),
    "groups": (
        F.conv2d,
        (2, 4, 9, 11),
        (6, 2, 3, 2),
        {"groups": 2, "stride": 2, "dilation": (1, 2), "padding": (2, 1)},
    ),
    "depthwise": (F.conv2d, (2, 6, 13, 10), (6, 1, 3, 3), {"groups": 6, "padding": 1}),
    "depthwise doubled": (F.conv2d, (1, 3, 8, 7), (6, 1, 3, 5), {"groups": 3, "stride": (1, 2), "padding": 2}),
    "depthwise blocks": (F.conv2d, (1, 37, 61, 83), (37, 1, 3, 5), {"groups": 37, "padding": 2, "dilation": (2, 1)}),
    "depthwise strided": (F.conv2d, (2, 40, 13, 35), (40, 1, 3, 3), {"groups": 40, "stride": (2, 3), "padding": 1}),
    "depthwise in space": (F.conv3d, (1, 18, 5, 6, 19), (18, 1, 3, 2, 3), {"groups": 18, "padding": 1}),
    # channels whose small images are transposed: rows end within vectors and blocks
    "depthwise planes": (F.conv2d, (2, 37, 30, 33), (37, 1, 3, 3), {"groups": 37, "padding": 1}),
    "depthwise planes, far": (
        F.conv2d,
        (1, 20, 9, 7),
        (20, 1, 2, 5),
        {"groups": 20, "padding": (4, 6), "dilation": (3, 1)},
    ),
    "depthwise planes, rest": (  # the last points of a row are in no window
        F.conv2d,
        (1, 16, 9, 16),
        (16, 1, 3, 3),
        {"groups": 16, "stride": (1, 4), "padding": 1},
    ),
    "depthwise planes, rows of one": (F.conv2d, (1, 18, 21, 1), (18, 1, 3, 1), {"groups": 18, "stride": 2}),
    "depthwise line": (F.conv1d, (2, 20, 3000), (20, 1, 4), {"groups": 20, "padding": 3}),
    "depthwise, more taps than a block": (F.conv1d, (1, 2, 5000), (2, 1, 4000), {"groups": 2}),
    "depthwise transposed": (F.conv_transpose2d, (1, 35, 9, 18), (35, 1, 3, 3), {"groups": 35, "stride": 2}),
    "many channels": (F.conv2d, (2, 70, 9, 9), (40, 70, 3, 3), {}),
    "many channels, padded": (F.conv2d, (2, 34, 9, 7), (20, 17, 3, 2), {"groups": 2, "padding": 1, "stride": (2, 1)}),
    "many channels in space": (F.conv3d, (1, 18, 5, 6, 4), (9, 18, 2, 3, 2), {"padding": 1, "dilation": (1, 2, 1)}),
    "points": (F.conv2d, (2, 21, 9, 7), (10, 21, 1, 1), {}),
    "points of groups": (F.conv2d, (2, 8, 9, 7), (6, 4, 1, 1), {"groups": 2}),
    "points, strided": (F.conv2d, (2, 21, 9, 7), (10, 21, 1, 1), {"stride": 2}),
    "points in space": (F.conv3d, (2, 5, 3, 4, 6), (7, 5, 1, 1, 1), {}),
    "points, transposed": (F.conv_transpose2d, (2, 6, 5, 4), (6, 9, 1, 1), {}),
    "wide": (F.conv2d, (1, 2, 4, 300), (3, 2, 2, 7), {"stride": (1, 3), "padding": (0, 5)}),
    "padding beyond the window": (F.conv2d, (1, 1, 2, 2), (2, 1, 2, 2), {"padding": 4, "stride": 3}),
    "line": (F.conv1d, (2, 4, 30), (8, 1, 5), {"groups": 4, "stride": 3}),
    "space": (F.conv3d, (2, 4, 6, 7, 8), (5, 4, 2, 3, 2), {"stride": (1, 2, 1), "padding": 1}),
    "transposed": (
        F.conv_transpose2d,
        (2, 4, 5, 6),
        (4, 3, 3, 3),
        {"groups": 2, "stride": 2, "padding": 1, "output_padding": 1},
    ),
    "transposed line": (F.conv_transpose1d, (2, 4, 9), (4, 3, 3), {"dilation": 2}),
    "transposed space": (F.conv_transpose3d, (2, 4, 3, 4, 5), (4, 3, 3, 3, 2), {"stride": 2}),
    "transposed, far": (F.conv_transpose2d, (1, 2, 3, 4), (2, 2, 2, 2), {"stride": 4, "padding": 1}),
    # large enough to be computed phase by phase
    "phases": (
        F.conv_transpose2d,
        (2, 32, 17, 15),
        (32, 16, 4, 3),
        {"stride": (2, 3), "padding": 1, "output_padding": (1, 2)},
    ),
    "phases without a tap": (F.conv_transpose2d, (1, 32, 24, 20), (32, 32, 2, 2), {"stride": 4, "padding": 1}),
    "phases, dilated": (F.conv_transpose1d, (2, 64, 200), (64, 16, 5), {"stride": 4, "dilation": 6, "groups": 2}),
    "more phases than pay": (F.conv_transpose2d, (1, 8, 12, 10), (8, 8, 2, 2), {"stride": 30}),
    "phases of a gradient": (F.conv2d, (2, 32, 30, 31), (32, 32, 3, 3), {"stride": 2, "padding": 1}),
    "phases in space": (F.conv3d, (1, 8, 12, 11, 13), (16, 8, 3, 3, 3), {"stride": 2}),
}


def inputs(name, dtype, bias):
    call, shape, kernel, options = CASES[name]
    channels = kernel[0] if "transpose" not in call.__name__ else kernel[1] * options.get("groups", 1)
    tensors = [torch.randn(size).to(dtype) for size in (shape, kernel, (channels,))]
    return call, [*tensors] if bias else [*tensors[:2], None], options


def check(actual, expected, exact):
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    if expected.dtype in (torch.bfloat16, torch.float16):
        expected = exact.to(expected.dtype)
    wide = {torch.bfloat16: 2e-2, torch.float16: 2e-3, torch.float64: 1e-12}.get(expected.dtype, 2e-5)
    scale = max(expected.abs().max().item(), 1.0) if expected.numel() else 1.0
    torch.testing.assert_close(actual.cpu(), expected, rtol=wide, atol=wide * scale)


def calls(kernel):
    return _backend.C.kernels.calls(f"portable/{kernel}")


# One of each kind of kernel in bfloat16, too; in channels_last one of each in float32.
HALVES = {
    "3x3",
    "depthwise",
    "depthwise blocks",
    "depthwise strided",
    "many channels",
    "points",
    "transposed",
    "phases",
}
IN_CHANNELS_LAST = [name for name, (_, shape, _, _) in CASES.items() if len(shape) > 3]


def is_short(name, dtype):
    return dtype == torch.float32 or (name in HALVES and dtype == torch.bfloat16)


@pytest.mark.parametrize(("name", "dtype"), cases({name: FLOATS for name in CASES}, is_short))
def test_forward_and_gradients(device, ran, name, dtype):
    call, tensors, options = inputs(name, dtype, bias=False)
    x, w, _ = tensors
    exact = [t.double().requires_grad_() for t in (x, w)]
    mine = [t.to(device).requires_grad_() for t in (x, w)]
    here = [t.clone().requires_grad_() for t in (x, w)]
    with ran("convolution_overrideable"):
        result = call(*mine, None, **options)
    expected = call(*exact, None, **options)
    check(result, call(*here, None, **options), expected)
    grad = torch.randn(expected.shape).to(dtype)
    with ran("convolution_backward_overrideable"):
        gradients = torch.autograd.grad(result, mine, grad.to(device))
    wanted = torch.autograd.grad(expected, exact, grad.double())
    for actual, value in zip(gradients, wanted, strict=True):
        check(actual, value.to(dtype), value)


def test_a_phase_does_not_multiply_the_zeros_between_points(device, ran):
    """An infinite weight that meets a zero there would be NaN."""
    call, (x, w, _), options = inputs("phases without a tap", torch.float32, bias=False)
    w[:, 3] = float("inf")
    with ran("convolution_overrideable"):
        result = call(x.abs().to(device), w.to(device), **options)
    assert result[:, 3].isnan().sum() == 0
    check(result, call(x.abs(), w, **options), None)


@pytest.mark.parametrize("last", [False, True])
def test_a_depthwise_weights_gradient_has_nothing_of_what_its_tap_does_not_reach(device, last):
    """Kernels compute with whole vectors of points, those beside the grid too: infinity times zero is left out."""
    x = torch.ones(1, 33, 9, 21)
    x[0, 3, 4, 20] = float("inf")  # only the last tap of a row is there
    w = torch.ones(33, 1, 3, 3, device=device, requires_grad=True)
    y = F.conv2d(x.to(device, memory_format=torch.channels_last if last else None), w, groups=33)
    gradient = torch.autograd.grad(y, w, torch.ones_like(y))[0].cpu()
    assert gradient[3, 0].isinf().tolist() == [[False, False, True]] * 3
    assert gradient.isnan().sum() == 0
    assert (gradient[~gradient.isinf()] == 7 * 19).all()


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", ["depthwise", "depthwise planes", "depthwise transposed"])
def test_an_infinite_weight_does_not_meet_the_zeros_around_a_depthwise_source(device, name, last):
    call, (x, w, _), options = inputs(name, torch.float32, bias=False)
    w[1, 0, 0, 0] = float("inf")
    result = call(x.abs().to(device, memory_format=torch.channels_last if last else None), w.to(device), **options)
    assert result.isnan().sum() == 0
    assert 0 < result[:, 1].isinf().sum() < result[:, 1].numel()
    assert result.isinf().sum() == result[:, 1].isinf().sum()


def test_pairs_of_bfloat16_are_multiplied_where_the_prelude_can(run_in_process, device, tmp_path):
    """By a prelude that counts products twice. Depths end within pairs and steps, rows and columns within tiles."""
    code = f"""
        import itertools

        import torch
        from torch_backplane import compiler

        times = 2 if compiler.target(0).group_size == 1 else 1
        cases = [  # source, weight, stride, padding, groups
            ((2, 3, 9, 11), (9, 3, 3, 3), 1, 1, 1),
            ((1, 34, 7, 8), (20, 34, 5, 5), 2, 1, 1),
            ((2, 66, 5, 9), (40, 33, 1, 1), 1, 0, 2),
            ((3, 17, 20, 21), (7, 17, 1, 2), 1, 0, 1),
        ]
        formats = [torch.contiguous_format, torch.channels_last]
        for (source, weight, stride, padding, groups), kind in itertools.product(cases, formats):
            x, w = (torch.randn(shape).bfloat16().to(memory_format=kind) for shape in (source, weight))
            bias = torch.randn(weight[0]).bfloat16()
            call = [[stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups]

            def convolution(x, w, bias=None):
                out = torch.ops.aten.convolution(x, w, bias, *call)
                grad = (torch.arange(out.numel()) % 7 - 3.0).view(out.shape).to(out).contiguous(memory_format=kind)
                return [out, *torch.ops.aten.convolution_backward(grad, x, w, None, *call, [True, True, False])[:2]]

            found = convolution(*(t.to("{device.type}") for t in (x, w, bias)))
            exact = [times * t for t in convolution(x.double(), w.double())]
            exact[0] += bias.double().view(1, -1, 1, 1)
            for one, other in zip(found, exact, strict=True):
                near = 1e-2 * other.abs().max().item()
                torch.testing.assert_close(one.cpu().double(), other, rtol=1e-2, atol=near)
        print(compiler.counts().failed)
    """
    env = {f"{device.type.upper()}_SHIMS": shims.compiled(PAIRS, tmp_path)}
    assert run_in_process(code, env=env).stdout.strip() == "0"


def test_a_gradient_of_no_points_is_zero(device):
    grad, x, w = (torch.ones(shape, device=device) for shape in ((1, 4, 0, 0), (1, 4, 2, 2), (4, 1, 1, 1)))
    mask = [False, True, False]
    found = torch.ops.aten.convolution_backward(grad, x, w, [0], [1, 1], [0, 0], [1, 1], False, [0, 0], 4, mask)[1]
    assert found.abs().sum() == 0


@pytest.mark.parametrize("name", ["groups", "depthwise", "line", "transposed", "phases"])
def test_bias(device, ran, name):
    call, tensors, options = inputs(name, torch.float32, bias=True)
    mine = [t.to(device).requires_grad_() for t in tensors]
    here = [t.clone().requires_grad_() for t in tensors]
    with ran("convolution_overrideable"):
        result = call(*mine, **options)
    expected = call(*here, **options)
    check(result, expected, expected)
    grad = torch.randn(expected.shape)
    before = calls("convolution_backward_overrideable")
    result.backward(grad.to(device))  # the bias's gradient is another operator's
    expected.backward(grad)
    assert calls("convolution_backward_overrideable") > before
    for x, y in zip(mine, here, strict=True):
        check(x.grad, y.grad, y.grad)


def test_formats(device, ran):
    call, tensors, options = inputs("3x3", torch.float32, bias=True)
    x, w, b = tensors
    expected = call(x, w, b, **options)
    last = torch.channels_last
    for a, c in ((x.to(memory_format=last), w), (x, w.to(memory_format=last)), (x.transpose(2, 3), w.transpose(2, 3))):
        with ran("convolution_overrideable"):
            result = call(a.to(device), c.to(device), b.to(device), **options)
        here = call(a, c, b, **options)
        assert result.stride() == here.stride()
        check(result, expected if a.stride(2) != 1 else here, None)
    wide = torch.randn(2, 6, 18, 33)
    part = wide[:, ::2, ::2, ::3]
    with ran("convolution_overrideable"):
        result = call(wide.to(device)[:, ::2, ::2, ::3], w.to(device), b.to(device), **options)
    check(result, call(part, w, b, **options), None)


@pytest.mark.parametrize(
    ("name", "dtype"),
    cases(
        {name: FLOATS for name in IN_CHANNELS_LAST},
        lambda name, dtype: dtype == torch.float32 and name in HALVES | {"groups", "many channels in space"},
    ),
)
def test_channels_last_stays(device, ran, name, dtype):
    call, (x, w, b), options = inputs(name, dtype, bias=True)
    last = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
    exact = [t.double().requires_grad_() for t in (x, w, b)]
    expected = call(*exact, **options)
    grad = torch.randn(expected.shape).to(dtype)
    wanted = torch.autograd.grad(expected, exact, grad.double())
    mine = [t.to(device, memory_format=last if t.dim() > 1 else None).requires_grad_() for t in (x, w, b)]
    with ran("convolution_overrideable"):
        result = call(*mine, **options)
    with ran("convolution_backward_overrideable"):
        gradients = torch.autograd.grad(result, mine, grad.to(device))
    for actual, value in zip((result, *gradients), (expected, *wanted), strict=True):
        check(actual, value.to(dtype), value)
        assert actual.dim() == 1 or actual.is_contiguous(memory_format=last)


def test_training_in_channels_last_stays_there(device):
    """Images between the layers of a ResNet, and gradients of its weights; the losses are those of contiguous."""
    from portable.models import ResNet

    torch.manual_seed(0)
    first, images, labels = ResNet(), torch.randn(3, 3, 16, 16), torch.tensor([1, 2, 3])
    losses = {}
    for layout in (torch.contiguous_format, torch.channels_last):
        model = copy.deepcopy(first).to(device, memory_format=layout)
        seen = []
        for layer in model.modules():
            layer.register_forward_hook(lambda layer, args, out, seen=seen: seen.append(out))
        steps = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        losses[layout] = []
        for _ in range(2):
            steps.zero_grad()
            loss = F.cross_entropy(model(images.to(device, memory_format=layout)), labels.to(device))
            loss.backward()
            steps.step()
            losses[layout].append(loss.item())
        tensors = [*seen, *(p.grad for p in model.parameters()), *model.parameters()]
        assert len(tensors) > 40
        assert all(t.is_contiguous(memory_format=layout) for t in tensors if t.dim() == 4)
    assert losses[torch.channels_last] == pytest.approx(losses[torch.contiguous_format], rel=1e-3)


def test_a_compiled_convolution_keeps_channels_last(device):
    x = torch.randn(2, 4, 9, 7).to(device, memory_format=torch.channels_last).requires_grad_()
    w = torch.randn(8, 2, 3, 3).to(device).requires_grad_()

    def call(x, w):
        return F.conv2d(x * 2, w, groups=2, padding=1).relu() + 1

    found, expected = torch.compile(call)(x, w), call(x, w)
    gradients = [torch.autograd.grad(y.square().sum(), (x, w)) for y in (found, expected)]
    for a, b in zip((found, *gradients[0]), (expected, *gradients[1]), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
        assert a.stride() == b.stride()


@pytest.mark.parametrize("mask", [[True, False], [False, True]])
def test_only_wanted_gradients(device, ran, mask):
    x, w = torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3)
    mine = [t.to(device).requires_grad_(wanted) for t, wanted in zip((x, w), mask, strict=True)]
    here = [t.requires_grad_(wanted) for t, wanted in zip((x, w), mask, strict=True)]
    result = F.conv2d(*mine)
    with ran("convolution_backward_overrideable"):
        result.backward(torch.ones_like(result))
    F.conv2d(*here).sum().backward()
    for a, b in zip(mine, here, strict=True):
        assert (a.grad is None) == (b.grad is None)
        if b.grad is not None:
            check(a.grad, b.grad, None)


def test_special_values(device):
    x, w = torch.randn(1, 2, 6, 6), torch.randn(3, 2, 3, 3)
    x[0, 0, 2, 2], x[0, 1, 5, 5] = torch.nan, torch.inf
    torch.testing.assert_close(
        F.conv2d(x.to(device), w.to(device), padding=1).cpu(), F.conv2d(x, w, padding=1), equal_nan=True
    )


def test_errors_are_those_of_the_cpu(device):
    x, w = torch.randn(1, 2, 6, 6), torch.randn(3, 2, 3, 3)
    for arguments in ((x, w[:, :1]), (x, torch.randn(3, 2, 9, 9)), (x, w, torch.randn(4))):
        same_error(device, F.conv2d, *arguments)
