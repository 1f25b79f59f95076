"""The parts of a batch norm over several processes, by value against their formulas in float64 on the CPU."""

import pytest
import torch
from dtypes import FLOATS

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-11, torch.float16: 4e-3, torch.bfloat16: 3e-2}
SHAPES = [(6, 3), (4, 3, 5), (2, 3, 4, 5), (2, 3, 2, 3, 4)]
EPS = 1e-3
# Each dtype, and each shape in float32.
shapes_and_dtypes = pytest.mark.parametrize(
    ("shape", "dtype"),
    [(SHAPES[2], dtype) for dtype in FLOATS[1:]] + [(shape, torch.float32) for shape in SHAPES],
    ids=str,
)


def computed(dtype):
    """The dtype of statistics."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def dims(x):
    return [0, *range(2, x.dim())]


def along(vector, x):
    """A vector of channels against the dimensions of x, in float64."""
    return vector.double().reshape(1, -1, *[1] * (x.dim() - 2))


def close(found, expected, dtype, within=None):
    """Of that dtype, and equal within its tolerance, or that of the dtype ``within``."""
    tolerance = TOLERANCE[within or dtype]
    assert found.dtype == dtype
    torch.testing.assert_close(found.cpu().double(), expected.double(), rtol=tolerance, atol=tolerance)


def random(shape, dtype, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).mul(2).add(1).to(dtype)


def statistics(x):
    """Mean and 1 / deviation of the channels of x, in the dtype that is computed in."""
    mean, var = x.double().mean(dims(x)), x.double().var(dims(x), correction=0)
    return mean.to(computed(x.dtype)), (var + EPS).rsqrt().to(computed(x.dtype))


def vectors(dtype, seed=5):
    """Weight and bias."""
    return random(3, dtype, seed), random(3, dtype, seed + 1)


def on(device, *tensors):
    return [None if t is None else t.to(device) for t in tensors]


class Running:
    """Running mean and variance, before a call and, ``mine``, on the device."""

    def __init__(self, device, which, dtype):
        self.dtype = dtype if which == "of the dtype" else computed(dtype)
        self.old = [None, None] if which == "none" else [random(3, self.dtype, 7), random(3, self.dtype, 8).abs()]
        self.mine = on(device, *self.old)

    def check(self, x):
        """They were updated by those of x, with momentum 0.3."""
        values = x.double().mean(dims(x)), x.double().var(dims(x))
        for new, before, value in zip(self.mine, self.old, values, strict=True):
            if before is not None:
                close(new, before.double() * 0.7 + value * 0.3, self.dtype)


FORMATS = {
    "contiguous": lambda t: t,
    "channels_last": lambda t: t.contiguous(memory_format=torch.channels_last),
    "transposed": lambda t: t.transpose(2, 3),
    "every second": lambda t: t[..., ::2],
}


@shapes_and_dtypes
def test_stats(device, shape, dtype):
    x = random(shape, dtype)
    for found, expected in zip(torch.batch_norm_stats(x.to(device), EPS), statistics(x), strict=True):
        close(found, expected, computed(dtype))


def test_stats_of_large_halves_do_not_overflow(device):
    x = torch.full((64, 2), 60000.0, dtype=torch.float16)
    x[::2] = 50016.0
    mean, invstd = torch.batch_norm_stats(x.to(device), EPS)
    assert mean.tolist() == [55008.0, 55008.0]
    torch.testing.assert_close(invstd.cpu(), torch.full((2,), 1 / 4992.0))


@shapes_and_dtypes
@pytest.mark.parametrize("running", ["of the dtype", "of the statistics", "none"])
def test_update_stats(device, shape, dtype, running):
    x, running = random(shape, dtype), Running(device, running, dtype)
    mean, var = torch.batch_norm_update_stats(x.to(device), *running.mine, 0.3)
    close(mean, x.double().mean(dims(x)), computed(dtype))
    close(var, x.double().var(dims(x), correction=0), computed(dtype))
    running.check(x)


@shapes_and_dtypes
@pytest.mark.parametrize("parameters", ["both", "of the statistics", "weight", "bias", "neither"])
def test_elemt(device, shape, dtype, parameters):
    x = random(shape, dtype)
    weight, bias = vectors(computed(dtype) if parameters == "of the statistics" else dtype)
    weight = weight if parameters not in ("bias", "neither") else None
    bias = bias if parameters not in ("weight", "neither") else None
    mean, invstd = statistics(x)
    expected = (x.double() - along(mean, x)) * along(invstd, x)
    expected = expected * (1 if weight is None else along(weight, x)) + (0 if bias is None else along(bias, x))
    given = on(device, weight, bias, mean, invstd)
    found = torch.batch_norm_elemt(x.to(device), *given, EPS)
    close(found, expected, dtype)
    assert found.stride() == x.stride()
    out = torch.empty(0, dtype=dtype, device=device)
    assert torch.batch_norm_elemt(x.to(device), *given, EPS, out=out) is out
    torch.testing.assert_close(out, found, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("rows", "running"), [(3, "of the dtype"), (3, "of the statistics"), (1, "none")])
def test_gather_stats_are_those_of_all_elements(device, dtype, rows, running):
    """Of parts of different sizes, one for each process."""
    x, running = random((11, 3, 2), dtype), Running(device, running, dtype)
    sizes = [11] if rows == 1 else [2, 8, 1]
    mean, invstd = (torch.stack(t).to(device) for t in zip(*map(statistics, x.split(sizes)), strict=True))
    counts = torch.tensor([2.0 * size for size in sizes], dtype=running.dtype).to(device)
    found = torch.batch_norm_gather_stats_with_counts(x.to(device), mean, invstd, *running.mine, 0.3, EPS, counts)
    for a, b in zip(found, statistics(x), strict=True):
        close(a, b, computed(dtype), within=torch.float32 if dtype != torch.float64 else None)
    running.check(x)


def test_gather_stats_ignores_a_process_without_elements(device):
    """Its statistics are those of nothing: SyncBatchNorm's zeros, or batch_norm_stats' NaN."""
    x = random((4, 3), torch.float32)
    mean, invstd = statistics(x)
    for nothing in (torch.zeros(3), torch.full((3,), torch.nan)):
        rows = [torch.stack([nothing, t, nothing]).to(device) for t in (mean, invstd)]
        counts = torch.tensor([0, 4, 0], dtype=torch.int32).to(device)
        found = torch.batch_norm_gather_stats_with_counts(x.to(device), *rows, None, None, 0.3, EPS, counts)
        for a, b in zip(found, (mean, invstd), strict=True):
            close(a, b, torch.float32)


def test_gather_stats_of_one_count(device):
    x, running = random((8, 3), torch.float32), Running(device, "of the dtype", torch.float32)
    rows = [torch.stack(t).to(device) for t in zip(*map(statistics, x.split(4)), strict=True)]
    found = torch.batch_norm_gather_stats(x.to(device), *rows, *running.mine, 0.3, EPS, 4)
    for a, b in zip(found, statistics(x), strict=True):
        close(a, b, torch.float32)
    running.check(x)


@shapes_and_dtypes
@pytest.mark.parametrize(
    ("weight", "wanted"),
    [
        ("of the dtype", (True, True, True)),
        ("of the statistics", (True, False, False)),
        ("of the dtype", (False, True, False)),
        ("none", (False, False, True)),
    ],
)
def test_backward_reduce(device, shape, dtype, weight, wanted):
    x, grad = random(shape, dtype), random(shape, dtype, 3)
    of = dtype if weight == "of the dtype" else computed(dtype)
    w = None if weight == "none" else vectors(of)[0].to(device)
    mean, invstd = statistics(x)
    sum_dy = grad.double().sum(dims(x))
    sum_dy_xmu = (grad.double() * (x.double() - along(mean, x))).sum(dims(x))
    expected = [sum_dy, sum_dy_xmu, sum_dy_xmu * invstd.double(), sum_dy]
    found = torch.batch_norm_backward_reduce(*on(device, grad, x, mean, invstd), w, *wanted)
    types = [computed(dtype), computed(dtype), of, of]
    for a, b, type, there in zip(found, expected, types, (wanted[0], *wanted), strict=True):
        assert (a is not None) == there
        if there:
            close(a / b.abs().max().to(a), b / b.abs().max(), type)


@shapes_and_dtypes
@pytest.mark.parametrize("weight", [True, False])
def test_backward_elemt_is_the_gradient_of_the_whole(device, shape, dtype, weight):
    """autograd's gradient of a batch norm of all elements, of which this process has the first half."""
    whole, grad = random((2 * shape[0], *shape[1:]), dtype), random((2 * shape[0], *shape[1:]), dtype, 3)
    w = vectors(dtype)[0] if weight else None
    mean, invstd = statistics(whole)
    leaf = whole.double().requires_grad_()
    norm = torch.nn.functional.batch_norm(leaf, None, None, None if w is None else w.double(), training=True, eps=EPS)
    (expected,) = torch.autograd.grad(norm, leaf, grad.double())
    w = None if w is None else w.to(computed(dtype))
    sums = [(grad.double() * of).sum(dims(whole)) for of in (1, whole.double() - along(mean, whole))]
    sums, counts = [t.to(computed(dtype)) for t in sums], torch.tensor([whole.numel() // 6] * 2, dtype=torch.int32)
    call = on(device, grad[: shape[0]], whole[: shape[0]], mean, invstd, w, *sums, counts)
    found = torch.batch_norm_backward_elemt(*call)
    close(found, expected[: shape[0]], dtype)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_layouts(device, format, dtype):
    """Values do not depend on strides; the results of elements have those of torch.empty_like."""
    x, grad = (FORMATS[format](random((2, 3, 4, 6), dtype, seed).to(device)) for seed in (0, 3))
    mean, invstd = torch.batch_norm_stats(x, EPS)
    sums = torch.batch_norm_backward_reduce(grad, x, mean, invstd, None, True, False, False)[:2]
    count = torch.tensor([x.numel() // 3], dtype=torch.int32).to(device)
    y = torch.batch_norm_elemt(x, None, None, mean, invstd, EPS)
    dx = torch.batch_norm_backward_elemt(grad, x, mean, invstd, None, *sums, count)
    a, b = x.cpu().double().contiguous().requires_grad_(), grad.cpu().double().contiguous()
    expected = torch.nn.functional.batch_norm(a, None, None, training=True, eps=EPS)
    close(y, expected.detach(), dtype)
    close(dx, torch.autograd.grad(expected, a, b)[0], dtype)
    assert y.stride() == dx.stride() == torch.empty_like(x).stride()


@pytest.mark.parametrize("shape", [(0, 3), (0, 3, 4, 4), (2, 3, 0)], ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.filterwarnings("error")
def test_no_elements(device, shape, dtype):
    x = torch.empty(shape, dtype=dtype, device=device)
    mean, invstd = torch.batch_norm_stats(x, EPS)
    assert mean.shape == invstd.shape == (3,)
    assert mean.isnan().all()
    assert invstd.isnan().all()
    assert torch.batch_norm_elemt(x, None, None, mean, invstd, EPS).shape == shape
    sums = torch.batch_norm_backward_reduce(x, x, mean, invstd, None, True, True, True)
    assert [t.tolist() for t in (sums[0], sums[1], sums[3])] == [[0.0] * 3] * 3
    count = torch.tensor([0, 4], dtype=torch.int32).to(device)
    assert torch.batch_norm_backward_elemt(x, x, mean, invstd, None, *sums[:2], count).shape == shape
    with pytest.raises(RuntimeError, match="at least one element"):
        torch.batch_norm_update_stats(x, None, None, 0.1)


def test_bad_input(device):
    x, three, four = (torch.ones(shape, device=device) for shape in ((2, 3), (3,), (4,)))
    for call, arguments, text in [
        (torch.batch_norm_stats, (x.int(),), "batch_norm_stats: input must be of a floating point dtype"),
        (torch.batch_norm_stats, (three,), "one of channels, and has 1 dimensions"),
        (torch.batch_norm_elemt, (x, four, None, three, three), "weight must have an element for each of the 3"),
        (torch.batch_norm_elemt, (x, None, None, four, three), "mean must have .* and has 4"),
    ]:
        with pytest.raises(RuntimeError, match=text):
            call(*arguments, EPS)
    with pytest.raises(RuntimeError, match="a row, and counts an element for each process"):
        torch.batch_norm_gather_stats(x, three, three, None, None, 0.1, EPS, 2)
