"""Indexing in every form, and operators whose results' sizes depend on data."""

import warnings

import pytest
import torch
from answers import same

from torch_backplane.testing.observe import tensors

A = torch.arange(60, dtype=torch.float32).view(3, 4, 5) / 7
I = torch.tensor([2, 0, 1])  # noqa: E741

READS = {
    "integer": lambda x, i: x[1],
    "negative": lambda x, i: x[-1, -2],
    "slice": lambda x, i: x[1:, ::2, 1:4],
    "ellipsis": lambda x, i: x[..., 2],
    "none": lambda x, i: x[:, None, 1],
    "tensor": lambda x, i: x[i],
    "tensor of more dimensions": lambda x, i: x[i.view(3, 1), :, i],
    "pair": lambda x, i: x[i, i],
    "separated pair": lambda x, i: x[i, :, i],
    "list": lambda x, i: x[[0, 2], [1, 3]],
    "host tensor": lambda x, i: x[i.cpu()],
    "scalar tensor": lambda x, i: x[i[0]],
    "bool": lambda x, i: x[True],
    "mask": lambda x, i: x[x > 4],
    "mask of one dimension": lambda x, i: x[:, i.new_tensor([1, 0, 1, 1], dtype=torch.bool)],
    "mask and tensor": lambda x, i: x[x[:, 0, 0] > 1, i[:2]],
    "host mask": lambda x, i: x[(x > 4).cpu()],
    "uint8 mask of nothing": lambda x, i: x[x > 1000],
    "empty list": lambda x, i: x[[]],
    "int32": lambda x, i: x[i.int()],
    "range": lambda x, i: x[range(2)],
    "tuple of slices": lambda x, i: x[(slice(None), slice(1, 3))],
    "take": lambda x, i: x.take(i * 9),
    "take_along_dim": lambda x, i: x.take_along_dim(i.view(3, 1, 1), 1),
    "gather": lambda x, i: x.gather(0, i.view(3, 1, 1).expand(3, 4, 5)),
    "index_select": lambda x, i: x.index_select(1, i),
    "masked_select": lambda x, i: x.masked_select(x > 4),
    "where": lambda x, i: torch.where(x > 4),
    "nonzero": lambda x, i: torch.nonzero(x > 4),
    "nonzero tuple": lambda x, i: torch.nonzero(x > 4, as_tuple=True),
    "argwhere": lambda x, i: torch.argwhere(x > 4),
    "nonzero_static": lambda x, i: torch.nonzero_static(x > 4, size=50),
    "unique": lambda x, i: torch.unique(x.round(), return_inverse=True, return_counts=True),
    "repeat_interleave": lambda x, i: x.repeat_interleave(i + 1, 0),
    "tensor_split by a tensor": lambda x, i: torch.tensor_split(x, i.sort().values, 1),
    "tensor_split by a host tensor": lambda x, i: torch.tensor_split(x, i.cpu().sort().values, 1),
    "tensor_split into a tensor": lambda x, i: torch.tensor_split(x, i[0], 1),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_reading_equals_the_cpus(device, read):
    same(read(A.to(device), I.to(device)), read(A, I), device)


def _set(index, value):
    def write(x, i):
        x[index(x, i)] = value(x, i)

    return write


WRITES = {
    "integer": _set(lambda x, i: 1, lambda x, i: 7),
    "slice": _set(lambda x, i: (slice(1), slice(None, None, 2)), lambda x, i: x[1:2, ::2].clone()),
    "ellipsis": _set(lambda x, i: (..., 2), lambda x, i: 5.5),
    "tensor": _set(lambda x, i: i[:2], lambda x, i: x[0].clone()),
    "pair": _set(lambda x, i: (i, i), lambda x, i: x[0, :3].clone()),
    "mask": _set(lambda x, i: x > 4, lambda x, i: 0),
    "mask with values": _set(lambda x, i: x[:, 0, 0] > 1, lambda x, i: x[:2].clone()),
    "host mask": _set(lambda x, i: (x > 4).cpu(), lambda x, i: torch.tensor(3.0)),
    "host scalar": _set(lambda x, i: (0, 0), lambda x, i: torch.tensor(3.0)),
    "another dtype": _set(lambda x, i: 0, lambda x, i: i[0]),
    "a host tensor into a slice": _set(lambda x, i: 0, lambda x, i: torch.ones(4, 5)),
    "computed from itself": _set(lambda x, i: (i, 0), lambda x, i: x[i, 0] * 3),
    "augmented": lambda x, i: x.__setitem__(0, x[0].__iadd__(2)),
    "index_put accumulate": lambda x, i: x.index_put_((i * 0, i), x[0, :3].clone(), accumulate=True),
    "masked_fill": lambda x, i: x.masked_fill_(x > 4, -1),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_writing_equals_the_cpus(device, write):
    expected, found = A.clone(), A.to(device)
    write(expected, I)
    write(found, I.to(device))
    torch.testing.assert_close(found.cpu(), expected)


def test_gradients_through_indices(device):
    for read in ("tensor", "pair", "mask", "gather", "take", "index_select", "slice", "tensor_split by a tensor"):
        gradients = []
        for on in ("cpu", device):
            x = A.to(on).detach().requires_grad_()
            (gradient,) = torch.autograd.grad(sum(t.square().sum() for t in tensors(READS[read](x, I.to(on)))), x)
            gradients.append(gradient.cpu())
        torch.testing.assert_close(*gradients)


def test_tensor_split_refuses_what_torch_refuses(device):
    x = A.to(device)
    with pytest.raises(RuntimeError, match="dtype of long, but got Float"):
        torch.tensor_split(x, x[0, 0])
    with pytest.raises(RuntimeError, match="zero-dimensional or one-dimensional tensor, but got a tensor with 2 dims"):
        torch.tensor_split(x, I.to(device).view(3, 1))
    with torch.inference_mode():
        assert [len(t) for t in torch.tensor_split(x, I.to(device)[2])] == [3]


def test_items_and_conversions(device):
    x = A.to(device)
    for convert in (torch.Tensor.item, float, int, bool):
        assert convert(x[0, 0, 1]) == convert(A[0, 0, 1])
    assert x.tolist() == A.tolist()
    assert [t.shape for t in x] == [(4, 5)] * len(x) == [(4, 5)] * 3
    assert (x.cpu().numpy() == A.numpy()).all()
    assert 2.0 in x.round()
    with pytest.raises(TypeError, match=r"can't convert .* device type tensor to numpy"):
        x.numpy()
    torch.testing.assert_close(x, x.clone())
    torch.testing.assert_close(x, A, check_device=False)
    with pytest.raises(AssertionError, match="device"):
        torch.testing.assert_close(x, A)
    with pytest.raises(AssertionError, match="not close"):
        torch.testing.assert_close(x, x + 1)


def test_a_uint8_mask_warns_once_a_call(device):
    for on in ("cpu", device):
        x, mask = torch.ones(3, device=on), torch.tensor([1, 0, 1], dtype=torch.uint8, device=on)
        for call in (lambda x, mask: x[mask], lambda x, mask: x.index_put_((mask,), torch.ones(2, device=x.device))):
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                call(x, mask)
            assert [str(warning.message)[:34] for warning in seen] == ["indexing with dtype torch.uint8 is"]
