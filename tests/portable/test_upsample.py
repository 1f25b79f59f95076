"""Images in another size, and the gradients, against the CPU: modes, sizes, scales, memory formats, dtypes."""

import itertools

import pytest
import torch

from portable.compare import FLOATS, cases, on, same, same_error

aten = torch.ops.aten
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float64: 1e-9}

NEAREST = {f"{name}{dims}d": dims for name in ("upsample_nearest", "_upsample_nearest_exact") for dims in (1, 2, 3)}
WEIGHTED = {"upsample_linear1d": 1, "upsample_bilinear2d": 2, "upsample_trilinear3d": 3, "upsample_bicubic2d": 2}
FILTERED = {"_upsample_bilinear2d_aa": 2, "_upsample_bicubic2d_aa": 2}
if hasattr(aten, "_upsample_lanczos2d_aa"):  # from torch 2.12 on
    FILTERED["_upsample_lanczos2d_aa"] = 2


def every(names, dtypes):
    """Names and dtypes: all in float32, and one of two dimensions in another that is quick."""
    quick = [("upsample_nearest2d", torch.uint8), ("upsample_bilinear2d", torch.bfloat16)]
    return cases(dict.fromkeys(names, dtypes), lambda *case: case[1] == torch.float32 or case in quick)


LAST = {2: torch.channels_last, 3: torch.channels_last_3d}

# Of the image, of the result, and the scales that are passed: those of the sizes, or others such as a factor of 2.3.
SIZES = [((5, 4, 6), (9, 7, 13), None), ((4, 7, 9), (8, 3, 9), (2.3, 0.45, 1.1)), ((1, 2, 3), (1, 1, 5), None)]


def formats(tensor, quick):
    yield tensor
    if tensor.dim() > 3:
        yield tensor.contiguous(memory_format=LAST[tensor.dim() - 2])
    if not quick:
        yield tensor.transpose(1, -1).contiguous().transpose(1, -1)


def check(actual, expected, exact=False):
    same(actual, expected, 0 if exact else TOLERANCE, strides=expected.numel() > 0)


def both(device, ran, name, x, *rest, exact=False):
    expected = getattr(aten, name)(x, *rest)
    with ran(name):
        actual = getattr(aten, name)(on(device, x), *rest)
    check(actual, expected, exact)
    return expected


def there_and_back(device, ran, name, x, size, *rest, exact=False):
    y = both(device, ran, name, x, size, *rest, exact=exact)
    if x.dtype.is_floating_point:
        grad = torch.randn(y.shape).to(x.dtype)
        for g in formats(grad, quick=True):
            both(device, ran, name + "_backward", g, size, list(x.shape), *rest)


def sizes(dims, channels=(1, 5)):
    for (size, out, scales), c in itertools.product(SIZES, channels):
        yield (2, c, *size[-dims:]), list(out[-dims:]), [None] * dims if scales is None else list(scales[-dims:])


@pytest.mark.parametrize(("name", "dtype"), every(NEAREST, [*FLOATS, torch.uint8]))
def test_nearest(device, ran, name, dtype):
    for shape, out, scales in sizes(NEAREST[name]):
        for x in formats((torch.randn(shape) * 40).to(dtype), dtype != torch.float64):
            there_and_back(device, ran, name, x, out, *scales, exact=True)


@pytest.mark.parametrize(("name", "dtype"), every(NEAREST, [torch.float32, torch.float64]))
def test_nearest_points_are_those_of_the_cpu(device, ran, name, dtype):
    """Scales are rounded, and so is where a point lies: by one formula in small planes, by another in others."""
    dims = NEAREST[name]
    for size, out, scale in [
        *((n, m, None) for n, m in [(7, 49), (41, 205), (49, 343), (94, 47), (101, 203), (57, 190), (147, 1000)]),
        *((n, m, m / n * 1.04) for n, m in [(9, 9), (9, 18), (30, 60), (80, 160), (80, 80)]),
    ]:
        x = torch.arange(size, dtype=dtype).reshape(1, 1, *[1] * (dims - 1), size)
        both(device, ran, name, x, [*[1] * (dims - 1), out], *[None] * (dims - 1), scale, exact=True)
        if dims > 1:
            many = x.expand(1, 4, *x.shape[2:]).contiguous(memory_format=LAST[dims])
            both(device, ran, name, many, [*[1] * (dims - 1), out], *[None] * (dims - 1), scale, exact=True)


@pytest.mark.parametrize(("name", "dtype"), every(WEIGHTED, FLOATS))
def test_weighted(device, ran, name, dtype):
    for align in (False, True):
        for shape, out, scales in sizes(WEIGHTED[name]):
            for x in formats(torch.randn(shape).to(dtype), dtype != torch.float64):
                there_and_back(device, ran, name, x, out, align, *scales)


@pytest.mark.parametrize(("name", "dtype"), every(FILTERED, [torch.float32, torch.float64]))
def test_filtered(device, ran, name, dtype):
    for align in (False, True):
        for shape, out, scales in ((2, 3, 6, 9), [9, 4], [None, None]), ((1, 9, 20, 7), [3, 7], [0.17, 1.1]):
            for x in formats(torch.randn(shape).to(dtype), dtype != torch.float64):
                there_and_back(device, ran, name, x, out, align, *scales)


