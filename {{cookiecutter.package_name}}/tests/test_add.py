"""The example kernel, ``backend/kernels/add.cpp``: runs natively, in all its forms, with the CPU's values."""

import pytest
import torch

pytestmark = pytest.mark.requires("kernel:add.Tensor")  # that it runs on this driver: a HostKernel needs host functions


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64])
def test_the_kernel_agrees_with_the_cpu(device, kernel_calls, dtype):
    a = torch.arange(-6, 6).reshape(3, 4).to(dtype)
    b = torch.arange(4).to(dtype)
    x, y = a.to(device), b.to(device)
    before = kernel_calls("add.Tensor")
    assert torch.equal(torch.add(x, y, alpha=2).cpu(), torch.add(a, b, alpha=2))
    assert torch.equal((x.t() + x.t()).cpu(), a.t() + a.t())
    assert torch.equal(x.add_(y).cpu(), a + b)
    out = torch.empty(0, dtype=dtype, device=device)
    torch.add(y, 3, out=out)
    assert torch.equal(out.cpu(), b + 3)
    assert kernel_calls("add.Tensor") == before + 4


def test_what_the_kernel_does_not_take_is_right_all_the_same(device, kernel_calls):
    a = torch.arange(8).to(torch.complex64)
    before = kernel_calls("add.Tensor")
    assert torch.equal((a.to(device) + a.to(device)).cpu(), a + a)
    assert kernel_calls("add.Tensor") == before
