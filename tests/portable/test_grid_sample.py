"""Images and volumes at the points of a grid, and the gradients, against the CPU: modes, padding, layouts, dtypes."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from portable.compare import FLOATS, on

aten = torch.ops.aten
LINEAR, NEAREST, CUBIC = range(3)
ZEROS, BORDER, MIRROR = range(3)
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float64: 1e-9}
# Channels, image, points.
SIZES = {2: [(3, (5, 7), (4, 6)), (9, (1, 4), (15, 11))], 3: [(2, (4, 3, 5), (3, 4, 2)), (9, (3, 1, 2), (7, 3, 8))]}


def modes():
    """Interpolation, padding, alignment and dtype; in float32 each kind of padding in one alignment is short."""
    for dims, kinds in ((2, (LINEAR, NEAREST, CUBIC)), (3, (LINEAR, NEAREST))):
        for mode, padding, align, dtype in itertools.product(kinds, (ZEROS, BORDER, MIRROR), (False, True), FLOATS):
            short = dtype == torch.float32 and align == (padding == MIRROR) and (padding == ZEROS or dims + mode == 2)
            name = f"{dims}d-{mode}-{padding}-{align}-{str(dtype)[6:]}"
            yield pytest.param(dims, mode, padding, align, dtype, id=name, marks=() if short else pytest.mark.long)


def formats(tensor):
    yield tensor
    yield tensor.transpose(1, -1).contiguous().transpose(1, -1)


def make(dims, sizes, dtype):
    channels, size, points = sizes
    return torch.randn(2, channels, *size).to(dtype), (torch.randn(2, *points, dims) * 0.8).to(dtype)


def expect(call, *arguments):
    """Of halves: what float32 gives, for the CPU's coordinates are halves, too."""
    half = arguments[0].dtype in (torch.bfloat16, torch.float16)
    wide = [a.float() if half and isinstance(a, torch.Tensor) else a for a in arguments]
    results = call(*wide)
    results = [results] if isinstance(results, torch.Tensor) else results
    return [None if r is None else r.to(arguments[0].dtype) for r in results]


def both(device, ran, name, *arguments):
    call = getattr(aten, name)
    with ran(name):
        actual = call(*on(device, arguments))
    actual = [actual] if isinstance(actual, torch.Tensor) else actual
    for a, b in zip(actual, expect(call, *arguments), strict=True):
        if b is None:
            assert a is None
            continue
        assert a.dtype == b.dtype
        assert a.stride() == b.stride()
        wide = TOLERANCE[b.dtype]
        torch.testing.assert_close(a.cpu(), b, rtol=wide, atol=wide * 20, equal_nan=True)


@pytest.mark.parametrize(("dims", "mode", "padding", "align", "dtype"), list(modes()))
def test_sampling(device, ran, dims, mode, padding, align, dtype):
    for sizes in SIZES[dims]:
        image, grid = make(dims, sizes, dtype)
        grad = torch.randn(2, sizes[0], *sizes[2]).to(dtype)
        for x, g, r in zip(formats(image), formats(grid), formats(grad), strict=True):
            both(device, ran, f"grid_sampler_{dims}d", x, g, mode, padding, align)
            both(device, ran, f"grid_sampler_{dims}d_backward", r, x, g, mode, padding, align, [True, True])


@pytest.mark.parametrize("dims", [2, 3])
def test_gradients_that_are_wanted(device, ran, dims):
    image, grid = make(dims, SIZES[dims][0], torch.float32)
    grad = torch.randn(2, image.size(1), *grid.shape[1:-1])
    for mask in ([True, False], [False, True]):
        both(device, ran, f"grid_sampler_{dims}d_backward", grad, image, grid, LINEAR, ZEROS, False, mask)


def test_many_points(device, ran):
    image, grid = torch.randn(1, 20, 30, 40), torch.rand(1, 37, 41, 2) * 2.4 - 1.2
    both(device, ran, "grid_sampler_2d", image, grid, LINEAR, ZEROS, False)
    grad = torch.randn(1, 20, 37, 41)
    both(device, ran, "grid_sampler_2d_backward", grad, image, grid, LINEAR, ZEROS, False, [True, True])


