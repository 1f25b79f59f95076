"""Sparse, quantized and nested tensors on the device: made, converted, computed with, moved; values are the CPU's."""

import copy
import io
import re

import pytest
import torch

A = torch.arange(24, dtype=torch.float32).view(2, 3, 4) / 7 - 1
M = A[0].relu()

SPARSE = {
    "coo": lambda x: x.to_sparse(),
    "hybrid": lambda x: x.to_sparse(1),
    "csr": lambda x: x.to_sparse_csr(),
    "csc": lambda x: x.to_sparse_csc(),
    "bsr": lambda x: x[:2].to_sparse_bsr((1, 2)),
    "bsc": lambda x: x[:2].to_sparse_bsc((2, 1)),
}
sparse = pytest.mark.parametrize("kind", SPARSE.values(), ids=SPARSE.keys())


def same(found, expected, device):
    """On the device; layout, dtype, shape and values are the CPU's."""
    assert found.device.type == device.type
    assert (found.layout, found.dtype, found.is_quantized) == (expected.layout, expected.dtype, expected.is_quantized)
    if expected.is_nested:
        for a, b in zip(found.unbind(), expected.unbind(), strict=True):
            torch.testing.assert_close(a.cpu(), b)
        return
    assert found.shape == expected.shape
    if expected.is_quantized:
        assert torch.equal(found.int_repr().cpu(), expected.int_repr())
        found, expected = found.dequantize(), expected.dequantize()
    torch.testing.assert_close(found.to_dense().cpu(), expected.to_dense())


@sparse
def test_to_sparse_and_back_and_across(device, kind):
    expected = kind(M)
    found = kind(M.to(device))
    same(found, expected, device)
    same(expected.to(device), expected, device)
    torch.testing.assert_close(found.cpu().to_dense(), expected.to_dense())
    same(found.clone(), expected, device)
    same(copy.deepcopy(found), expected, device)
    same(found.double(), expected.double(), device)
    same(found.to_sparse_coo(), expected.to_sparse_coo(), device)
    same(torch.zeros_like(found), torch.zeros_like(expected), device)
    buffer = io.BytesIO()
    torch.save(found, buffer)
    same(torch.load(io.BytesIO(buffer.getvalue())), expected, device)
    assert found._nnz() == expected._nnz()
    assert (found.sparse_dim(), found.dense_dim()) == (expected.sparse_dim(), expected.dense_dim())
    values = found._values() if found.layout == torch.sparse_coo else found.values()
    assert values.device.type == device.type


def test_sparse_constructors(device):
    indices, values = torch.tensor([[0, 2, 0], [1, 0, 1]]), torch.tensor([1.0, 2.0, 3.0])
    same(
        torch.sparse_coo_tensor(indices.to(device), values.to(device), (3, 2)),
        torch.sparse_coo_tensor(indices, values, (3, 2)),
        device,
    )
    lists = ([[0, 2], [1, 0]], [1.0, 2.0])
    same(torch.sparse_coo_tensor(*lists, device=device), torch.sparse_coo_tensor(*lists), device)
    same(torch.sparse_coo_tensor(size=(3, 2), device=device), torch.sparse_coo_tensor(size=(3, 2)), device)
    found = torch.sparse_coo_tensor(indices.to(device), values.to(device), (3, 2)).coalesce()
    assert found.is_coalesced()
    assert (found.indices().tolist(), found.values().tolist()) == ([[0, 2], [1, 0]], [4, 2])
    compressed = (torch.tensor([0, 1, 2]), torch.tensor([1, 0]), values[:2])
    for make in (torch.sparse_csr_tensor, torch.sparse_csc_tensor):
        same(make(*(t.to(device) for t in compressed), (2, 2)), make(*compressed, (2, 2)), device)
    with torch.sparse.check_sparse_tensor_invariants():
        with pytest.raises(RuntimeError, match="size is inconsistent with indices"):
            torch.sparse_coo_tensor(torch.tensor([[5]], device=device), torch.ones(1, device=device), (3,))
        with pytest.raises(RuntimeError, match="is not satisfied"):
            torch.sparse_csr_tensor(*(t.to(device) for t in (compressed[0], indices[0, :2] + 5, compressed[2])), (2, 2))


