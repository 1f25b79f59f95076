"""Printing: what torch prints of a device tensor is what it prints of the CPU's, and the device."""

import re

import pytest
import torch

A = torch.arange(24, dtype=torch.float32).view(2, 3, 4) / 7 - 1


class Tagged(torch.Tensor):
    """A subclass, as libraries make them."""


def nested(x):
    return torch.nested.nested_tensor([x[0], x[1, :2]])


KINDS = {
    "plain": lambda x: x,
    "large": lambda x: x.repeat(40, 40, 1),
    "scalar": lambda x: x[0, 0, 0],
    "empty": lambda x: x[:0],
    "requires_grad": lambda x: x.detach().requires_grad_(),
    "grad_fn": lambda x: x.detach().requires_grad_() * 2,
    "parameter": torch.nn.Parameter,
    "bool": lambda x: x > 0,
    "int": lambda x: x.int(),
    "uint8": lambda x: x.abs().byte(),
    "float64": lambda x: x.double(),
    "bfloat16": lambda x: x.bfloat16(),
    "float8": lambda x: x.to(torch.float8_e4m3fn),
    "not finite": lambda x: x.log(),
    "complex": lambda x: x + 1j,
    "conj": lambda x: (x + 1j).conj(),
    "neg": lambda x: (x + 1j).conj().imag,
    "transposed": lambda x: x.transpose(0, 2),
    "expanded": lambda x: x[:1].expand(3, 3, 4),
    "subclass": lambda x: x.as_subclass(Tagged),
    "zero tensor": lambda x: torch._efficientzerotensor((2, 3), device=x.device),
    "sparse": lambda x: x.relu().to_sparse(),
    "sparse hybrid": lambda x: x.relu().to_sparse(1),
    "sparse with gradient": lambda x: x.relu().to_sparse().requires_grad_(),
    "csr": lambda x: x[0].to_sparse_csr(),
    "csc": lambda x: x[0].to_sparse_csc(),
    "bsr": lambda x: x[0, :2].to_sparse_bsr((1, 2)),
    "bsc": lambda x: x[0, :2].to_sparse_bsc((2, 1)),
    "quantized": lambda x: torch.quantize_per_tensor(x, 0.1, 3, torch.qint8),
    "quantized per channel": lambda x: torch.quantize_per_channel(
        x, x.new_tensor([0.1, 0.2]).double(), torch.zeros(2, dtype=torch.int64, device=x.device), 0, torch.quint8
    ),
    "nested": nested,
    "list": lambda x: [x, {"a": x[0]}],
    "size": lambda x: (x.shape, x.dtype, x.stride()),
    "storage": lambda x: x[0, 0].clone().untyped_storage().tolist(),
}


def without_device(text, name):
    """The text without the device, and without the line breaks that its place costs."""
    return re.sub(r"\s+", "", re.sub(rf",\s*device='{name}:\d+'", "", text))


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
@pytest.mark.filterwarnings("ignore:.*(beta state|prototype)")
def test_repr_and_str(device, kind):
    expected, found = kind(A), kind(A.to(device))
    for show in (repr, str, "{}".format):
        assert without_device(show(found), device.type) == without_device(show(expected), device.type)
    if isinstance(found, torch.Tensor):
        assert found.device.type == device.type
        assert f"device='{device.type}:0'" in repr(found) or found.is_nested


def test_print_options_and_formats(device):
    x = A.to(device)
    for options in ({"precision": 2}, {"sci_mode": True}, {"threshold": 5, "edgeitems": 1}, {"linewidth": 40}):
        try:
            torch.set_printoptions(**options)
            assert without_device(repr(x), device.type) == without_device(repr(A), device.type)
        finally:
            torch.set_printoptions(profile="default")
    assert f"{x[0, 0, 1]:.3f}" == f"{A[0, 0, 1]:.3f}"
    assert repr(torch.nn.Linear(2, 3).to(device)) == repr(torch.nn.Linear(2, 3))
    assert str(x.device) == f"{device.type}:0"


def test_fake_and_meta_tensors(device):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        assert device.type in repr(torch.ones(2, device=device))
    assert "device='meta'" in repr(A.to(device).to("meta"))
