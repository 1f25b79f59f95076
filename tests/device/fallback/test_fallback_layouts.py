"""Sparse, quantized and nested tensors on the device: by the CPU, equal to the CPU's (D41, D42, E24)."""

import copy
import io
import itertools

import pytest
import torch
from answers import same

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled"),
    pytest.mark.filterwarnings("ignore:.*quantized"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
    pytest.mark.filterwarnings("ignore:.*is deprecated"),
]

A = torch.tensor([[0.0, 1.0, 0.0], [2.0, 0.0, 3.0]])


def dense(d):
    return A.to(d).clone()


def sparse(d):
    return dense(d).to_sparse()


def csr(d):
    return dense(d).to_sparse_csr()


def blocks(d):
    return torch.eye(4, device=d).to_sparse_bsr((2, 2))


def quantized(d):
    return torch.quantize_per_tensor(dense(d), 0.1, 3, torch.qint8)


def by_channel(d):
    scales, zeros = torch.tensor([0.1, 0.2], device=d), torch.tensor([0, 1], device=d)
    return torch.quantize_per_channel(dense(d), scales, zeros, 0, torch.quint8)


def nested(d):
    return torch.nested.nested_tensor([torch.arange(6.0).reshape(2, 3), torch.ones(1, 3)], device=d)


def jagged(d):
    return torch.nested.nested_tensor(
        [torch.arange(6.0).reshape(2, 3), torch.ones(1, 3)], device=d, layout=torch.jagged
    )


def outcome(function, d):
    try:
        return function(d)
    except RuntimeError as error:
        return str(error).split("\n")[0]


def agree(function, device):
    """The same result, or the same error."""
    same(outcome(function, device), outcome(function, torch.device("cpu")), device)


def saved(x, **options):
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file, **options)


