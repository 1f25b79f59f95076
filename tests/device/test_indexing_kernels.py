"""The host kernels that index and concatenate: equal to the CPU's, with the documented answer to a wrong index."""

import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.requires("host_exec")

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
MOVED = [*FLOATS, torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool, torch.complex64, torch.complex128]


def numbers(*shape, dtype=torch.float32):
    return (torch.arange(torch.Size(shape).numel()) % 7).reshape(shape).to(dtype)


@pytest.mark.parametrize("dtype", MOVED, ids=str)
@pytest.mark.parametrize("index_dtype", [torch.int64, torch.int32], ids=str)
def test_index_select(equals_cpu, dtype, index_dtype):
    index = torch.tensor([2, 0, 0, 4, 3], dtype=index_dtype)
    x = numbers(5, 6, 7, dtype=dtype)
    for dim in (0, 1, -1):
        equals_cpu("index_select", lambda x, i, dim=dim: x.index_select(dim, i), x, index)
    equals_cpu("index_select", lambda x, i: x.transpose(0, 2).index_select(0, i[::2]), x, index)
    equals_cpu("index_select", lambda x, i: x.index_select(1, i[:0]), x, index)
    equals_cpu("index_select", lambda x, i: x.index_select(1, i[0]), x, index)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_index_select_and_its_gradient(equals_cpu, dtype, kernel_calls):
    before = kernel_calls("index_add")
    index = torch.tensor([2, 0, 0, 4])
    for dim in (0, 1):
        equals_cpu(
            "index_select",
            lambda x, i, dim=dim: x.index_select(dim, i),
            numbers(5, 6, 3, dtype=dtype),
            index,
            grad=True,
        )
    assert kernel_calls("index_add") - before == 2


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_embedding_and_its_gradient(equals_cpu, dtype, kernel_calls):
    before = kernel_calls("embedding_dense_backward")
    index = torch.tensor([[1, 2, 2], [4, 0, 2]])
    for padding in (None, 2):
        equals_cpu(
            "index_select",
            lambda w, i, p=padding: F.embedding(i, w, padding_idx=p),
            numbers(5, 6, dtype=dtype),
            index,
            grad=True,
        )
    assert kernel_calls("embedding_dense_backward") - before == 2
    equals_cpu("index_select", lambda w, i: F.embedding(i.int(), w), numbers(5, 6, dtype=dtype), index, grad=True)
    frequent = numbers(5, 6, dtype=dtype)
    equals_cpu("index_select", lambda w, i: F.embedding(i, w, scale_grad_by_freq=True), frequent, index, grad=True)
    assert kernel_calls("embedding_dense_backward") - before == 3  # the last one was the fallback's


@pytest.mark.parametrize("dtype", MOVED, ids=str)
def test_gather(equals_cpu, dtype):
    x = numbers(5, 6, 7, dtype=dtype)
    index = torch.randint(0, 5, (5, 4, 3), generator=torch.Generator().manual_seed(1))
    for dim in (0, 1, -1):
        equals_cpu("gather", lambda x, i, dim=dim: x.gather(dim, i), x, index)
    equals_cpu("gather", lambda x, i: x.transpose(0, 2).gather(1, i.transpose(0, 1)[:4, ::2]), x, index)
    equals_cpu("gather", lambda x, i: x[:, :, :3].gather(0, i[:, :1].expand(5, 4, 3)), x, index)
    equals_cpu("gather", lambda x, i: x.gather(0, i[:0]), x, index)
    equals_cpu("gather", lambda x, i: x[1, 1, 1].gather(0, i[0, 0, 0] * 0), x, index)


def test_gather_into_out(device):
    x, index = numbers(5, 6), torch.tensor([[1, 2], [0, 5]])
    out = torch.zeros(2, 2, device=device).t()
    torch.gather(x.to(device), 1, index.to(device), out=out)
    assert out.stride() == (1, 2)
    assert torch.equal(out.cpu(), x.gather(1, index))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_gather_and_its_gradient(equals_cpu, dtype, kernel_calls):
    before = kernel_calls("scatter_add")
    index = torch.tensor([[0, 0, 1], [5, 5, 5]])
    equals_cpu("gather", lambda x, i: x.gather(1, i), numbers(2, 6, dtype=dtype), index, grad=True)
    assert kernel_calls("scatter_add") - before == 1


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64], ids=str)
def test_index_add_and_scatter_add(equals_cpu, dtype):
    x, source = numbers(5, 6, dtype=dtype), numbers(4, 6, dtype=dtype)
    index = torch.tensor([1, 0, 1, 4])
    equals_cpu("index_add", lambda x, i, s: x.index_add(0, i, s, alpha=2), x, index, source)
    equals_cpu("index_add", lambda x, i, s: x.t().index_add(1, i, s.t()), x, index, source)
    equals_cpu("index_add", lambda x, i, s: x.clone().index_add_(0, i.int(), s), x, index, source)
    equals_cpu("index_add", lambda x, i, s: x.clone().t().index_add_(1, i, s.t()), x, index, source)
    equals_cpu("index_add", lambda x, i, s: x.index_add(0, i[:0], s[:0]), x, index, source)
    places = torch.tensor([[0, 1, 2], [4, 4, 0]])
    equals_cpu("scatter_add", lambda x, i, s: x.scatter_add(0, i, s), x, places, source)
    equals_cpu("scatter_add", lambda x, i, s: x.clone().t().scatter_add_(0, i.t(), s.t()), x, places, source)
    equals_cpu("scatter_add", lambda x, i, s: x.scatter_add(1, i[:0], s), x, places, source)