def test_points_far_away(device, ran):
    """What is no number is outside; in a plane the sum of what is outside is a product with it."""
    grid = torch.zeros(1, 1, 6, 2)
    grid[0, 0, :, 0] = torch.tensor([torch.nan, torch.inf, -torch.inf, 1e30, -1e30, 1e9])
    image = torch.randn(1, 2, 5, 5)
    for mode in (LINEAR, NEAREST, CUBIC):
        both(device, ran, "grid_sampler_2d", image, grid, mode, ZEROS, False)
    both(device, ran, "grid_sampler_2d", image, grid[:, :, 1:], LINEAR, BORDER, True)
    volume, points = torch.randn(1, 2, 3, 4, 5), torch.cat([grid[:, None], torch.zeros(1, 1, 1, 6, 1)], -1)
    both(device, ran, "grid_sampler_3d", volume, points, LINEAR, ZEROS, False)
    for padding in (BORDER, MIRROR):  # the CPU reads and writes anywhere
        with ran("grid_sampler_2d"):
            at_nan = aten.grid_sampler_2d(image.to(device), grid[:, :, :1].to(device), LINEAR, padding, False)
        torch.testing.assert_close(at_nan.cpu()[..., 0, 0], image[:, :, 2, 0])
        arguments = [torch.ones(1, 2, 1, 1), image, grid[:, :, :1]]
        with ran("grid_sampler_2d_backward"):
            of_image, of_grid = aten.grid_sampler_2d_backward(
                *(a.to(device) for a in arguments), LINEAR, padding, False, [True, True]
            )
        assert of_image.sum().item() == 2
        assert of_grid[..., 0].item() == 0


def test_image_of_numbers_that_are_none(device, ran):
    image = torch.full((1, 1, 4, 4), torch.nan)
    image[0, 0, 1:3, 1:3] = 1
    grid = torch.tensor([[0.0, 0.0], [0.9, 0.9], [-2, -2], [1.2, 0.1]]).reshape(1, 1, 4, 2)
    for mode in (LINEAR, NEAREST, CUBIC):
        both(device, ran, "grid_sampler_2d", image, grid, mode, ZEROS, False)


@pytest.mark.usefixtures("deterministic")
def test_the_same_bits_each_time(device):
    image, grid = make(2, (5, (4, 4), (40, 40)), torch.float32)
    grad = torch.randn(2, 5, 40, 40, device=device)
    arguments = [grad, image.to(device), grid.to(device), LINEAR, BORDER, False, [True, True]]
    first, second = (aten.grid_sampler_2d_backward(*arguments)[0].cpu() for _ in range(2))
    assert torch.equal(first, second)
    (expected,) = expect(lambda *a: aten.grid_sampler_2d_backward(*a)[0], grad.cpu(), image, grid, *arguments[3:])
    torch.testing.assert_close(first, expected, rtol=1e-4, atol=1e-4)


def test_empty(device, ran):
    both(device, ran, "grid_sampler_2d", torch.empty(0, 3, 4, 5), torch.empty(0, 2, 2, 2), LINEAR, ZEROS, False)
    both(device, ran, "grid_sampler_2d", torch.randn(2, 3, 4, 5), torch.empty(2, 0, 2, 2), LINEAR, ZEROS, False)


def test_layers(device, ran):
    """torch.nn.functional, through autograd: an affine map of an image."""
    x, theta = torch.randn(2, 3, 6, 5, requires_grad=True), torch.randn(2, 2, 3, requires_grad=True)
    results = []
    for place in ("cpu", device):
        image, maps = (t.detach().to(place).requires_grad_() for t in (x, theta))
        sampled = F.grid_sample(image, F.affine_grid(maps, (2, 3, 4, 7), align_corners=False), align_corners=False)
        sampled.square().sum().backward()
        results.append([sampled, image.grad, maps.grad])
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-4)


def test_errors_are_those_of_the_cpu(device):
    def message(call, *arguments):
        try:
            call(*arguments)
        except RuntimeError as error:
            return str(error).splitlines()[0].replace("mydevice", "cpu").replace(":0", "")
        assert arguments[2] == CUBIC, "no error"  # torch computes it in three dimensions from 2.15 on
        return None

    image, grid = torch.randn(2, 3, 4, 5), torch.randn(2, 6, 7, 2)
    for x, g, mode in (
        (image, grid[:1], LINEAR),
        (image, grid.double(), LINEAR),
        (image, grid[..., :1], LINEAR),
        (image[:, :, :0], grid, LINEAR),
        (image.long(), grid.long(), LINEAR),
        (image[:, :, None], grid[:, None, :, :, [0, 1, 1]], CUBIC),
    ):
        dims = x.dim() - 2
        call = getattr(aten, f"grid_sampler_{dims}d")
        assert message(call, x.to(device), g.to(device), mode, ZEROS, False) == message(call, x, g, mode, ZEROS, False)
