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
    x, of = random(shape, dtype), dtype if running == "of the dtype" else computed(dtype)
    mean, var = x.double().mean(dims(x)), x.double().var(dims(x), correction=0)
    old = [None, None] if running == "none" else [random(3, of, 7), random(3, of, 8).abs()]
    mine = [None if t is None else t.to(device) for t in old]
    found = torch.batch_norm_update_stats(x.to(device), *mine, 0.3)
    close(found[0], mean, computed(dtype))
    close(found[1], var, computed(dtype))
    if running != "none":
        for new, before, value in zip(mine, old, [mean, x.double().var(dims(x))], strict=True):
            close(new, before.double() * 0.7 + value * 0.3, of)


@shapes_and_dtypes
@pytest.mark.parametrize("parameters", ["both", "of the statistics", "weight", "bias", "neither"])
def test_elemt(device, shape, dtype, parameters):
    x = random(shape, dtype)
    weight, bias = vectors(computed(dtype) if parameters == "of the statistics" else dtype)
    weight = weight if parameters not in ("bias", "neither") else None
    bias = bias if parameters not in ("weight", "neither") else None
    mean, invstd = statistics(x)
    expected = (x.double() - along(mean, x)) * along(invstd, x)
    if weight is not None:
        expected = expected * along(weight, x)
    if bias is not None:
        expected = expected + along(bias, x)
    given = [None if t is None else t.to(device) for t in (weight, bias, mean, invstd)]
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
    x, of = random((11, 3, 2), dtype), dtype if running == "of the dtype" else computed(dtype)
    sizes = [11] if rows == 1 else [2, 8, 1]
    each = [statistics(part) for part in x.split(sizes)]
    mean, invstd = (torch.stack([pair[i] for pair in each]).to(device) for i in (0, 1))
    old = [None, None] if running == "none" else [random(3, of, 7), random(3, of, 8).abs()]
    mine = [None if t is None else t.to(device) for t in old]
    counts = torch.tensor([2.0 * size for size in sizes], dtype=of).to(device)
    found = torch.batch_norm_gather_stats_with_counts(x.to(device), mean, invstd, *mine, 0.3, EPS, counts)
    for a, b in zip(found, statistics(x), strict=True):
        close(a, b, computed(dtype), within=torch.float32 if dtype != torch.float64 else None)
    if running != "none":
        for new, before, value in zip(mine, old, [x.double().mean(dims(x)), x.double().var(dims(x))], strict=True):
            close(new, before.double() * 0.7 + value * 0.3, of)


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
    x = random((8, 3), torch.float32)
    rows = [torch.stack(t).to(device) for t in zip(*(statistics(part) for part in x.split(4)), strict=True)]
    running = [torch.zeros(3, device=device), torch.ones(3, device=device)]
    found = torch.batch_norm_gather_stats(x.to(device), *rows, *running, 0.5, EPS, 4)
    for a, b in zip(found, statistics(x), strict=True):
        close(a, b, torch.float32)
    close(running[0], x.mean(0) * 0.5, torch.float32)
    close(running[1], 0.5 + x.var(0) * 0.5, torch.float32)


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
    on_device = [t.to(device) for t in (grad, x, mean, invstd)]
    sum_dy = grad.double().sum(dims(x))
    sum_dy_xmu = (grad.double() * (x.double() - along(mean, x))).sum(dims(x))
    expected = [
        (sum_dy, computed(dtype)),
        (sum_dy_xmu, computed(dtype)),
        (sum_dy_xmu * invstd.double(), of),
        (sum_dy, of),
    ]
    found = torch.batch_norm_backward_reduce(*on_device, w, *wanted)
    for a, (b, type), there in zip(found, expected, (wanted[0], *wanted), strict=True):
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
    sums = [
        grad.double().sum(dims(whole)).to(computed(dtype)),
        (grad.double() * (whole.double() - along(mean, whole))).sum(dims(whole)).to(computed(dtype)),
    ]
    half = whole.numel() // 3 // 2
    found = torch.batch_norm_backward_elemt(
        *(t.to(device) for t in (grad[: shape[0]], whole[: shape[0]], mean, invstd)),
        None if w is None else w.to(device, computed(dtype)),
        *(t.to(device) for t in sums),
        torch.tensor([half, half], dtype=torch.int32).to(device),
    )
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
    x = torch.ones(2, 3, device=device)
    three, four = torch.ones(3, device=device), torch.ones(4, device=device)
    for call, text in [
        (lambda: torch.batch_norm_stats(x.int(), EPS), "batch_norm_stats: input must be of a floating point dtype"),
        (lambda: torch.batch_norm_stats(three, EPS), "one of channels, and has 1 dimensions"),
        (
            lambda: torch.batch_norm_elemt(x, four, None, three, three, EPS),
            "weight must have an element for each of the 3",
        ),
        (lambda: torch.batch_norm_elemt(x, None, None, four, three, EPS), "mean must have .* and has 4"),
        (
            lambda: torch.batch_norm_gather_stats(x, three, three, None, None, 0.1, EPS, 2),
            r"a row, and counts an element for each process",
        ),
    ]:
        with pytest.raises(RuntimeError, match=text):
            call()
