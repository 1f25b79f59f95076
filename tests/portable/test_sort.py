"""Sorting, parts of an order, modes and sets against the CPU: values, places, strides, forms, errors."""

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


def compare_selected(got, expected, x, dim):
    """Values as expected; an index is any that has the value, and none is returned twice."""
    assert got[0].stride() == expected[0].stride() or expected[0].numel() < 2
    assert got[1].stride() == expected[1].stride() or expected[0].numel() < 2
    assert got[0].dtype == expected[0].dtype
    assert got[1].dtype == I64
    torch.testing.assert_close(got[0].cpu(), expected[0], rtol=0, atol=0, equal_nan=True)
    places = got[1].cpu()
    if x.dim() == 0:
        assert places == 0
        return
    if places.dim() < x.dim():
        places = places.unsqueeze(dim)
    torch.testing.assert_close(
        x.gather(dim, places).reshape(expected[0].shape), expected[0], rtol=0, atol=0, equal_nan=True
    )
    ordered = places.sort(dim).values
    assert not (ordered.diff(dim=dim) == 0).any()


# Short rows, and long ones on one item and on many.
SIZES = [(7, 1), (5, 17), (300, 16), (3, 64), (4, 65), (3, 700), (2, 5000)]


@each_dtype
def test_sort(device, ran, dtype):
    for shape in ((6, 50), (3, 700), (1, 5000)):
        x = tensor(shape, dtype)
        y = x.to(device)
        with ran("sort.stable"):
            for descending in (False, True):
                got = y.sort(dim=1, descending=descending, stable=True)
                compare(tuple(got), tuple(x.sort(dim=1, descending=descending, stable=True)))
                places = torch.argsort(y, dim=1, descending=descending, stable=True)
        compare(places, x.argsort(dim=1, descending=True, stable=True))


def test_sort_sizes(device):
    for shape in SIZES:
        wide = torch.arange(shape[0] * shape[1]).reshape(shape).flip(1) << 33
        for x in (torch.randn(shape), tensor(shape, I64), wide):
            compare(tuple(x.to(device).sort(dim=1, stable=True)), tuple(x.sort(dim=1, stable=True)))


@pytest.mark.long
def test_sort_of_a_million(device):
    for x in (
        torch.randn(1_000_000),
        torch.randn(1_000_000, dtype=torch.float64),
        torch.randint(-(2**62), 2**62, (1_000_000,)),
    ):
        compare(tuple(x.to(device).sort(stable=True)), tuple(x.sort(stable=True)))
        compare(tuple(x.to(device).sort(stable=True, descending=True)), tuple(x.sort(stable=True, descending=True)))


def test_sort_layouts(device):
    x = tensor((6, 8, 5))
    y = x.to(device)
    for view in (
        lambda t: t,
        lambda t: t.permute(2, 0, 1),
        lambda t: t.transpose(0, 1),
        lambda t: t[:, ::2],
        lambda t: t[:, :1].expand(6, 8, 5),
        lambda t: t[:, 3],
        lambda t: t[:1],
        lambda t: t.unsqueeze(1),
    ):
        for dim in range(-view(x).dim(), view(x).dim()):
            compare(tuple(view(y).sort(dim=dim, stable=True)), tuple(view(x).sort(dim=dim, stable=True)))


@pytest.mark.parametrize("descending", [False, True])
def test_sort_edges(device, descending):
    x = edges()
    for one in (x, x.t(), x.bfloat16(), x.half(), x.double()):
        compare(
            tuple(one.to(device).sort(dim=-1, descending=descending, stable=True)),
            tuple(one.sort(dim=-1, descending=descending, stable=True)),
        )
    many = x.repeat(1, 30)
    got, expected = (
        many.to(device).sort(dim=1, descending=descending, stable=True),
        many.sort(dim=1, descending=descending, stable=True),
    )
    compare(tuple(got), tuple(expected))
    for empty in (torch.empty(0), torch.empty(3, 0), torch.empty(0, 3), torch.tensor(3.0)):
        for dim in range(max(empty.dim(), 1)):
            compare(tuple(empty.to(device).sort(dim, descending)), tuple(empty.sort(dim, descending)))
    payload = torch.tensor([0x7FC00001, 0x7FC00002, 0x3F800000, 0xFFC00003 - 2**32], dtype=torch.int32).view(F32)
    compare(tuple(payload.to(device).sort(stable=True)), tuple(payload.sort(stable=True)))


