"""Sorting, parts of an order, modes and sets against the CPU: values, places, strides, forms, errors."""

from functools import partial

import pytest
import torch

from portable.compare import each, same_error, with_gradients

F32, I64 = torch.float32, torch.int64
EVERY = [F32, I64, torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.int16, torch.int8, torch.uint8]
each_number = pytest.mark.parametrize("dtype", each(EVERY, *EVERY[:3]))
each_dtype = pytest.mark.parametrize("dtype", each([*EVERY, torch.bool], *EVERY[:2]))
INF, NAN = float("inf"), float("nan")


def tensor(shape, dtype=F32, seed=0):
    """Numbers of both signs, some of which are equal."""
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 40
    if dtype == torch.bool:
        return values > 0
    return values.abs().round().to(dtype) if dtype == torch.uint8 else values.round().to(dtype)


def edges():
    return torch.tensor(
        [
            [3.0, 1, NAN, 2, NAN, -0.0],
            [1, 2, 3, -INF, INF, NAN],
            [NAN] * 6,
            [1, 1, 2, 2, 0, -0.0],
            [0, -0.0, 0, -0.0, 1, INF],
        ]
    )


def bits(tensor):
    return tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: I64}[tensor.element_size()])


def compare(got, expected):
    """Of several results all; values by their bits."""
    if isinstance(expected, tuple):
        for a, b in zip(got, expected, strict=True):
            compare(a, b)
        return
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert got.stride() == expected.stride() or expected.numel() < 2
    torch.testing.assert_close(bits(got.cpu()), bits(expected), rtol=0, atol=0)


def selected(x, dim):
    """Compares values and indices: an index is any that has the value, and none is returned twice."""

    def check(got, expected):
        for one, other in zip(got, expected, strict=True):
            assert one.stride() == other.stride() or other.numel() < 2
            assert one.dtype == other.dtype
        values, places = expected[0], got[1].cpu()
        torch.testing.assert_close(got[0].cpu(), values, rtol=0, atol=0, equal_nan=True)
        if x.dim() == 0:
            assert places == 0
            return
        if places.dim() < x.dim():
            places = places.unsqueeze(dim)
        found = x.gather(dim, places).reshape(values.shape)
        torch.testing.assert_close(found, values, rtol=0, atol=0, equal_nan=True)
        assert not (places.sort(dim).values.diff(dim=dim) == 0).any()

    return check


@pytest.fixture
def agree(agree):
    return partial(agree, compare=compare)


@pytest.fixture
def select(agree):
    """A function of a tensor and a dimension that returns values and indices."""

    def check(kernel, function, x, *inputs, dim=-1, **keywords):
        agree(kernel, function, x, *inputs, dim=dim, compare=selected(x, dim), **keywords)

    return check


# Short rows, and long ones on one item and on many.
SIZES = [(7, 1), (5, 17), (300, 16), (3, 64), (4, 65), (3, 700), (2, 5000)]


@each_dtype
def test_sort(agree, dtype):
    for shape in ((6, 50), (3, 700), (1, 5000)):
        x = tensor(shape, dtype)
        for descending in (False, True):
            agree("sort.stable", torch.sort, x, dim=1, descending=descending, stable=True)
        agree("sort.stable", torch.argsort, x, dim=1, descending=True, stable=True)


def test_sort_sizes(agree):
    for shape in SIZES:
        wide = torch.arange(shape[0] * shape[1]).reshape(shape).flip(1) << 33
        for x in (torch.randn(shape), tensor(shape, I64), wide):
            agree("sort.stable", torch.sort, x, dim=1, stable=True)


@pytest.mark.long
def test_sort_of_a_million(agree):
    million = (1_000_000,)
    for x in (torch.randn(million), torch.randn(million).double(), torch.randint(-(2**62), 2**62, million)):
        for descending in (False, True):
            agree("sort.stable", torch.sort, x, stable=True, descending=descending)


def test_sort_layouts(agree):
    x = tensor((6, 8, 5))
    for view in (
        x,
        x.permute(2, 0, 1),
        x.transpose(0, 1),
        x[:, ::2],
        x[:, :1].expand(6, 8, 5),
        x[:, 3],
        x[:1],
        x.unsqueeze(1),
    ):
        for dim in range(-view.dim(), view.dim()):
            agree("sort.stable", torch.sort, view, dim=dim, stable=True)