N = 4096
SUMS = {
    "index_add": lambda one, zeros, i: zeros(2).index_add(0, i, one(N)),
    "index_add of rows": lambda one, zeros, i: zeros(2, 4).index_add(0, i, one(N, 4)),
    "index_add of columns": lambda one, zeros, i: zeros(4, 2).index_add(1, i.int(), one(4, N)),
    "index_add times 2": lambda one, zeros, i: zeros(2, 4).index_add(0, i, one(N, 4), alpha=0.5) * 2,
    "index_add_ with gaps": lambda one, zeros, i: zeros(4, 2).t().index_add_(0, i, one(N, 4)),
    "scatter_add": lambda one, zeros, i: zeros(2).scatter_add(0, i, one(N)),
    "scatter_add of rows": lambda one, zeros, i: zeros(2, 4).scatter_add(0, i[:, None].expand(N, 4), one(N, 4)),
    "scatter_add_ with gaps": lambda one, zeros, i: zeros(4, 2).t().scatter_add_(0, i[:, None].repeat(1, 4), one(N, 4)),
}
GRADIENTS = {
    "index_select": (lambda x, i: x.index_select(0, i), (2, 4), (N, 4)),
    "index_select of numbers": (lambda x, i: x.index_select(0, i), (2,), (N,)),
    "gather": (lambda x, i: x.gather(0, i), (2,), (N,)),
    "embedding": (lambda x, i: F.embedding(i, x), (2, 4), (N, 4)),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("call", [*SUMS, *GRADIENTS])
def test_half_types_are_added_in_float(device, dtype, call):
    index = torch.zeros(N, dtype=torch.int64, device=device)

    def one(*shape):
        return torch.ones(shape, dtype=dtype, device=device)

    def zeros(*shape):
        return torch.zeros(shape, dtype=dtype, device=device)

    if call in SUMS:
        sums = SUMS[call](one, zeros, index)
    else:
        function, shape, result = GRADIENTS[call]
        x = one(*shape).requires_grad_()
        (sums,) = torch.autograd.grad(function(x, index), x, one(*result))
    assert sums.dtype == dtype
    assert set(sums.flatten().tolist()) == {0, N}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_rows_that_no_index_names_keep_their_bits(device, dtype):
    bits = torch.randint(-(2**15), 2**15, (50, 8), dtype=torch.int16)  # NaNs of all kinds among them
    table = bits.to(device).view(dtype)
    index = torch.tensor([3, 3, 7], device=device)
    table.index_add_(0, index, torch.ones(3, 8, dtype=dtype, device=device))
    rest = [i for i in range(50) if i not in (3, 7)]
    assert torch.equal(table.view(torch.int16).cpu()[rest], bits[rest])


def test_other_dtypes_are_added_by_the_fallback(equals_cpu):
    x, index = numbers(5, 6, dtype=torch.int16), torch.tensor([1, 1])
    equals_cpu("index_add", lambda x, i: x.index_add(0, i, x[:2]), x, index, calls=0)


@pytest.mark.parametrize(
    "bad",
    [
        lambda d: torch.ones(3, device=d).index_select(1, torch.tensor([0], device=d)),
        lambda d: torch.ones(3, device=d).index_select(0, torch.tensor([[0]], device=d)),
        lambda d: torch.ones(3, device=d).index_select(0, torch.tensor([0.0], device=d)),
        lambda d: torch.ones(3, 3, device=d).gather(0, torch.tensor([0], device=d)),
        lambda d: torch.ones(3, 3, device=d).gather(1, torch.zeros(4, 1, device=d).long()),
        lambda d: torch.ones(3, 3, device=d).index_add(0, torch.tensor([0], device=d), torch.ones(2, 3, device=d)),
        lambda d: torch.ones(3, device=d).scatter_add(0, torch.tensor([0], device=d), torch.ones(3, device=d).double()),
        lambda d: torch.cat([torch.ones(2, 3, device=d), torch.ones(2, 4, device=d)]),
        lambda d: torch.cat([torch.ones(2, device=d), torch.ones(2, 4, device=d)]),
        lambda d: torch.cat([]),
        lambda d: torch.zeros(7, 0, device=d).index_select(0, torch.tensor([9], device=d)),
        lambda d: torch.zeros(0, 4, device=d).index_select(0, torch.tensor([0], device=d)),
        lambda d: torch.zeros(0, device=d).index_select(0, torch.tensor([0], device=d)),
        lambda d: F.embedding(torch.tensor([9], device=d), torch.zeros(7, 0, device=d)),
        lambda d: torch.zeros(0, device=d).index_add(0, torch.tensor([0], device=d), torch.ones(1, device=d)),
    ],
)
def test_errors_are_the_cpus(device, bad):
    with pytest.raises((RuntimeError, IndexError, ValueError)) as expected:
        bad("cpu")
    with pytest.raises(type(expected.value)) as found:
        bad(device)
    assert str(found.value).splitlines()[0] == str(expected.value).splitlines()[0]


WITH_INDEX = {
    "index_select": lambda x, i: x.index_select(0, i),
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "index_add": lambda x, i: x.index_add(0, i, x[:2]),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None], x),
    "embedding": lambda x, i: F.embedding(i, x),
}