KINDS = {
    "coo": lambda x: x.to_sparse(),
    "hybrid": lambda x: x.to_sparse(1),
    "csr": lambda x: x.to_sparse_csr(),
    "csc": lambda x: x.to_sparse_csc(),
    "bsr": lambda x: x[:2].to_sparse_bsr((1, 2)),
    "bsc": lambda x: x[:2].to_sparse_bsc((2, 1)),
}
M = torch.arange(12.0).view(3, 4).sub(5).relu()
USES = {
    "itself": lambda s: s,
    "traits": lambda s: (s._nnz(), s.sparse_dim(), s.dense_dim()),
    "values": lambda s: s._values() if s.layout == torch.sparse_coo else s.values(),
    "to_dense": lambda s: s.to_dense(),
    "clone": lambda s: s.clone(),
    "dtype": lambda s: s.double(),
    "to coo": lambda s: s.to_sparse_coo(),
    "zeros_like": torch.zeros_like,
    "saved": saved,
    "scalar": lambda s: s * 2,
    "matmul": lambda s: s @ torch.linspace(-1, 1, 8, device=s.device).view(4, 2),
    "matmul of a vector": lambda s: s @ torch.linspace(-1, 1, 4, device=s.device),
    "addmm": lambda s: torch.addmm(
        torch.ones(s.shape[0], 2, device=s.device), s, torch.linspace(-1, 1, 8, device=s.device).view(4, 2), alpha=2
    ),
    "sparse.mm": lambda s: torch.sparse.mm(s, torch.linspace(-1, 1, 8, device=s.device).view(4, 2)),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_D42_sparse_tensors_of_each_kind(device, kind):
    """The CPU has no such product of some kinds."""
    for use in USES.values():
        agree(lambda d, use=use: use(kind(M.to(d))), device)
    same(kind(M).to(device), kind(M), device)
    same(kind(M.to(device)).cpu().to(device), kind(M), device)
    same(copy.deepcopy(kind(M.to(device))), kind(M), device)


def in_place(make, change):
    """The tensor after a change, and the view of its values taken before, which must see it."""

    def function(d):
        tensor = make(d)
        seen = tensor.values() if tensor.layout == torch.sparse_csr else tensor
        if tensor.layout == torch.sparse_coo:
            seen = tensor._values()
        change(tensor)
        return tensor, seen

    return function


SPARSE = {
    "indices and values": lambda d: torch.sparse_coo_tensor(
        torch.tensor([[0, 1], [2, 0]], device=d), torch.tensor([1.0, 2], device=d), (2, 3)
    ),
    "lists": lambda d: torch.sparse_coo_tensor([[0, 1], [2, 0]], [1.0, 2], (2, 3), device=d),
    "empty": lambda d: torch.empty(2, 3, layout=torch.sparse_coo, device=d),
    "coalesce": lambda d: torch.sparse_coo_tensor([[0, 0], [2, 2]], [1.0, 2], (2, 3), device=d).coalesce(),
    "sparse mm": lambda d: torch.sparse.mm(sparse(d), sparse(d).t()),
    "addmm": lambda d: torch.sparse.addmm(torch.ones(2, 2, device=d), sparse(d), dense(d).t()),
    "add": lambda d: sparse(d) + sparse(d),
    "dense add": lambda d: dense(d) + sparse(d),
    "unary": lambda d: sparse(d).neg_().abs().sqrt(),
    "index_select": lambda d: sparse(d).index_select(0, torch.tensor([1, 0], device=d)),
    "sum": lambda d: torch.sparse.sum(sparse(d), 0),
    "softmax": lambda d: torch.sparse.softmax(sparse(d), 1),
    "transpose": lambda d: sparse(d).t(),
    "select": lambda d: sparse(d)[1],
    "cat": lambda d: torch.cat([sparse(d), sparse(d)]),
    "mask": lambda d: dense(d).sparse_mask(sparse(d)),
    "copy_": lambda d: sparse(d).copy_(sparse("cpu") * 2),
    "resize": lambda d: sparse(d).sparse_resize_((4, 3), 2, 0),
    "mul_": in_place(sparse, lambda s: s.mul_(3)),
    "sqrt_": in_place(sparse, lambda s: s.sqrt_()),
    "zero_": lambda d: sparse(d).zero_(),
    "add_": lambda d: sparse(d).add_(torch.sparse_coo_tensor([[0], [0]], [5.0], (2, 3), device=d)),
    "checked to be coalesced": lambda d: torch.sparse_coo_tensor(
        torch.tensor([[0, 1], [2, 0]], device=d),
        torch.ones(2, device=d),
        (2, 3),
        is_coalesced=True,
        check_invariants=True,
    ),
    "csr": csr,
    "csc of parts": lambda d: torch.sparse_csc_tensor([0, 1, 2], [1, 0], [1.0, 2], (2, 2), device=d),
    "csr of parts": lambda d: torch.sparse_csr_tensor([0, 1, 2], [0, 1], [1.0, 2], device=d),
    "csr add": lambda d: csr(d) + csr(d),
    "csr mul_": in_place(csr, lambda c: c.mul_(3)),
    "csr select": lambda d: csr(d)[1],
    "sampled_addmm": lambda d: torch.sparse.sampled_addmm(
        csr(d), torch.ones(2, 2, device=d), torch.ones(2, 3, device=d)
    ),
}


@pytest.mark.parametrize("function", SPARSE.values(), ids=SPARSE.keys())
def test_D42_sparse_tensors_are_computed_by_the_cpu(device, function):
    agree(function, device)


def test_D42_wrong_indices_and_false_claims_are_refused(device):
    values = torch.ones(2, device=device)
    for columns in ([[1, 0], [0, 1]], [[0, 0], [1, 1]]):
        indices = torch.tensor(columns, device=device)
        with pytest.raises(RuntimeError, match="cannot set is_coalesced to true"):
            torch.sparse_coo_tensor(indices, values, (2, 3), is_coalesced=True, check_invariants=True)
    with torch.sparse.check_sparse_tensor_invariants():
        with pytest.raises(RuntimeError, match="size is inconsistent with indices"):
            torch.sparse_coo_tensor(torch.tensor([[5, 5]], device=device), values, (3,))
        with pytest.raises(RuntimeError, match="is not satisfied"):
            torch.sparse_csr_tensor([0, 1, 2], [5, 7], values, (2, 2), device=device)


def test_D42_parts_of_sparse_tensors_are_views(device):
    s, c = sparse(device), csr(device)
    s._values().mul_(10)
    c.values().mul_(10)
    assert torch.equal(s.to_dense().cpu(), A * 10)
    assert torch.equal(c.to_dense().cpu(), A * 10)


def test_D42_gradients_pass_sparse_tensors(device):
    def through(d):
        x = dense(d).requires_grad_()
        torch.sparse.mm(x.to_sparse(), torch.ones(3, 2, device=d)).sum().backward()
        return x.grad

    def of_sparse(d):
        s = sparse(d).requires_grad_()
        torch.sparse.mm(s, torch.ones(3, 2, device=d)).sum().backward()
        return s.grad

    def of_maxima(d):  # the CPU's operator checks whether a gradient is needed
        c, x = csr(d).requires_grad_(), dense(d).t().contiguous().requires_grad_()
        torch.sparse.mm(c, x, "amax").sum().backward()
        return c.grad, x.grad

    agree(through, device)
    agree(of_sparse, device)
    agree(of_maxima, device)


def test_D42_an_embedding_with_sparse_gradients_trains(device):
    def train(d):
        torch.manual_seed(0)
        layer = torch.nn.Embedding(4, 3, sparse=True).to(d)
        optimizer = torch.optim.SparseAdam(layer.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            layer(torch.tensor([1, 2, 2], device=d)).pow(2).sum().backward()
            optimizer.step()
        return layer.weight.grad, layer.weight.detach()

    agree(train, device)


@pytest.mark.requires("multi_device")
def test_D42_sparse_tensors_on_a_device_that_is_not_current(device, device_module):
    other = torch.device(device.type, 1)
    assert device_module.current_device() == 0
    expected, on_first = M.to_sparse(), M.to(device).to_sparse()
    found = on_first.to(other)
    assert torch.zeros(2, 2, layout=torch.sparse_coo, device=other).device == other
    assert torch.sparse_coo_tensor([[0], [1]], [2.0], (2, 2), device=other).device == other
    for call in (
        lambda x: x,
        lambda x: x.clone(),
        copy.deepcopy,
        lambda x: x.t(),
        lambda x: x.half().float(),
        lambda x: x.select(0, 1),
        lambda x: x.unsqueeze(0),
        lambda x: x.coalesce() * 2 + x,
        torch.zeros_like,
        lambda x: torch.empty_like(x).copy_(x),
        lambda x: x.to_dense().to_sparse(),
        lambda x: saved(on_first, map_location=x.device),
    ):
        result = call(found)
        same(result, call(expected), other)
        assert {part.device for part in (result, result._indices(), result._values())} == {other}
    assert str(other) in repr(found)
    with torch.device(other):
        assert torch.eye(2).to_sparse().device == other


@pytest.mark.requires("multi_device")
@pytest.mark.parametrize(
    "optimizer", [lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), lambda p: torch.optim.Adagrad(p, 0.1)]
)
def test_D42_sparse_gradients_on_a_device_that_is_not_current(device, optimizer):
    found = []
    for on in ("cpu", torch.device(device.type, 1)):
        torch.manual_seed(0)
        embedding = torch.nn.Embedding(5, 3, sparse=True).to(on)
        steps = optimizer(embedding.parameters())
        for _ in range(3):
            steps.zero_grad()
            embedding(torch.tensor([1, 1, 4], device=on)).square().sum().backward()
            assert embedding.weight.grad.device == embedding.weight.device
            steps.step()
        found.append(embedding.weight.detach().cpu())
    torch.testing.assert_close(*found)


QUANTIZED = {
    "dequantize": lambda q: q.dequantize(),
    "int_repr": lambda q: q.int_repr(),
    "clone": lambda q: q.clone(),
    "index": lambda q: q[0],
    "copy_": lambda q: q.copy_(q.cpu()),
    "deepcopy": copy.deepcopy,
}
PER_TENSOR = {
    "parameters": lambda q: (q.q_scale(), q.q_zero_point()),
    "view": lambda q: q.view(6),
    "transpose": lambda q: q.t().dequantize(),
    "relu": torch.relu,
    "relu_": lambda q: (torch.relu_(q), q),
    "relu_ of a view": lambda q: (torch.relu_(q[1]), q),
    "cat": lambda q: torch.cat([q, q]),
    "compare": lambda q: q == q,
    "fill_": lambda q: q.fill_(1.0),
    "part": lambda q: (q.view(2, 3)[1:, ::2].int_repr(), q.view(2, 3)[1:, ::2].dequantize()),
    "max_pool2d": lambda q: torch.nn.functional.max_pool2d(q[None], 2),
    "sort": lambda q: q.sort().values,
    "copy_ of floats": lambda q: q.copy_(torch.ones(2, 3, device=q.device)),
    "quantized add": lambda q: torch.ops.quantized.add(q, q, 0.2, 0),
}


@pytest.mark.parametrize("function", [*QUANTIZED.values(), *PER_TENSOR.values()], ids=[*QUANTIZED, *PER_TENSOR])
def test_D42_quantized_tensors_are_computed_by_the_cpu(device, function):
    agree(lambda d: function(quantized(d)), device)


@pytest.mark.parametrize("function", QUANTIZED.values(), ids=QUANTIZED.keys())
def test_D42_tensors_quantized_by_channel(device, function):
    agree(lambda d: function(by_channel(d)), device)


B = torch.arange(24.0).view(2, 3, 4) / 7 - 1
WAYS = {
    "by tensors": lambda d: torch.quantize_per_tensor(
        B.to(d), torch.tensor(0.1, device=d), torch.tensor(2, device=d), torch.qint8
    ),
    "several": lambda d: torch.quantize_per_tensor(
        [B.to(d), B[0].to(d)], torch.tensor([0.1, 0.2], device=d), torch.tensor([0, 1], device=d), torch.qint8
    ),
    "dynamic": lambda d: torch.quantize_per_tensor_dynamic(B.to(d), torch.quint8, False),
    "by channel": by_channel,
    "axes": lambda d: [getattr(by_channel(d), f"q_per_channel_{what}")() for what in ("scales", "zero_points", "axis")],
    "traits": lambda d: [str(getattr(quantized(d), what)()) for what in ("q_scale", "q_zero_point", "qscheme")],
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_E24_ways_to_a_quantized_tensor(device, way):
    agree(way, device)


@pytest.mark.parametrize("dtype", [torch.qint8, torch.quint8, torch.qint32], ids=str)
def test_E24_dtypes_of_quantized_tensors(device, dtype):
    agree(lambda d: torch.quantize_per_tensor(B.to(d), 0.1, 2, dtype), device)
    empty = torch._empty_affine_quantized((2, 3), scale=0.5, zero_point=1, dtype=dtype, device=device)
    assert (empty.device.type, empty.q_scale(), empty.shape) == (device.type, 0.5, (2, 3))


def test_fake_quantization_with_gradients(device):
    def gradient(d):
        x = B.to(d).detach().requires_grad_()
        torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 15).sum().backward()
        return x.grad

    agree(gradient, device)
    assert 0 < gradient(device).sum() < B.numel()


@pytest.mark.parametrize("make", [quantized, by_channel])
def test_D42_quantized_tensors_are_saved_and_loaded(device, make):
    same(saved(make(device), weights_only=False), make("cpu"), device)


def test_D42_a_layout_that_the_device_does_not_support_is_refused(device):
    with pytest.raises((NotImplementedError, RuntimeError), match=r"[Mm]kldnn"):
        dense(device).to_mkldnn()


NESTED = {
    "made": nested,
    "of device tensors": lambda d: torch.nested.as_nested_tensor([dense(d), dense(d)[:1]]),
    "unbind": lambda d: nested(d).unbind(),
    "select": lambda d: nested(d)[1],
    "padded": lambda d: nested(d).to_padded_tensor(0.0),
    "relu": lambda d: nested(d).relu(),
    "add": lambda d: nested(d) + nested(d),
    "mul_": lambda d: nested(d).mul_(2),
    "matmul": lambda d: torch.matmul(nested(d), nested(d).transpose(1, 2)),
    "linear": lambda d: torch.nn.functional.linear(nested(d), torch.ones(2, 3, device=d)),
    "softmax": lambda d: torch.softmax(nested(d), -1),
    "layer norm": lambda d: torch.nn.functional.layer_norm(
        nested(d), (3,), torch.ones(3, device=d), torch.zeros(3, device=d)
    ),
    "clone": lambda d: nested(d).clone(),
    "dtype": lambda d: nested(d).double(),
    "from the host": lambda d: nested("cpu").to(d),
    "jagged": lambda d: jagged(d).values(),
    "jagged unbind": lambda d: jagged(d).unbind(),
    "jagged sin": lambda d: jagged(d).sin().values(),
    "jagged sum": lambda d: jagged(d).sum(1),
    "jagged linear": lambda d: torch.nn.functional.linear(jagged(d), torch.ones(2, 3, device=d)).values(),
    "jagged padded": lambda d: jagged(d).to_padded_tensor(0.0),
}


@pytest.mark.parametrize("function", NESTED.values(), ids=NESTED.keys())
def test_D41_nested_tensors_are_computed_by_the_cpu(device, function):
    agree(function, device)


def test_D41_tensors_of_a_nested_one_are_views(device):
    n = nested(device)
    n.unbind()[0].mul_(5)
    n.transpose(1, 2).unbind()[1].add_(1)
    expected = [torch.arange(6.0).reshape(2, 3) * 5, torch.full((1, 3), 2.0)]
    assert all(torch.equal(r.cpu(), e) for r, e in zip(n.unbind(), expected, strict=True))


NESTED_VIEWS = {
    "unbind": lambda n: n.unbind()[0],
    "transpose": lambda n: n.transpose(1, 2),
    "select": lambda n: n[0],
    "chunk": lambda n: n.chunk(3, -1)[1],
    "view": lambda n: n.view(2, -1, 3),
    "unsqueeze": lambda n: n.unsqueeze(1),
    "values": lambda n: n.values(),
}


@pytest.mark.parametrize("view", NESTED_VIEWS.values(), ids=NESTED_VIEWS.keys())
def test_D41_views_in_and_out_of_inference_mode(device, view):
    def traits(d, made_in, seen_in):
        with torch.inference_mode(made_in):
            n = nested(d)
        with torch.inference_mode(seen_in):
            v = view(n)
            return v.is_inference(), v._is_view(), v._base is n, v.requires_grad

    for modes in itertools.product([False, True], repeat=2):
        assert traits(device, *modes) == traits("cpu", *modes), modes


def test_D41_gradients_pass_nested_tensors(device):
    def strided(d):
        x = dense(d).requires_grad_()
        (torch.nested.as_nested_tensor([x, x[:1]]) * 2).to_padded_tensor(0.0).sum().backward()
        return x.grad

    def ragged(d):
        x = dense(d).requires_grad_()
        n = torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 1, 2], device=d))
        (n * n).values().sum().backward()
        return x.grad

    agree(strided, device)
    agree(ragged, device)


def test_D41_dropout_of_a_nested_tensor_draws_from_the_device(device, device_module):
    n = torch.nested.nested_tensor([torch.ones(100, 3), torch.ones(50, 3)], device=device)
    state = torch.get_rng_state()
    device_module.manual_seed(1)
    first = torch.nn.functional.dropout(n, 0.5).to_padded_tensor(0.0)
    device_module.manual_seed(1)
    assert torch.equal(torch.nn.functional.dropout(n, 0.5).to_padded_tensor(0.0).cpu(), first.cpu())
    assert torch.equal(torch.get_rng_state(), state)
    assert 0 < (first == 0).sum().item() - 150 < 450
