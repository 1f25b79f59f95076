"""gather, scatter, advanced indexing, masks, embeddings and searches against the CPU: values, strides, forms, errors,
places that repeat or are out of range."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from portable.compare import each, same, with_gradients
from torch_backplane import fallback
from torch_backplane.testing import capabilities

I64, aten = torch.int64, torch.ops.aten
RARE = [torch.float16, torch.float64, torch.int32, torch.int16, torch.int8, torch.uint8]
EVERY = [torch.float32, torch.bfloat16, torch.bool, torch.complex64, I64, *RARE]
each_sum = pytest.mark.parametrize("dtype", each([torch.float32, I64, torch.bfloat16, *RARE], torch.float32, I64))


def tensor(shape, dtype=torch.float32, seed=0):
    """Small whole numbers, whose sums are exact in every dtype and order."""
    values = torch.randint(0, 8, shape, generator=torch.Generator().manual_seed(seed))
    return (values % 2).to(dtype) if dtype == torch.bool else values.to(dtype)


def indices(shape, below, dtype=I64, seed=3):
    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.fixture
def agree(agree):
    return partial(agree, compare=partial(same, tolerance=0, strides=False))


@pytest.mark.parametrize("dtype", each(EVERY, *EVERY[:4]))
def test_moves_of_every_dtype(agree, dtype):
    x, source, index = tensor((4, 5, 6), dtype), tensor((4, 3, 6), dtype, 1), indices((4, 3, 6), 5)
    unique = torch.stack([torch.randperm(5)[:3] for _ in range(24)]).reshape(4, 6, 3).transpose(1, 2)
    agree("gather", lambda t, i: t.gather(1, i), x, index)
    agree("scatter.src", lambda t, i, s: t.scatter(1, i, s), x, unique, source)
    agree("index_select", lambda t, i: t.index_select(1, i), x, indices((7,), 5))
    agree("index_select", lambda t, i: t.index_select(-1, i), x, indices((7,), 6, torch.int32))
    agree("index_copy", lambda t, i, s: t.index_copy(1, i, s), x, torch.tensor([4, 0, 2]), source)
    agree("take", torch.take, x.transpose(0, 1), torch.tensor([[0, 5], [-1, 7]]))
    agree("index.Tensor", lambda t, i: t[i], x, torch.tensor([1, -1, 0, 3]))
    agree("index.Tensor", lambda t, i: t[:, i], x, torch.tensor([1, -1, 0, 3]))
    agree("masked_select", lambda t, m: t.masked_select(m), x, tensor((4, 5, 6), torch.bool))
    if dtype.is_complex:
        return
    agree("scatter.value", lambda t, i: t.scatter(1, i, 1), x, index)
    agree("_index_put_impl_", lambda t, i, s: t.index_put((i,), s), x, torch.tensor([1, -1, 2]), source[:3, :1])
    agree("index_fill_.int_Scalar", lambda t, i: t.index_fill(1, i, 1), x, torch.tensor([4, -5]))
    agree("put_", lambda t, i, s: t.clone().put_(i, s), x, torch.tensor([4, -5, 30]), source.reshape(-1)[:3])
    agree("masked_scatter_", torch.masked_scatter, x, tensor((5, 6), torch.bool), x.flip(0).contiguous())
    agree("nonzero", torch.nonzero, x)


@each_sum
def test_sums_into_repeated_places(ran, agree, dtype):
    x = tensor((4, 5, 6), dtype)
    for dim in (0, 1, 2):
        shape = [4, 5, 6]
        shape[dim] = 9
        source, index = tensor(shape, dtype, 1), indices(shape, 4)
        agree("scatter_add", lambda t, i, s, d=dim: t.scatter_add(d, i, s), x, index, source)
        with ran("index_add"):
            agree(None, lambda t, i, s, d=dim: t.index_add(d, i, s), x, indices((9,), 4), source)
            narrow = indices((9,), 4, torch.int32)
            agree(None, lambda t, i, s, d=dim: t.index_add(d, i, s, alpha=2), x, narrow, source)

    def put(t, s, *places):
        return aten.index_put(t, places, s, accumulate=True)

    with ran("_index_put_impl_"):
        agree(None, put, x, tensor((9, 5, 6), dtype), indices((9,), 4))
        agree(None, put, x, tensor((6,), dtype), indices((3, 7), 4), indices((7,), 5))
        agree(None, lambda t, s, i: put(t, s, None, None, i), x, tensor((), dtype), indices((2, 9), 6))
        for given in (x, x[0, 0]):  # an index without dimensions
            agree(None, put, given, tensor((), dtype), indices((), 4))
        agree(None, lambda t, s, i: put(t, s, None, i), x, tensor((4, 6), dtype), indices((), 4))
    with ran("put_"):
        many, source = indices((50,), 120), tensor((50,), dtype)
        agree(None, lambda t, i, s: t.clone().put_(i, s, accumulate=True), x, many, source)
    if dtype.is_floating_point:
        with ran("embedding_dense_backward"):
            grad = tensor((3, 7, 5), dtype)
            agree(None, lambda g, i: aten.embedding_dense_backward(g, i, 6, 2, False), grad, indices((3, 7), 6))


@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin", "mean"])
@pytest.mark.parametrize("has_self", [True, False])
def test_scatter_reduce(agree, reduce, has_self):
    x, source, index = tensor((4, 6)), tensor((4, 9), seed=1), indices((4, 9), 5)
    source[0, 1], source[2, 2] = float("nan"), float("inf")
    agree("scatter_reduce.two", torch.scatter_reduce, x, 1, index, source, reduce, include_self=has_self)
    if reduce in ("sum", "prod"):
        word = {"sum": "add", "prod": "multiply"}[reduce]
        agree("scatter.reduce", lambda t, i, s: t.scatter(1, i, s, reduce=word), x, index, source)
        agree("scatter.value_reduce", lambda t, i: t.scatter(1, i, 3, reduce=word), x, index)


SLICES = [
    lambda x, i, m: x[i],
    lambda x, i, m: x[i.reshape(2, 2)],
    lambda x, i, m: x[i, i],
    lambda x, i, m: x[i, :, i],
    lambda x, i, m: x[..., i],
    lambda x, i, m: x[i[:, None], i],
    lambda x, i, m: x[1:, i, ::2],
    lambda x, i, m: x[m > 0],
    lambda x, i, m: x[:, m[0, :, 0] > 0],
    lambda x, i, m: x[m[:, :, 0] > 0],
    lambda x, i, m: x[m > 99],
    lambda x, i, m: x[i.int()],
    lambda x, i, m: x.transpose(0, 2)[i],
    lambda x, i, m: x.transpose(0, 2)[:, i],
    lambda x, i, m: x[i, i, i],
    lambda x, i, m: x[torch.tensor(2, device=x.device), i],
    lambda x, i, m: x[i[:0]],
]


def test_slices(agree):
    x, i = tensor((4, 5, 6)), torch.tensor([3, 0, -1, 1])
    for function in SLICES:
        agree("index.Tensor", function, x, i, x % 3)


def test_assignments(agree):
    x, i, y = tensor((4, 5, 6)), torch.tensor([3, 0, -2, 1]), tensor((4, 5, 6), seed=2)

    def assign(place, value):
        def function(x, i, y):
            x = x.clone()
            place(x, i, y, value)
            return x

        return function

    def whole(x, i, y, value):
        x[i] = y if value is None else value

    def apart(x, i, y, value):
        x[i, :, i] = y[:, :, 0] if value is None else value

    def mask(x, i, y, value):
        x[y > 3] = y[y > 3] if value is None else value

    def strided(x, i, y, value):
        x[:, ::2][i] = y[:, ::2] if value is None else value

    for place in (whole, apart, mask, strided):
        for value in (None, 2.5):
            agree(None, assign(place, value), x, i, y)


def test_nonzero(agree):
    for shape in ((), (1,), (5000,), (4096,), (3, 0), (70, 130), (2, 3, 4, 5)):
        x = tensor(shape) % 2
        agree("nonzero", torch.nonzero, x)
        agree("nonzero", torch.nonzero, torch.zeros(shape))
        agree("nonzero", torch.nonzero, torch.ones(shape, dtype=torch.bool))
        agree(None, torch.argwhere, x)


@pytest.mark.parametrize("dtype", each([torch.float32, I64, torch.float64], torch.float32, I64))
def test_searches(agree, dtype):
    row, x = torch.tensor([1, 3, 3, 5, 9]).to(dtype), tensor((4, 7), dtype)
    rows = tensor((4, 9), dtype, 5)
    for right in (False, True):
        side = "right" if right else "left"
        agree("bucketize.Tensor", torch.bucketize, x, row, right=right)
        agree("searchsorted.Tensor", torch.searchsorted, row, x, right=right, out_int32=True)
        agree("searchsorted.Tensor", torch.searchsorted, rows.sort().values, x, right=right)
        agree("searchsorted.Tensor", torch.searchsorted, rows, x, side=side, sorter=rows.argsort())


def test_embedding_and_its_gradient(device):
    weight, index = tensor((10, 6)), indices((3, 5), 10)

    def function(weight, index):
        return F.embedding(index, weight, padding_idx=3)

    with fallback.budget(calls=0):
        got = with_gradients(function, device, weight, index, leaves=1)
    same(got, with_gradients(function, "cpu", weight, index, leaves=1), 1e-6)


def test_0_dim_and_empty(agree):
    x, zero = torch.tensor(3.0), torch.tensor(0)
    agree(None, lambda t, i: t.gather(0, i), x, zero)
    agree(None, lambda t, i: t.scatter(0, i, 5), x, zero)
    agree(None, lambda t, i: t.index_select(0, i), x, zero)
    agree(None, lambda t, i: t.index_add(0, i, t), x, zero)
    agree(None, lambda t, i: t.gather(0, i), tensor((3, 4)), torch.empty(0, 4, dtype=I64))
    agree(None, lambda t, i: t.scatter_add(0, i, t), tensor((3, 4)), torch.empty(0, 4, dtype=I64))
    agree(None, lambda t, i: t.index_select(1, i), tensor((3, 4)), torch.empty(0, dtype=I64))
    agree(None, torch.take, tensor((3, 4)), torch.empty(0, 2, dtype=I64))


def test_forms_and_views(agree):
    x, index, source = tensor((4, 8)), indices((4, 8), 4), tensor((4, 8), seed=1)
    agree(None, lambda t, i: torch.gather(t, 0, i, out=torch.empty(0, device=t.device)), x, index)
    agree(None, lambda t, i, s: torch.scatter_add(t, 0, i, s, out=torch.empty(0, device=t.device)), x, index, source)
    agree(None, lambda t, i: torch.index_select(t, 0, i[0], out=torch.empty(8, 8, device=t.device)), x, index)
    agree(None, lambda t, i, s: (t[:, ::2].scatter_add_(0, i[:, 1::2], s[:, ::2]), t)[1], x, index, source)
    agree(None, lambda t, i, s: t.t().gather(1, i.t()), x, index, source)
    agree(None, lambda t, i, s: t.clone().t().scatter_add_(1, i.t(), s.t()), x, index, source)
    agree(None, lambda t, i, s: t.clone().index_add_(1, i[0], s), x, index, source)
    agree(None, lambda t, i, s: t.gather(1, i[:, :1].expand(4, 6)), x, index, source)


BEYOND = {
    "index_select": lambda x, i: x.index_select(0, i),
    "gather": lambda x, i: x.gather(0, i),
    "index": lambda x, i: x[i],
    "take": lambda x, i: x.take(i),
    "embedding": lambda x, i: F.embedding(i, x.unsqueeze(1)),
    "index_add": lambda x, i: x.index_add_(0, i, x.clone()),
    "index_copy": lambda x, i: x.index_copy_(0, i, x.clone()),
    "index_fill": lambda x, i: x.index_fill_(0, i, 3),
    "index_put": lambda x, i: x.index_put_((i,), x.clone()),
    "put": lambda x, i: x.put_(i, x.clone()),
    "scatter": lambda x, i: x.scatter_(0, i, 5),
    "scatter_add": lambda x, i: x.scatter_add_(0, i, x.clone()),
    "nll_loss": lambda x, i: F.nll_loss(x.expand(4, 4), i),
}


@pytest.mark.parametrize("name", BEYOND)
def test_F11_a_place_out_of_range_is_an_error_of_the_next_wait(device, name):
    x = tensor((4,)).to(device)
    waits = [torch.accelerator.synchronize, torch.accelerator.current_stream().synchronize, x.cpu, x.sum().item]
    for wait, place in zip(waits, (9, -7, 9, -7), strict=True):
        index = torch.tensor([1, place, 0, 2], device=device)
        if name in ("gather", "scatter", "scatter_add"):  # as the CPU
            error = pytest.raises(RuntimeError, match=f"^index {place} is out of bounds for dimension 0 with size 4$")
        else:
            error = pytest.raises(IndexError, match=f"index {place} is out of range for 4 elements")
        with error:
            BEYOND[name](x.clone(), index), wait()
        wait()  # reported once
    assert x.cpu().tolist() == tensor((4,)).tolist()


def test_F11_the_first_wait_of_the_stream_reports_it_and_no_other(device):
    if "zero_copy" in capabilities():
        pytest.skip("the launch itself may report it")
    x, index = tensor((4,)).to(device), torch.tensor([9], device=device)
    one, other = torch.Stream(device), torch.Stream(device)
    with one:
        x.index_select(0, index)
    other.synchronize()
    with pytest.raises(IndexError, match="index_select: index 9"):
        one.synchronize()
    torch.accelerator.synchronize()


def test_places_of_a_tensor_without_elements_are_checked(device):
    index = torch.tensor([3, 0])
    for place in ("cpu", device):
        with pytest.raises(RuntimeError, match="out of DATA bounds"):
            torch.index_select(torch.ones(3, 0, 6, device=place), 0, index.to(place))
    assert torch.ones(3, 0, 6, device=device).index_select(0, index.to(device) % 3).shape == (2, 0, 6)


def test_F11_places_out_of_range_are_neither_read_nor_written(device):
    x, index = tensor((4,)).to(device), torch.tensor([1, 9, -7, 2], device=device)
    y = torch.zeros(6, device=device)
    results = [torch.empty(4, device=device)]
    for call in [
        lambda: torch.index_select(x, 0, index, out=results[0]),
        lambda: y[1:5].index_add_(0, index, torch.ones(4, device=device)),
        lambda: y[1:5].scatter_(0, index, 5),
    ]:
        with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)"):
            call(), torch.accelerator.synchronize()
    assert results[0].cpu()[1:3].tolist() == [0, 0]
    assert y.cpu().tolist() == [0, 0, 5, 5, 0, 0]


def test_strides_of_no_places(device, agree):
    for x in (torch.zeros(5, 2), torch.zeros(0, 2), torch.ones(2, 2), torch.zeros(()), torch.ones(())):
        agree("nonzero", torch.nonzero, x)
        for a, b in zip(x.to(device).nonzero(as_tuple=True), x.nonzero(as_tuple=True), strict=True):
            assert (a.storage_offset(), a.stride()) == (b.storage_offset(), b.stride())


@pytest.mark.usefixtures("deterministic")
def test_deterministic_algorithms_repeat_their_bits(device):
    x, index = torch.randn(100_000), indices((100_000,), 7)
    results = [
        torch.zeros(7, device=device).index_put_((index.to(device),), x.to(device), accumulate=True).cpu()
        for _ in range(3)
    ]
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: x.gather(0, x.long()[0]), "same number of dimensions|Index tensor must have"),
        (lambda x: x.gather(2, x.long()), "Dimension out of range"),
        (lambda x: x.gather(0, x), "int"),
        (lambda x: x.scatter_add(0, x.long(), x.double()), "dtype"),
        (lambda x: x.index_add(0, x.long()[0, :2], x), "same|equal"),
        (lambda x: x[x.long(), x.long()[0], x.long()[0]], "too many indices"),
        (lambda x: x[x.long(), x.long()[:, :2]], "broadcast"),
        (lambda x: x[x[:2] > 0], "does not match"),
        (lambda x: x.masked_scatter_(x == x, x[0]), "elements"),
        (lambda x: torch.bucketize(x, x), "1 dimension"),
    ],
)
def test_wrong_calls_raise_torchs_error(device, call, text):
    for place in ("cpu", device):
        with pytest.raises((RuntimeError, IndexError), match=text):
            call(torch.zeros(3, 4).to(place))


@pytest.mark.parametrize("right", [False, True])
def test_searches_of_a_number(agree, right):
    row, whole = torch.tensor([1.0, 3, 3, 5, 9]), torch.tensor([1, 3, 3, 5, 9])
    agree("bucketize.Scalar", lambda s: torch.bucketize(3, s, right=right), row)
    agree("bucketize.Scalar", lambda s: torch.bucketize(3, s, right=right, out_int32=True), whole)
    agree("searchsorted.Scalar", lambda s: torch.searchsorted(s, 3.5, right=right), row)
    order = row.argsort().flip(0)
    agree("searchsorted.Scalar", torch.searchsorted, row.flip(0), 4, side=("left", "right")[right], sorter=order)
    agree(None, lambda s: torch.searchsorted(s, 3.5, right=right), whole)