@pytest.mark.parametrize("op", WITH_INDEX)
@pytest.mark.parametrize("index", [5, -1])
def test_a_wrong_index_is_the_cpus_error_and_the_device_goes_on(device, op, index):
    def call(where):
        x = torch.arange(20.0, device=where).view(5, 4)
        with pytest.raises((IndexError, RuntimeError)) as caught:
            WITH_INDEX[op](x, torch.tensor([0, index], device=where))
        return x, caught

    (_, expected), (x, found) = call("cpu"), call(device)
    assert found.type is expected.type
    assert str(found.value).splitlines()[0] == str(expected.value).splitlines()[0]
    assert torch.equal(x.cpu(), torch.arange(20.0).view(5, 4))


def test_an_index_of_an_empty_tensor_adds_nothing(equals_cpu):
    x, index, source = torch.zeros(4, 0), torch.tensor([3]), torch.ones(4, 1)
    equals_cpu("index_add", lambda x, i, y: x.index_add(1, i, y), x, index, source)


@pytest.mark.parametrize("dtype", MOVED, ids=str)
def test_cat(equals_cpu, dtype):
    x = numbers(3, 4, 5, dtype=dtype)
    for dim in (0, 1, 2, -2):
        equals_cpu("cat", lambda x, dim=dim: torch.cat([x, x, x.narrow(dim, 0, 2)], dim), x)
    equals_cpu("cat", lambda x: torch.cat([x.transpose(0, 1), x.transpose(0, 1)], 1), x)
    equals_cpu("cat", lambda x: torch.cat([x[:, ::2], x], 1), x)
    equals_cpu("cat", lambda x: torch.cat([x[:0], x, x.new_empty(0)]), x)
    equals_cpu("cat", lambda x: torch.cat([x[:0], x[:0]]), x)
    equals_cpu("cat", lambda x: torch.cat([x]), x)
    equals_cpu("cat", lambda x: torch.cat([x[None].to(memory_format=torch.channels_last)] * 2), x)


def test_cat_has_a_gradient(equals_cpu):
    equals_cpu("cat", lambda x, y: torch.cat([x, y], 1), numbers(3, 4), numbers(3, 2), grad=True)


def test_cat_into_out(device):
    x = numbers(3, 4)
    strided, wide = torch.zeros(4, 6, device=device).t(), torch.zeros(6, 4, device=device, dtype=torch.float64)
    for out in (torch.empty(0, device=device), strided, wide):
        assert torch.cat([x.to(device), x.to(device)], out=out) is out
        assert torch.equal(out.cpu(), torch.cat([x, x]).to(out.dtype))
    assert strided.stride() == (1, 6)


def test_cat_of_mixed_dtypes_goes_to_the_fallback(equals_cpu):
    equals_cpu("cat", lambda x, y: torch.cat([x, y]), numbers(3), numbers(2, dtype=torch.int64), calls=0)


def test_cat_of_mixed_devices_is_refused(device):
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.cat([torch.ones(2, device=device), torch.ones(2)])
