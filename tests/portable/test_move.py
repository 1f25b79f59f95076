"""cat, flip, roll, triangles, padding, windows and strided fills against the CPU: values, strides, forms and errors."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from portable.compare import ALL, FLOATS, each, on, same
from torch_backplane import fallback

EVERY = [torch.float32, torch.bfloat16, torch.bool, *ALL[2:-1], torch.complex64]
each_dtype = pytest.mark.parametrize("dtype", each(EVERY, *EVERY[:3]))
each_float = pytest.mark.parametrize("dtype", each(FLOATS))


def tensor(shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(-9, 10, shape, generator=generator).to(torch.float64)
    if dtype.is_floating_point and values.numel() > 3:
        values.view(-1)[1], values.view(-1)[2] = float("nan"), float("inf")
    return values.abs().to(dtype) if dtype in (torch.uint8, torch.bool) else values.to(dtype)


@pytest.fixture
def agree(agree):
    return partial(agree, compare=partial(same, tolerance=0))


@each_dtype
def test_every_dtype(agree, dtype):
    x, y = tensor((3, 4, 5), dtype), tensor((3, 2, 5), dtype, 1)
    agree("cat", lambda *t: torch.cat(t, 1), x, y, x)
    agree("flip", lambda t: t.flip(0, -1), x)
    agree("roll", lambda t: t.roll((3, -1), (0, 2)), x)
    agree("tril", lambda t: t.tril(-1), x)
    agree("triu", torch.triu, x)


@pytest.mark.parametrize("count", [1, 2, 30])
def test_cat_of_many(agree, count):
    for dim in (0, 1, 2, -1):
        shapes = [[3, 4, 5] for _ in range(count)]
        for k, shape in enumerate(shapes):
            shape[dim] = k % 4
        parts = [tensor(shape, seed=k) for k, shape in enumerate(shapes)]
        agree("cat", lambda *t, d=dim: torch.cat(t, d), *parts)


def test_cat_around_a_tile(agree):
    for size in (1, 4095, 4096, 4097, 20_000):
        agree(None, lambda *t: torch.cat(t), torch.randn(size), torch.randn(3), torch.randn(2 * size))
        agree(None, lambda *t: torch.cat(t, 1), torch.randn(3, size), torch.randn(3, 7))


def test_cat_of_unlike_tensors(agree):
    x = tensor((3, 4))
    agree("cat", lambda *t: torch.cat(t), x, torch.empty(0), x)
    agree("cat", lambda *t: torch.cat(t), x, tensor((2, 4), torch.int64), tensor((1, 4), torch.bool))
    agree("cat", lambda *t: torch.cat(t), x.t(), tensor((2, 3)))
    agree("cat", lambda *t: torch.cat(t, 1), x[:, ::2], x[:, :1].expand(3, 6))
    agree("cat", lambda *t: torch.stack(t, 1), x, x + 1)
    image = tensor((2, 3, 4, 5)).to(memory_format=torch.channels_last)
    agree("cat", lambda *t: torch.cat(t, 1), image, image)
    agree("cat", lambda *t: torch.cat(t, 2), image, image.contiguous())


def test_cat_forms(device, ran):
    x, y = tensor((3, 4)), tensor((2, 4), seed=1)
    with ran("cat"):
        for out in [torch.empty(0), torch.empty(5, 4, dtype=torch.float64), torch.zeros(5, 8)[:, ::2]]:
            expected, got = out.clone(), on(device, out)
            torch.cat([x, y], out=expected)
            torch.cat([x.to(device), y.to(device)], out=got)
            assert got.stride() == on(device, out).stride() or out.numel() == 0
            torch.testing.assert_close(got.cpu(), expected.to(out.dtype), equal_nan=True)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: torch.cat([x, x[:, :1]]), "Sizes of tensors must match"),
        (lambda x: torch.cat([x, x[0]]), "same number of dimensions"),
        (lambda x: torch.cat([x, x], 3), "Dimension out of range"),
        (lambda x: torch.cat([x[0, 0]]), "zero-dimensional"),
        (lambda x: torch.cat([x, x], out=x), "overlap|unsupported operation"),
        (lambda x: x.flip(0, 0), "multiple times"),
        (lambda x: x.roll((1, 2), 0), "align"),
        (lambda x: x[0].tril(), "at least 2 dimensions"),
        (lambda x: F.pad(x, (4, 4), mode="reflect"), "less than"),
        (lambda x: F.unfold(x[None], 5), "shape of the array of sliding blocks"),
    ],
)
def test_wrong_calls_raise_torchs_error(device, call, text):
    for place in ("cpu", device):
        with pytest.raises((RuntimeError, IndexError), match=text):
            call(torch.randn(3, 4).to(place))


def test_flip_roll_and_triangles_of_views(agree):
    x = tensor((4, 5, 6))
    for view in (x.transpose(0, 2), x[:, ::2], x[:0], x[1:, 2:], x[:1].expand(3, 5, 6), x[0, 0, 0], x[0, 0]):
        if view.dim():
            agree(None, lambda t: t.flip(0), view)
            agree(None, lambda t: t.flip(*range(t.dim())), view)
        agree(None, lambda t: t.roll(2), view)
        if view.dim() == 3:
            agree(None, lambda t: t.roll((7, -2, 3), (0, 1, 0)), view)
            for k in (-7, -2, 0, 1, 9):
                agree(None, lambda t, k=k: t.tril(k), view)
                agree(None, lambda t, k=k: t.triu(k), view)
    agree(None, lambda t: t.clone().tril_(1), x)
    agree(None, lambda t: torch.triu(t, out=torch.empty(0, device=t.device)), x)
    agree(None, lambda t: t.rot90(1, (0, 1)), x)


def test_runs_of_merged_dimensions(agree):
    for shape in ((40, 4, 1), (3, 1, 50), (6, 7, 40), (2, 3, 1200)):
        x = tensor(shape)
        for view in (x, x.permute(2, 0, 1), x[:, ::2]):
            for dim in range(3):
                agree(None, lambda t, dim=dim: t.roll(2, dim), view)
            agree(None, lambda t: t.roll((1, 1), (0, 1)), view)
            agree(None, lambda t: t.roll((1, -1), (1, 2)), view)
    for mode in ("reflect", "replicate"):
        for shape in ((2, 5, 6, 4), (1, 40, 3, 35), (3, 1, 2, 2)):
            x = tensor(shape)
            for padding in ((1, 1, 1, 1), (0, 0, 1, 0), (1, 0, 0, 0), (0, 0, 0, 0)):
                for view in (x, x.to(memory_format=torch.channels_last), x.mT):
                    if mode == "replicate" or min(view.shape[2:]) > 1:
                        agree(None, lambda t, p=padding, m=mode: F.pad(t, p, mode=m), view)


@each_float
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_padding_and_its_gradient(agree, dtype, mode, dims):
    name = ("reflection" if mode == "reflect" else "replication") + f"_pad{dims}d"
    padding = (2, 3, 1, 0, 3, 2)[: 2 * dims]
    for shape in [(2, 3, *(4, 5, 6)[:dims]), (3, *(4, 5, 6)[:dims]), (0, 3, *(4, 5, 6)[:dims])]:
        x = torch.randint(-9, 9, shape).to(dtype)
        agree(name, lambda t: F.pad(t, padding, mode=mode), x)
        grad = torch.randint(-9, 9, F.pad(x, padding, mode=mode).shape).to(dtype)
        function = getattr(torch.ops.aten, name + "_backward")
        agree(name + "_backward", lambda g, t, f=function: f(g, t, padding), grad, x)
    wide = torch.randn((1, 2, *(4, 5, 700)[3 - dims :]))
    agree(None, lambda t: F.pad(t, (600, 500), mode="replicate") if dims == 1 else t, wide)


def test_padding_with_a_number_stays_on_the_device(agree):
    with fallback.budget(calls=0):
        agree(None, lambda t: F.pad(t, (1, 2, 3, -1), value=4.5), tensor((3, 4, 5)))
        agree(None, lambda t: t.repeat(2, 1, 3), tensor((4, 5)))
        agree(None, lambda t: F.pixel_shuffle(t, 2), tensor((2, 8, 3, 3)))
        agree(None, lambda t: F.pixel_unshuffle(t, 2), tensor((2, 2, 6, 4)))
        agree(None, lambda t: F.channel_shuffle(t, 2), tensor((2, 8, 3, 3)))


@each_float
def test_windows(agree, dtype):
    for x in (torch.randint(-9, 9, (2, 3, 8, 9)).to(dtype), torch.randint(-9, 9, (3, 8, 9)).to(dtype)):
        for options in (
            {"kernel_size": 3},
            {"kernel_size": (2, 3), "dilation": (1, 2), "padding": (2, 1), "stride": (2, 3)},
            {"kernel_size": (2, 3), "stride": (2, 3)},
            {"kernel_size": (3, 2), "padding": (0, 1), "stride": (3, 2)},
            {"kernel_size": 1, "padding": 3, "stride": 2},
        ):
            agree("im2col", lambda t, o=options: F.unfold(t, **o), x)
            agree("im2col", lambda t, o=options: F.unfold(t, **o), x.transpose(-1, -2))
            columns = F.unfold(x, **options)
            agree("col2im", lambda t, o=options: F.fold(t, (8, 9), **o), columns)
    agree(None, lambda t: F.fold(t, (5, 5), 2), torch.randint(-9, 9, (2, 12, 16)).to(dtype))


@each_dtype
def test_fills_of_views(agree, dtype):
    if dtype.is_complex:
        return
    for number in (3, True, 0):
        for view in (lambda t: t[:, ::2], lambda t: t[1:, 1], lambda t: t[..., 3:].transpose(0, 1)):
            agree("fill_.Scalar", lambda t, v=view, n=number: (v(t).fill_(n), t)[1], tensor((3, 4, 8), dtype))
            agree("zero_", lambda t, v=view: (v(t).zero_(), t)[1], tensor((3, 4, 8), dtype))


def test_fills_with_a_tensor(agree):
    for value in (torch.tensor(2.5), torch.tensor(3)):
        agree(None, lambda t, v: (t[:, ::2].fill_(v), t)[1], tensor((3, 8)), value)
        agree(None, lambda t, v: (t.fill_(v), t)[1], tensor((3, 8)), value)