def test_numbers_that_are_none(device, ran):
    x = torch.randn(1, 2, 6, 8)
    x[0, 0, 2, 3], x[0, 1, 0, 0], x[0, 1, 5, 7] = torch.nan, torch.inf, -torch.inf
    both(device, ran, "upsample_nearest2d", x, [9, 4], exact=True)
    for name in ("upsample_bilinear2d", "upsample_bicubic2d"):
        both(device, ran, name, x, [11, 15], True)
        both(device, ran, name, x, [11, 15], False)
    both(device, ran, "upsample_bilinear2d_backward", x, [6, 8], [1, 2, 3, 5], False)


def test_long_rows(device, ran):
    x = torch.randn(2, 700)
    there_and_back(device, ran, "upsample_linear1d", x[None], [1801], False)
    there_and_back(device, ran, "upsample_nearest1d", x[None], [301])
    there_and_back(device, ran, "upsample_bilinear2d", x.view(1, 700, 2, 1).contiguous(), [5, 3], False)
    there_and_back(device, ran, "_upsample_bilinear2d_aa", x[None, None], [3, 40], False)


def test_out(device, ran):
    x = torch.randn(2, 3, 5, 4)
    for name, rest in (("upsample_nearest2d", ()), ("upsample_bicubic2d", (False,))):
        expected = getattr(aten, name)(x, [7, 9], *rest)
        for given in (torch.empty(0), torch.empty(2, 3, 7, 9), torch.empty(2, 3, 7, 18)[..., ::2]):
            for source in formats(x, quick=True):
                out = on(device, given) if given.numel() == 0 or given.is_contiguous() else given.to(device)[..., :]
                host = given.clone()
                with ran(name):
                    getattr(aten, name).out(on(device, source), [7, 9], *rest, out=out)
                getattr(aten, name).out(source, [7, 9], *rest, out=host)
                assert out.stride() == host.stride()
                torch.testing.assert_close(out.cpu(), expected, rtol=2e-5, atol=2e-5)
        grad = torch.empty(0, device=device)
        name += "_backward"
        with ran(name):
            getattr(aten, name).grad_input(expected.to(device), [7, 9], [2, 3, 5, 4], *rest, grad_input=grad)
        check(grad, getattr(aten, name)(expected, [7, 9], [2, 3, 5, 4], *rest))


def test_empty_batch(device, ran):
    for name, rest in (("upsample_nearest2d", ()), ("upsample_bilinear2d", (False,))):
        both(device, ran, name, torch.empty(0, 3, 4, 5), [8, 2], *rest)
        both(device, ran, name + "_backward", torch.empty(0, 3, 8, 2), [8, 2], [0, 3, 4, 5], *rest)


def test_layers(device, ran):
    """torch.nn.functional, with factors, and through autograd."""
    x = torch.randn(2, 3, 6, 5, requires_grad=True)
    mine = x.detach().to(device).requires_grad_()
    for rest in (
        {"scale_factor": 2},
        {"scale_factor": (1.7, 0.6), "mode": "bilinear"},
        {"scale_factor": 1.3, "mode": "bicubic", "align_corners": True},
        {"size": (3, 4), "mode": "bilinear", "antialias": True},
    ):
        expected = torch.nn.functional.interpolate(x, **rest)
        actual = torch.nn.functional.interpolate(mine, **rest)
        torch.testing.assert_close(actual.cpu(), expected, rtol=2e-5, atol=2e-5)
        grad = torch.randn(expected.shape)
        (expected,) = torch.autograd.grad(expected, x, grad)
        (actual,) = torch.autograd.grad(actual, mine, grad.to(device))
        torch.testing.assert_close(actual.cpu(), expected, rtol=2e-5, atol=2e-5)


def test_errors_are_those_of_the_cpu(device):
    x = torch.randn(2, 3, 4, 5)
    for call, *arguments in (
        (aten.upsample_nearest2d, x, [4]),
        (aten.upsample_nearest2d, x, [0, 4]),
        (aten.upsample_nearest2d, x[0], [4, 4]),
        (aten.upsample_nearest2d, x[:, :0], [4, 4]),
        (aten.upsample_nearest2d, x.long(), [4, 4]),
        (aten.upsample_bilinear2d, x.bool(), [4, 4], False),
        (aten.upsample_bilinear2d_backward, x, [4, 6], [2, 3, 8, 8], False),
        (aten.upsample_bilinear2d_backward, x, [4, 5], [2, 2, 8, 8], False),
    ):
        same_error(device, call, *arguments)


def test_halves_that_the_cpu_lacks_are_rounded_once(device):
    x = torch.randn(2, 3, 4, 5).half()
    of_halves = aten._upsample_bilinear2d_aa(x.to(device), [4, 4], False).cpu()
    assert torch.equal(of_halves, aten._upsample_bilinear2d_aa(x.float(), [4, 4], False).half())