@pytest.mark.parametrize("descending", [False, True])
def test_sort_edges(agree, descending):
    x = edges()
    for one in (x, x.t(), x.bfloat16(), x.half(), x.double(), x.repeat(1, 30)):
        agree("sort.stable", torch.sort, one, dim=-1, descending=descending, stable=True)
    for empty in (torch.empty(0), torch.empty(3, 0), torch.empty(0, 3), torch.tensor(3.0)):
        for dim in range(max(empty.dim(), 1)):
            agree(None, torch.sort, empty, dim, descending)
    payload = torch.tensor([0x7FC00001, 0x7FC00002, 0x3F800000, 0xFFC00003 - 2**32], dtype=torch.int32).view(F32)
    agree("sort.stable", torch.sort, payload, stable=True)


def outs(shape, device):
    """Values and indices: empty, and with gaps."""
    yield torch.empty(0, device=device), torch.empty(0, dtype=I64, device=device)
    gaps = torch.empty(*shape, 2, device=device)
    yield gaps[..., 0], gaps.long()[..., 1]


def test_sort_forms(agree, device, ran):
    x = tensor((5, 70))
    y = x.to(device)
    turned = torch.empty(5, 70, device=device), torch.empty(70, 5, dtype=I64, device=device).t()
    for out in (*outs(x.shape, device), turned):
        for dim in (0, 1):
            with ran("sort.stable"):
                torch.sort(y, dim=dim, stable=True, out=out)
            expected = x.sort(dim=dim, stable=True)
            assert torch.equal(out[0].cpu(), expected.values)
            assert torch.equal(out[1].cpu(), expected.indices)
    agree(None, torch.msort, x)
    agree(None, torch.argsort, x, dim=0, stable=True)
    torch.testing.assert_close(torch.quantile(y, 0.3, dim=1).cpu(), torch.quantile(x, 0.3, dim=1))
    with pytest.raises(RuntimeError, match=r"Expected .*out"):
        torch.sort(y, out=(torch.empty(0, dtype=I64, device=device), torch.empty(0, dtype=I64, device=device)))


def unordered(t, k, dim):
    """The largest in order, as ``sorted=False`` has them in any."""
    return t.gather(dim, t.topk(k, dim, sorted=False).indices.sort(dim).values).sort(dim).values


