"""The operator of our own: ``ops.py`` defines it, ``backend/operators/swiglu.cpp`` runs it on the device."""

import pytest
import torch
from torch_backplane.testing import check_op

from {{ cookiecutter.package_name }} import ops


def gradient(x):
    """The result, and the gradient of x for a gradient of the result that is not the same everywhere."""
    x = x.detach().requires_grad_()
    y = ops.swiglu(x)
    y.backward(torch.arange(y.numel()).remainder(4).view_as(y).to(y))
    return y.detach(), x.grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(8,), (4, 66), (2, 3, 4), (0, 4), (6, 0)], ids=str)
def test_it_agrees_with_the_reference(device, shape, dtype):
    a = torch.linspace(-4, 4, 2 * torch.Size(shape).numel()).view(2, *shape).to(dtype)
    for x in (a[1], a[1].transpose(0, -1), a.movedim(0, -1)[..., 0]):
        half = dtype.itemsize == 2  # rounded once in the kernels, after each step in the reference
        wide, tolerance = (x.float(), {"rtol": 0.02, "atol": 0.02}) if half else (x, {})
        for result, expected in zip(gradient(x.to(device)), gradient(wide), strict=True):
            torch.testing.assert_close(result.cpu(), expected.to(dtype), **tolerance)
            assert result.stride() == expected.stride()


def test_the_kernels_run(device, kernel_calls):
    names = ["{{ cookiecutter.package_name }}::swiglu", "{{ cookiecutter.package_name }}::swiglu_backward"]
    before = [kernel_calls(name) for name in names]
    gradient(torch.ones(2, 4, device=device))
    assert [kernel_calls(name) for name in names] == [calls + 1 for calls in before]


def test_the_definition_holds(device):
    """Schema, fake, gradients, layouts, vmap and autocast, on the device and against the reference."""
    x = torch.linspace(-2, 2, 12).view(3, 4).to(device).requires_grad_()
    check_op(ops.swiglu, [(x,)])
    check_op(ops.swiglu_backward, [(torch.ones(3, 2, device=device), x)])


def test_the_second_gradient_is_that_of_the_first(device):
    x = torch.linspace(-2, 2, 12, dtype=torch.float64).view(3, 4).to(device).requires_grad_()
    assert torch.autograd.gradgradcheck(ops.swiglu, (x,))


def test_it_compiles_whole(device):
    compiled = torch.compile(lambda x: ops.swiglu(x * 2).sum(), backend="aot_eager", fullgraph=True)
    for rows in (3, 5):  # the second with a symbol for the size
        on_cpu = torch.linspace(-3, 3, 8 * rows).view(rows, 8).requires_grad_()
        x = on_cpu.detach().to(device).requires_grad_()
        result, expected = compiled(x), ops.swiglu(on_cpu * 2).sum()
        torch.testing.assert_close(result.cpu(), expected)
        result.backward(), expected.backward()
        torch.testing.assert_close(x.grad.cpu(), on_cpu.grad)


def test_what_cannot_be_split_is_an_error(device):
    with pytest.raises(RuntimeError, match=r"cannot split \(2, 3\)"):
        ops.swiglu(torch.ones(2, 3, device=device))
