"""``add`` has the CPU's values in all its forms, whoever computes it; a kernel of the project's runs."""

import pytest
import torch


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64, torch.complex64], ids=str)
def test_it_agrees_with_the_cpu(device, dtype):
    a = torch.arange(-6, 6).reshape(3, 4).to(dtype)
    b = torch.arange(4).to(dtype)
    x, y = a.to(device), b.to(device)
    assert torch.equal(torch.add(x, y, alpha=2).cpu(), torch.add(a, b, alpha=2))
    assert torch.equal((x.t() + x.t()).cpu(), a.t() + a.t())
    assert torch.equal(x.add_(y).cpu(), a + b)
    out = torch.empty(0, dtype=dtype, device=device)
    torch.add(y, 3, out=out)
    assert torch.equal(out.cpu(), b + 3)


@pytest.mark.requires("kernel:add.Tensor")  # there is one, and this driver has what it needs
def test_the_kernel_runs(device, kernel_calls):
    """For operands without gaps, of float32 and of one shape, which any kernel takes."""
    a = torch.linspace(-6, 6, 12).reshape(3, 4)
    x = a.to(device)
    before = kernel_calls("add.Tensor")
    assert torch.equal((x + x).cpu(), a + a)
    assert torch.equal(torch.add(x, x, alpha=2).cpu(), torch.add(a, a, alpha=2))
    assert torch.equal(torch.add(x, x, out=torch.empty(0, device=device)).cpu(), a + a)
    assert torch.equal(x.clone().add_(x).cpu(), a + a)
    assert kernel_calls("add.Tensor") == before + 4