@sparse
def test_sparse_products(device, kind):
    x = kind(M)
    dense = torch.linspace(-1, 1, x.shape[1] * 2).view(-1, 2)
    y = kind(M.to(device))
    bias = torch.ones(x.shape[0], 2)
    for product in (
        lambda s, d, b: s @ d,
        lambda s, d, b: s @ d[:, 0],
        lambda s, d, b: torch.addmm(b, s, d, alpha=2),
        lambda s, d, b: torch.sparse.mm(s, d),
    ):
        try:
            expected = product(x, dense, bias)
        except RuntimeError as error:  # the CPU has no such product of this layout
            with pytest.raises(RuntimeError, match=re.escape(str(error).split("\n")[0])):
                product(y, dense.to(device), bias.to(device))
        else:
            torch.testing.assert_close(product(y, dense.to(device), bias.to(device)).cpu(), expected)


def test_sparse_arithmetic_and_gradients(device):
    x, y = M.to_sparse(), M.to(device).to_sparse()
    for f in (
        lambda t: t + t,
        lambda t: t * 3,
        lambda t: t.relu().sqrt(),
        lambda t: torch.sparse.mm(t, t.t()),
        lambda t: torch.sparse.softmax(t, 1),
        lambda t: torch.sparse.sum(t, 0),
        lambda t: t.t().coalesce(),
        lambda t: t.index_select(0, torch.tensor([2, 0], device=t.device)),
        lambda t: torch.cat([t, t]),
        lambda t: t.neg_().abs(),
    ):
        same(f(y.clone()), f(x.clone()), device)
    gradients = []
    for on in ("cpu", device):
        w = A[0].to(on).detach().requires_grad_()
        product = torch.sparse.mm(w.to_sparse(), torch.ones(4, 2, device=on))
        (product.sum() + torch.sparse.sum(w.to_sparse() * w.to_sparse())).backward()
        gradients.append(w.grad.cpu())
    torch.testing.assert_close(*gradients)


def test_sparse_gradients_of_an_embedding(device):
    found = []
    for on in ("cpu", device):
        torch.manual_seed(0)
        embedding = torch.nn.Embedding(5, 3, sparse=True).to(on)
        optimizer = torch.optim.SparseAdam(embedding.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            embedding(torch.tensor([1, 1, 4], device=on)).square().sum().backward()
            assert embedding.weight.grad.is_sparse
            optimizer.step()
        found.append(embedding.weight.detach().cpu())
    torch.testing.assert_close(*found)


@pytest.mark.requires("multi_device")
def test_sparse_tensors_on_a_device_that_is_not_current(device, device_module):
    other = torch.device(device.type, 1)
    assert device_module.current_device() == 0
    expected, on_first = M.to_sparse(), M.to(device).to_sparse()
    found = on_first.to(other)
    assert torch.zeros(2, 2, layout=torch.sparse_coo, device=other).device == other
    assert torch.sparse_coo_tensor([[0], [1]], [2.0], (2, 2), device=other).device == other
    saved = io.BytesIO()
    torch.save(on_first, saved)
    saved.seek(0)
    for call in (
        lambda x: x,
        lambda x: x.clone(),
        lambda x: copy.deepcopy(x),
        lambda x: x.t(),
        lambda x: x.half().float(),
        lambda x: x.select(0, 1),
        lambda x: x.unsqueeze(0),
        lambda x: x.coalesce() * 2 + x,
        lambda x: torch.zeros_like(x),
        lambda x: torch.empty_like(x).copy_(x),
        lambda x: x.to_dense().to_sparse(),
        lambda x: torch.load(saved, map_location=str(other)) if x.device == other else x,
    ):
        result = call(found)
        same(result, call(expected), device)
        assert {part.device for part in (result, result._indices(), result._values())} == {other}
    assert str(other) in repr(found)
    with torch.device(other):
        assert torch.eye(2).to_sparse().device == other


@pytest.mark.requires("multi_device")
@pytest.mark.parametrize(
    "optimizer", [lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), lambda p: torch.optim.Adagrad(p, 0.1)]
)
def test_sparse_gradients_on_a_device_that_is_not_current(device, optimizer):
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


def per_tensor(x, dtype=torch.qint8):
    return torch.quantize_per_tensor(x, 0.1, 2, dtype)


def per_channel(x):
    scales, zeros = torch.tensor([0.1, 0.2], dtype=torch.float64), torch.tensor([3, 0])
    return torch.quantize_per_channel(x, scales.to(x.device), zeros.to(x.device), 0, torch.quint8)


@pytest.mark.parametrize("dtype", [torch.qint8, torch.quint8, torch.qint32], ids=str)
def test_E24_quantize_per_tensor(device, dtype):
    found, expected = per_tensor(A.to(device), dtype), per_tensor(A, dtype)
    same(found, expected, device)
    assert (found.q_scale(), found.q_zero_point(), found.qscheme()) == (0.1, 2, torch.per_tensor_affine)
    scales, zeros = torch.tensor([0.1, 0.2]), torch.tensor([0, 1])
    several = torch.quantize_per_tensor([A.to(device), A[0].to(device)], scales.to(device), zeros.to(device), dtype)
    for a, b in zip(several, torch.quantize_per_tensor([A, A[0]], scales, zeros, dtype), strict=True):
        same(a, b, device)


