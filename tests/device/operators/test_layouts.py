"""Sparse and quantized tensors on the device: constructors, conversions, products, other devices; as on the CPU."""

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


def test_fake_quantization_with_gradients(device):
    gradients = []
    for on in ("cpu", device):
        x = A.to(on).detach().requires_grad_()
        torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 15).sum().backward()
        gradients.append(x.grad.cpu())
    assert torch.equal(*gradients)
    assert 0 < gradients[0].sum() < gradients[0].numel()