def test_sort_forms(device, ran):
    x = tensor((5, 70))
    y = x.to(device)
    for out in (
        (torch.empty(0, device=device), torch.empty(0, dtype=I64, device=device)),
        (torch.empty(5, 70, device=device), torch.empty(70, 5, dtype=I64, device=device).t()),
        (torch.empty(5, 140, device=device)[:, ::2], torch.empty(5, 70, 2, dtype=I64, device=device)[..., 1]),
    ):
        for dim in (0, 1):
            with ran("sort.stable"):
                torch.sort(y, dim=dim, stable=True, out=out)
            expected = x.sort(dim=dim, stable=True)
            assert torch.equal(out[0].cpu(), expected.values)
            assert torch.equal(out[1].cpu(), expected.indices)
    compare(torch.msort(y), torch.msort(x))
    compare(y.argsort(dim=0, stable=True), x.argsort(dim=0, stable=True))
    torch.testing.assert_close(torch.quantile(y, 0.3, dim=1).cpu(), torch.quantile(x, 0.3, dim=1))
    with pytest.raises(RuntimeError, match=r"Expected .*out"):
        torch.sort(y, out=(torch.empty(0, dtype=I64, device=device), torch.empty(0, dtype=I64, device=device)))


@each_number
def test_selections(device, ran, dtype):
    for shape in ((6, 40), (4, 200), (2, 3000)):
        x = tensor(shape, dtype)
        y = x.to(device)
        for k, largest, ordered in ((1, True, True), (5, True, True), (7, False, True), (shape[1] // 3, True, False)):
            with ran("topk"):
                got = y.topk(k, 1, largest, ordered)
            expected = x.topk(k, 1, largest, ordered)
            if not ordered:
                got, expected = y.gather(1, got.indices.sort(1).values).sort(1), expected.values.sort(1)
                compare(got.values, expected.values)
                continue
            compare_selected(got, expected, x, 1)
        with ran("kthvalue"):
            compare_selected(y.kthvalue(11, 1), x.kthvalue(11, 1), x, 1)
        with ran("median.dim_values"):
            compare_selected(y.median(1), x.median(1), x, 1)
        with ran("nanmedian.dim_values"):
            compare_selected(y.nanmedian(1, True), x.nanmedian(1, True), x, 1)
        with ran("median"):
            compare(y.median(), x.median())
        with ran("nanmedian"):
            compare(y.nanmedian(), x.nanmedian())


@pytest.mark.parametrize("shape", [(1,), (65,), (257,), (3000,), (3, 1), (40, 9), (2, 256), (2, 2049)])
def test_selection_sizes(device, shape):
    x = torch.randn(shape)
    y = x.to(device)
    size = shape[-1]
    for k in {1, (size + 1) // 4 + 1, (size + 1) // 2, size}:
        compare_selected(y.topk(k), x.topk(k), x, -1)
        compare_selected(y.topk(k, largest=False), x.topk(k, largest=False), x, -1)
        compare_selected(y.kthvalue(k), x.kthvalue(k), x, -1)
    compare_selected(y.median(-1), x.median(-1), x, -1)
    same = torch.full(shape, 2.5)
    compare_selected(same.to(device).topk(k), same.topk(k), same, -1)
    compare_selected(same.to(device).median(-1), same.median(-1), same, -1)


MISLEADING = [
    lambda n: torch.arange(n),
    lambda n: torch.arange(n).flip(0),
    lambda n: torch.arange(n) % 64,
    lambda n: torch.arange(n) // (n // 64) % 2,
    lambda n: torch.full((n,), NAN),
    lambda n: torch.where(torch.arange(n) % (n // 64) == 0, -1, torch.arange(n)),
    lambda n: torch.where(torch.arange(n) % (n // 64) == 0, n, torch.arange(n)),
]


def test_a_sample_may_mislead(device):
    """One item looks at 64 elements of such rows first: all that are extreme, none, or equal ones."""
    for make in MISLEADING:
        x = torch.stack([make(6400), make(6400).flip(0), torch.randn(6400)]).float()
        for largest in (False, True):
            for k in (1, 9, 100):
                compare_selected(x.to(device).topk(k, 1, largest), x.topk(k, 1, largest), x, 1)


def test_selection_layouts_and_edges(device):
    x = tensor((6, 8, 5))
    y = x.to(device)
    views = (
        lambda t: t,
        lambda t: t.permute(2, 0, 1),
        lambda t: t[:, ::2],
        lambda t: t[0, 0, 0],
    )
    calls = (
        lambda t, d: t.topk(1 if t.dim() == 0 else 3, d),
        lambda t, d: t.kthvalue(1 if t.dim() == 0 else 3, d),
        lambda t, d: t.median(d),
        lambda t, d: t.nanmedian(d, True),
        lambda t, d: t.mode(d),
        lambda t, d: t.mode(d, True),
    )
    for view in views:
        for dim in range(-max(view(x).dim(), 1), max(view(x).dim(), 1)):
            for call in calls:
                compare_selected(call(view(y), dim), call(view(x), dim), view(x), dim)
    for one in (edges(), edges().repeat(1, 60), edges().bfloat16()):
        for call in calls[:4]:  # the CPU's mode loses its way where there is NaN
            for dim in (0, 1):
                compare_selected(call(one.to(device), dim), call(one, dim), one, dim)
        for function in (torch.median, torch.nanmedian):
            torch.testing.assert_close(function(one.to(device)).cpu(), function(one), equal_nan=True)
    for empty in (torch.empty(0, 4), torch.empty(3, 0, 4)):
        for call in calls:
            expected = call(empty, -1)
            for a, b in zip(call(empty.to(device), -1), expected, strict=True):
                compare(a, b)
    compare(tuple(torch.empty(3, 0).to(device).topk(0)), tuple(torch.empty(3, 0).topk(0)))
    compare(tuple(y.topk(0)), tuple(x.topk(0)))
    for call in (torch.median, torch.nanmedian):
        torch.testing.assert_close(call(torch.empty(0).to(device)).cpu(), call(torch.empty(0)), equal_nan=True)


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
        shape = expected[0].shape
        for out in (
            (torch.empty(0, device=device), torch.empty(0, dtype=I64, device=device)),
            (torch.empty(*shape, 2, device=device)[..., 0], torch.empty(*shape, 2, dtype=I64, device=device)[..., 1]),
        ):
            with ran(name):
                call(y, out)
            compare_selected([t.contiguous() for t in out], expected, x, 0)


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
def test_mode(device, ran, dtype):
    for shape in ((6, 50), (3, 700)):
        x = tensor(shape, dtype)
        for dim in (0, 1):
            with ran("mode"):
                got = x.to(device).mode(dim)
            compare_selected(got, x.mode(dim), x, dim)
    x = torch.tensor([[1, 2, 2, 5, 5, 0], [4, 3, 2, 1, 0, 9]]).to(dtype)
    compare(tuple(x.to(device).mode(1)), tuple(x.mode(1)))


# Those of several elements; in every combination of what is asked for.
@each_dtype
def test_unique(device, ran, dtype):
    x = tensor((9, 31), dtype) if dtype == torch.bool else (tensor((9, 31)) % 17).abs().to(dtype)
    ordered = x.sort().values
    for inverse in (False, True):
        for counts in (False, True):
            with ran("_unique2"):
                got = torch._unique2(x.to(device), True, inverse, counts)
            compare(got, torch._unique2(x, True, inverse, counts))
            with ran("unique_consecutive"):
                got = torch.ops.aten.unique_consecutive(ordered.to(device), inverse, counts)
            compare(got, torch.ops.aten.unique_consecutive(ordered, inverse, counts))
    with ran("_unique"):
        compare(torch._unique(x.to(device), False, True), torch._unique(x, False, True))


def test_unique_edges(device):
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
            compare(torch._unique2(x.to(device), True, *flags), torch._unique2(x, True, *flags))
            got = torch.ops.aten.unique_consecutive(x.to(device), *flags)
            compare(got, torch.ops.aten.unique_consecutive(x, *flags))


def test_unique_slices(device, ran):
    x = torch.randint(0, 2, (20, 3, 2))
    for one in (x, x.float(), x.bool(), x.transpose(0, 1)):
        for dim in (0, 1, -1):
            with ran("unique_dim"):
                got = torch.ops.aten.unique_dim(one.to(device), dim, True, True, True)
            compare(got, torch.ops.aten.unique_dim(one, dim, True, True, True))
            with ran("unique_consecutive"):
                got = torch.unique_consecutive(one.to(device), True, True, dim)
            compare(got, torch.unique_consecutive(one, True, True, dim))
    with ran("unique_dim_consecutive"):
        got = torch.ops.aten.unique_dim_consecutive(x.to(device), 0)
    compare(got, torch.ops.aten.unique_dim_consecutive(x, 0))
    one = torch.tensor([[1.0, NAN], [0, 1], [1, NAN], [0, 1]])
    compare(one.to(device).unique(dim=0), one.unique(dim=0))
    compare(torch.unique_consecutive(one.to(device), dim=0), torch.unique_consecutive(one, dim=0))


@each_number
def test_isin(device, ran, dtype):
    x, tests = tensor((9, 31), dtype), tensor((50,), dtype, 1)
    for one in (tests, tests[:2], tests[:0], tests[:49].view(7, 7).t()):
        for invert in (False, True):
            with ran("isin.Tensor_Tensor"):
                got = torch.isin(x.to(device), one.to(device), invert=invert)
            compare(got, torch.isin(x, one, invert=invert))


def test_isin_forms(device, ran):
    x = edges()
    tests = torch.tensor([NAN, -0.0, 3, INF])
    compare(torch.isin(x.to(device), tests.to(device)), torch.isin(x, tests))
    whole = torch.tensor([0, 3])
    compare(torch.isin(x.to(device), whole.to(device)), torch.isin(x, whole))
    out = torch.empty(0, dtype=torch.bool, device=device)
    with ran("isin.Tensor_Tensor"):
        torch.isin(x.t().to(device), tests.to(device), out=out)
    compare(out, torch.isin(x.t().contiguous(), tests))
    with ran("isin.Tensor_Scalar"):
        compare(torch.isin(x.to(device), 3, invert=True), torch.isin(x, 3, invert=True))
    with ran("isin.Scalar_Tensor"):
        compare(torch.isin(3, x.to(device)), torch.isin(3, x))
    compare(torch.isin(torch.tensor(3).to(device), whole.to(device)), torch.isin(torch.tensor(3), whole))


def test_gradients_are_the_cpus(device):
    def function(x):
        total = (x.sort(1).values ** 2 * torch.arange(30, device=x.device)).sum() + x.topk(3, 0).values.sum()
        return total + x.median(1).values.sum() * 3 + x.kthvalue(4, 1).values.sum() + x.median()

    x = torch.randn(6, 30)
    torch.testing.assert_close(with_gradients(function, device, x)[1].cpu(), with_gradients(function, "cpu", x)[1])