def test_E24_other_ways_to_a_quantized_tensor(device):
    same(per_channel(A.to(device)), per_channel(A), device)
    found = per_channel(A.to(device))
    assert found.q_per_channel_scales().tolist() == [0.1, 0.2]
    assert (found.q_per_channel_zero_points().tolist(), found.q_per_channel_axis()) == ([3, 0], 0)
    dynamic = torch.quantize_per_tensor_dynamic
    same(dynamic(A.to(device), torch.quint8, False), dynamic(A, torch.quint8, False), device)
    scale, zero = torch.tensor(0.1), torch.tensor(2)
    same(torch.quantize_per_tensor(A.to(device), scale.to(device), zero.to(device), torch.qint8), per_tensor(A), device)
    empty = torch._empty_affine_quantized((2, 3), scale=0.5, zero_point=1, dtype=torch.qint8, device=device)
    assert (empty.device.type, empty.q_scale(), empty.shape) == (device.type, 0.5, (2, 3))


@pytest.mark.parametrize("make", [per_tensor, per_channel])
def test_E24_quantized_tensors_move_and_compute(device, make):
    expected, found = make(A), make(A.to(device))
    same(expected.to(device), expected, device)
    assert torch.equal(found.cpu().int_repr(), expected.int_repr())
    for f in (
        lambda q: q.clone(),
        copy.deepcopy,
        lambda q: q.dequantize() * 2,
        lambda q: q.int_repr() + 1,
        lambda q: q.contiguous(),
        lambda q: torch.zeros_like(q.dequantize()),
    ):
        same(f(found), f(expected), device)
    if make is per_tensor:
        for f in (
            lambda q: q.relu(),
            lambda q: q.view(4, 6)[1:, ::2],
            lambda q: q.transpose(0, 1).contiguous(),
            lambda q: torch.nn.functional.max_pool2d(q, 2),
            lambda q: q.sort().values,
            lambda q: q > 0,
            lambda q: torch.cat([q, q]),
        ):
            same(f(found), f(expected), device)
    buffer = io.BytesIO()
    torch.save(found, buffer)
    same(torch.load(io.BytesIO(buffer.getvalue())), expected, device)


def test_fake_quantization_with_gradients(device):
    gradients = []
    for on in ("cpu", device):
        x = A.to(on).detach().requires_grad_()
        torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 15).sum().backward()
        gradients.append(x.grad.cpu())
    assert torch.equal(*gradients)
    assert 0 < gradients[0].sum() < gradients[0].numel()


@pytest.mark.filterwarnings("ignore:.*(prototype|beta)")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_nested_tensors(device, layout):
    def make(on):
        return torch.nested.nested_tensor([A[0].to(on), A[1, :2].to(on)], layout=layout)

    expected, found = make("cpu"), make(device)
    same(found, expected, device)
    for f in (
        lambda n: n * 2,
        lambda n: n + n,
        lambda n: n.relu(),
        lambda n: torch.nn.functional.linear(n, torch.linspace(-1, 1, 12).view(3, 4).to(n.device)),
        lambda n: torch.nn.functional.softmax(n, -1),
        lambda n: n.clone(),
        lambda n: n.double(),
    ):
        same(f(found), f(expected), device)
    torch.testing.assert_close(found.to_padded_tensor(0.5).cpu(), expected.to_padded_tensor(0.5))
    assert [t.shape for t in found.unbind()] == [(3, 4), (2, 4)]


@pytest.mark.filterwarnings("ignore:.*(prototype|beta)")
def test_attention_of_jagged_tensors(device):
    torch.manual_seed(0)
    parts = [torch.randn(n, 2, 4) for n in (5, 3)]

    def attend(on):
        n = torch.nested.nested_tensor([p.to(on) for p in parts], layout=torch.jagged, requires_grad=True)
        n = n.transpose(1, 2)
        return torch.nn.functional.scaled_dot_product_attention(n, n, n).transpose(1, 2)

    for a, part in zip(attend(device).unbind(), parts, strict=True):
        q = part.transpose(0, 1)[None]
        expected = torch.nn.functional.scaled_dot_product_attention(q, q, q)[0].transpose(0, 1)
        torch.testing.assert_close(a.detach().cpu(), expected, rtol=1e-5, atol=1e-5)
