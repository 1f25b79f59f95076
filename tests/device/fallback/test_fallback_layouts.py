"""Sparse, quantized and nested tensors on the device: by the CPU, equal to the CPU's (D41, D42)."""

import copy
import io
import itertools

import pytest
import torch

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


def same(result, expected, device):
    if isinstance(expected, (list, tuple)):
        assert len(result) == len(expected)
        for r, e in zip(result, expected, strict=True):
            same(r, e, device)
        return
    if not isinstance(expected, torch.Tensor):
        assert result == expected
        return
    assert result.device.type == device.type
    assert (result.dtype, result.layout, result.is_nested) == (expected.dtype, expected.layout, expected.is_nested)
    host = result.cpu()
    if expected.is_nested:
        same_on_cpu = [torch.equal(h, e) for h, e in zip(host.unbind(), expected.unbind(), strict=True)]
        assert all(same_on_cpu)
    elif expected.is_quantized:
        assert result.qscheme() == expected.qscheme()
        assert torch.equal(host.int_repr(), expected.int_repr())
        torch.testing.assert_close(host.dequantize(), expected.dequantize())
    else:
        torch.testing.assert_close(host, expected)


def agree(function, device):
    same(function(device), function(torch.device("cpu")), device)


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
    "to_sparse": sparse,
    "to_dense": lambda d: sparse(d).to_dense(),
    "indices and values": lambda d: torch.sparse_coo_tensor(
        torch.tensor([[0, 1], [2, 0]], device=d), torch.tensor([1.0, 2], device=d), (2, 3)
    ),
    "lists": lambda d: torch.sparse_coo_tensor([[0, 1], [2, 0]], [1.0, 2], (2, 3), device=d),
    "empty": lambda d: torch.empty(2, 3, layout=torch.sparse_coo, device=d),
    "hybrid": lambda d: torch.arange(24.0, device=d).reshape(2, 3, 4).to_sparse(2),
    "coalesce": lambda d: torch.sparse_coo_tensor([[0, 0], [2, 2]], [1.0, 2], (2, 3), device=d).coalesce(),
    "mm": lambda d: torch.sparse.mm(sparse(d), dense(d).t()),
    "sparse mm": lambda d: torch.sparse.mm(sparse(d), sparse(d).t()),
    "addmm": lambda d: torch.sparse.addmm(torch.ones(2, 2, device=d), sparse(d), dense(d).t()),
    "add": lambda d: sparse(d) + sparse(d),
    "dense add": lambda d: dense(d) + sparse(d),
    "scalar": lambda d: sparse(d) * 2,
    "unary": lambda d: sparse(d).neg_().abs().sqrt(),
    "index_select": lambda d: sparse(d).index_select(0, torch.tensor([1, 0], device=d)),
    "sum": lambda d: torch.sparse.sum(sparse(d), 0),
    "softmax": lambda d: torch.sparse.softmax(sparse(d), 1),
    "transpose": lambda d: sparse(d).t(),
    "select": lambda d: sparse(d)[1],
    "cat": lambda d: torch.cat([sparse(d), sparse(d)]),
    "mask": lambda d: dense(d).sparse_mask(sparse(d)),
    "clone": lambda d: sparse(d).clone(),
    "dtype": lambda d: sparse(d).double(),
    "from the host": lambda d: sparse("cpu").to(d),
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
    "csc": lambda d: dense(d).to_sparse_csc(),
    "bsr": blocks,
    "bsr to dense": lambda d: blocks(d).to_dense(),
    "csr of parts": lambda d: torch.sparse_csr_tensor([0, 1, 2], [0, 1], [1.0, 2], device=d),
    "csr mm": lambda d: csr(d) @ dense(d).t(),
    "csr add": lambda d: csr(d) + csr(d),
    "csr scalar": lambda d: csr(d) * 2,
    "csr to coo": lambda d: csr(d).to_sparse(),
    "csr from the host": lambda d: csr("cpu").to(d),
    "csr mul_": in_place(csr, lambda c: c.mul_(3)),
    "csr select": lambda d: csr(d)[1],
    "sampled_addmm": lambda d: torch.sparse.sampled_addmm(
        csr(d), torch.ones(2, 2, device=d), torch.ones(2, 3, device=d)
    ),
}


@pytest.mark.parametrize("function", SPARSE.values(), ids=SPARSE.keys())
def test_D42_sparse_tensors_are_computed_by_the_cpu(device, function):
    agree(function, device)


def test_D42_a_false_claim_to_be_coalesced_is_refused(device):
    for columns in ([[1, 0], [0, 1]], [[0, 0], [1, 1]]):
        indices = torch.tensor(columns, device=device)
        with pytest.raises(RuntimeError, match="cannot set is_coalesced to true"):
            torch.sparse_coo_tensor(
                indices, torch.ones(2, device=device), (2, 3), is_coalesced=True, check_invariants=True
            )


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
    q = by_channel(device)
    assert q.q_per_channel_scales().device.type == device.type
    assert torch.equal(q.q_per_channel_scales().cpu(), by_channel("cpu").q_per_channel_scales())


@pytest.mark.parametrize("make", [sparse, csr, blocks, quantized, by_channel, nested])
def test_D42_they_print(device, make):
    found, expected = str(make(device)), str(make("cpu"))
    place = f"device='{device}'"
    assert place in found or make is nested
    assert found.replace(f", {place}", "").replace(f"{place}, ", "").split() == expected.split()


@pytest.mark.parametrize("make", [sparse, csr, quantized, by_channel])
def test_D42_they_are_saved_and_loaded(device, make):
    file = io.BytesIO()
    torch.save(make(device), file)
    file.seek(0)
    same(torch.load(file, weights_only=False), make("cpu"), device)


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