@each_number
def test_selections(agree, select, dtype):
    for shape in ((6, 40), (4, 200), (2, 3000)):
        x = tensor(shape, dtype)
        for k, largest in ((1, True), (5, True), (7, False)):
            select("topk", torch.topk, x, k, largest=largest)
        agree("topk", unordered, x, shape[1] // 3, 1)
        select("kthvalue", torch.kthvalue, x, 11)
        select("median.dim_values", torch.median, x)
        select("nanmedian.dim_values", torch.nanmedian, x, keepdim=True)
        agree("median", torch.median, x)
        agree("nanmedian", torch.nanmedian, x)


@pytest.mark.parametrize("shape", [(1,), (65,), (257,), (3000,), (3, 1), (40, 9), (2, 256), (2, 2049)])
def test_selection_sizes(select, shape):
    x, size = torch.randn(shape), shape[-1]
    for k in {1, (size + 1) // 4 + 1, (size + 1) // 2, size}:
        select("topk", torch.topk, x, k)
        select("topk", torch.topk, x, k, largest=False)
        select("kthvalue", torch.kthvalue, x, k)
    select("median.dim_values", torch.median, x)
    same = torch.full(shape, 2.5)
    select("topk", torch.topk, same, k)
    select("median.dim_values", torch.median, same)


@each_number
def test_the_first_few_of_many_rows(select, dtype):
    """Rows side by side, 16 at a time; one element by a reduction."""
    for shape in ((33, 16), (16, 70), (5, 40, 3)):
        x = tensor(shape, dtype)
        for k in (1, 2, 3, 8, 16):
            for largest in (True, False):
                select("topk", torch.topk, x, min(k, shape[-1]), largest=largest)
                select("topk", torch.topk, x, min(k, shape[0]), dim=0, largest=largest)


def test_the_first_few_are_nan(agree):
    x = torch.randn(20, 9)
    x[0], x[1, ::2], x[2, 3], x[3, 1:] = NAN, NAN, NAN, INF
    for k in (1, 4, 9):
        for largest in (True, False):
            agree("topk", lambda t, k=k, largest=largest: t.topk(k, 1, largest).values, x)


MISLEADING = [
    lambda n: torch.arange(n),
    lambda n: torch.arange(n).flip(0),
    lambda n: torch.arange(n) % 64,
    lambda n: torch.arange(n) // (n // 64) % 2,
    lambda n: torch.full((n,), NAN),
    lambda n: torch.where(torch.arange(n) % (n // 64) == 0, -1, torch.arange(n)),
    lambda n: torch.where(torch.arange(n) % (n // 64) == 0, n, torch.arange(n)),
]


def test_a_sample_may_mislead(select):
    """One item looks at 64 elements of such rows first: all that are extreme, none, or equal ones."""
    for make in MISLEADING:
        x = torch.stack([make(6400), make(6400).flip(0), torch.randn(6400)]).float()
        for largest in (False, True):
            for k in (1, 9, 100):
                select("topk", torch.topk, x, k, largest=largest)


def test_selection_layouts_and_edges(agree, select):
    x = tensor((6, 8, 5))
    calls = (
        lambda t, dim: t.topk(1 if t.dim() == 0 else 3, dim),
        lambda t, dim: t.kthvalue(1 if t.dim() == 0 else 3, dim),
        lambda t, dim: t.median(dim),
        lambda t, dim: t.nanmedian(dim, True),
        lambda t, dim: t.mode(dim),
        lambda t, dim: t.mode(dim, True),
    )
    for view in (x, x.permute(2, 0, 1), x[:, ::2], x[0, 0, 0]):
        for dim in range(-max(view.dim(), 1), max(view.dim(), 1)):
            for call in calls:
                select(None, call, view, dim=dim)
    close = partial(torch.testing.assert_close, equal_nan=True, check_device=False)
    for one in (edges(), edges().repeat(1, 60), edges().bfloat16()):
        for call in calls[:4]:  # the CPU's mode loses its way where there is NaN
            for dim in (0, 1):
                select(None, call, one, dim=dim)
        for function in (torch.median, torch.nanmedian):
            agree(None, function, one, compare=close)
    for empty in (torch.empty(0, 4), torch.empty(3, 0, 4)):
        for call in calls:
            agree(None, call, empty, -1)
    agree(None, torch.topk, torch.empty(3, 0), 0)
    agree(None, torch.topk, x, 0)
    for function in (torch.median, torch.nanmedian):
        agree(None, function, torch.empty(0), compare=close)


def test_an_expanded_dimension_is_selected_from(device):
    """The CPU's median and k-th value move the elements of a copy that keeps such a dimension's stride."""
    x = tensor((6, 8, 5))
    y = x.to(device)[:, :1].expand(6, 8, 5)
    for got in (y.median(1), y.nanmedian(1), y.kthvalue(2, 1), y.mode(1)):
        compare(got.values, x[:, 0].clone())
    compare(y.topk(2, 1).values, x[:, :1].repeat(1, 2, 1))


def test_selection_forms(device, ran):
    x = tensor((5, 70))
    y = x.to(device)
    calls = {
        "topk": lambda t, o: torch.topk(t, 4, 0, out=o),
        "kthvalue": lambda t, o: torch.kthvalue(t, 3, 0, out=o),
        "median.dim_values": lambda t, o: torch.median(t, 0, out=o),
        "nanmedian.dim_values": lambda t, o: torch.nanmedian(t, 0, out=o),
        "mode": lambda t, o: torch.mode(t, 0, out=o),
    }
    for name, call in calls.items():
        expected = call(x, (torch.empty(0), torch.empty(0, dtype=I64)))
        for out in outs(expected[0].shape, device):
            with ran(name):
                call(y, out)
            selected(x, 0)([t.contiguous() for t in out], expected)


def test_errors_are_the_cpus(device):
    x = tensor((3, 4))
    for call in (
        lambda t: t.sort(2),
        lambda t: t.topk(5),
        lambda t: t.topk(-1),
        lambda t: t.topk(1, 2),
        lambda t: t.kthvalue(0),
        lambda t: t.kthvalue(5),
        lambda t: t.median(-3),
        lambda t: t.mode(2),
        lambda t: t[:, :0].kthvalue(1),
        lambda t: t[:, :0].median(1),
        lambda t: t[:, :0].mode(1),
        lambda t: (t > 0).topk(1),
        lambda t: (t > 0).median(),
        lambda t: t.unique(dim=2),
        lambda t: t[:, :0].unique(dim=0),
        lambda t: torch.isin(t > 0, t > 0),
    ):
        same_error(device, call, x)
    same_error(device, lambda t: t.sort(), torch.randn(3, dtype=torch.complex64))


@each_dtype
def test_mode(agree, select, dtype):
    for shape in ((6, 50), (3, 700)):
        for dim in (0, 1):
            select("mode", torch.mode, tensor(shape, dtype), dim=dim)
    agree("mode", torch.mode, torch.tensor([[1, 2, 2, 5, 5, 0], [4, 3, 2, 1, 0, 9]]).to(dtype), 1)


# Those of several elements; in every combination of what is asked for.
@each_dtype
def test_unique(agree, dtype):
    x = tensor((9, 31), dtype) if dtype == torch.bool else (tensor((9, 31)) % 17).abs().to(dtype)
    ordered = x.sort().values
    for inverse in (False, True):
        for counts in (False, True):
            agree("_unique2", torch._unique2, x, True, inverse, counts)
            agree("unique_consecutive", torch.ops.aten.unique_consecutive, ordered, inverse, counts)
    agree("_unique", torch._unique, x, False, True)


def test_unique_edges(agree):
    for x in (
        torch.empty(0),
        torch.empty(0, 3),
        torch.tensor(3),
        torch.tensor([7]),
        tensor((4, 5)).t(),
        torch.tensor([3.0, NAN, 1, NAN, 3, INF, 0]),
        torch.randint(0, 50, (20_000,)),
    ):
        for flags in ((False, False), (True, True)):
            agree("_unique2", torch._unique2, x, True, *flags)
            agree("unique_consecutive", torch.ops.aten.unique_consecutive, x, *flags)


def test_unique_slices(agree):
    x = torch.randint(0, 2, (20, 3, 2))
    for one in (x, x.float(), x.bool(), x.transpose(0, 1)):
        for dim in (0, 1, -1):
            agree("unique_dim", torch.ops.aten.unique_dim, one, dim, True, True, True)
            agree("unique_consecutive", torch.unique_consecutive, one, True, True, dim)
    agree("unique_dim_consecutive", torch.ops.aten.unique_dim_consecutive, x, 0)
    one = torch.tensor([[1.0, NAN], [0, 1], [1, NAN], [0, 1]])
    agree(None, torch.unique, one, dim=0)
    agree(None, torch.unique_consecutive, one, dim=0)


@each_number
def test_isin(agree, dtype):
    x, tests = tensor((9, 31), dtype), tensor((50,), dtype, 1)
    for one in (tests, tests[:2], tests[:0], tests[:49].view(7, 7).t(), tensor((333,), dtype, 2)):
        for invert in (False, True):
            agree("isin.Tensor_Tensor", torch.isin, x, one, invert=invert)


def test_isin_forms(agree, device, ran):
    x = edges()
    tests, whole = torch.tensor([NAN, -0.0, 3, INF]), torch.tensor([0, 3])
    for one in (tests, whole, torch.cat([tests, torch.arange(-9, 300)])):
        agree(None, torch.isin, x, one)
    out = torch.empty(0, dtype=torch.bool, device=device)
    with ran("isin.Tensor_Tensor"):
        torch.isin(x.t().to(device), tests.to(device), out=out)
    compare(out, torch.isin(x.t().contiguous(), tests))
    agree("isin.Tensor_Scalar", torch.isin, x, 3, invert=True)
    agree("isin.Scalar_Tensor", torch.isin, 3, x)
    agree(None, torch.isin, torch.tensor(3), whole)


def test_gradients_are_the_cpus(device):
    def function(x):
        total = (x.sort(1).values ** 2 * torch.arange(30, device=x.device)).sum() + x.topk(3, 0).values.sum()
        return total + x.median(1).values.sum() * 3 + x.kthvalue(4, 1).values.sum() + x.median()

    x = torch.randn(6, 30)
    torch.testing.assert_close(with_gradients(function, device, x)[1].cpu(), with_gradients(function, "cpu", x)[1])
