"""add in its three forms equals the CPU's, and is computed by the device's kernel where it has one."""

import pytest
import torch
from dtypes import FLOATS, dtypes

TAKEN = [*FLOATS, *dtypes("int64 int32 int8 uint8 bool complex64")]


@pytest.fixture
def ran(kernel_calls):
    """``ran(call)``: the result of a call, and how often the kernel ran in it."""

    def count(call):
        before = kernel_calls("portable/add.Tensor")
        return call(), kernel_calls("portable/add.Tensor") - before

    return count


def both(device, dtype, *shape):
    cpu = (torch.arange(torch.Size(shape).numel()) % 5).reshape(shape).to(dtype)
    return cpu, cpu.to(device)


@pytest.mark.kernels
@pytest.mark.parametrize("dtype", TAKEN, ids=str)
def test_E28_the_kernel_computes_the_dtypes_that_it_declares(device, dtype, ran):
    a, x = both(device, dtype, 3, 4)
    alpha = True if dtype == torch.bool else 2
    result, calls = ran(lambda: torch.add(x, x[0], alpha=alpha))
    assert calls == 1
    assert torch.equal(result.cpu(), torch.add(a, a[0], alpha=alpha))


@pytest.mark.kernels
def test_E28_the_fallback_computes_the_others(device, ran):
    a, x = both(device, torch.complex128, 3, 4)
    result, calls = ran(lambda: x + x)
    assert calls == 0
    assert torch.equal(result.cpu(), a + a)


@pytest.mark.parametrize("dtype", dtypes("float32 bfloat16 int8 complex128"), ids=str)
def test_E28_broadcasting_strides_and_alpha(device, dtype):
    a, x = both(device, dtype, 4, 5, 6)
    for f in (
        lambda t: t + t[0],
        lambda t: t + t[:, :1, 2:3],
        lambda t: torch.add(t[::2].transpose(0, 2), t[1::2].transpose(0, 2), alpha=3),
        lambda t: t[0, 0, 0] + t,
        lambda t: t + 2,
        lambda t: 2 + t,
        lambda t: t.sum(0).to(t.dtype) + t[:0].sum(0).to(t.dtype),
        lambda t: t[:0] + t[:0],
        lambda t: t[1, 2, 3] + t[3, 2, 1],
        lambda t: t + torch.tensor(3, dtype=t.dtype),
        lambda t: torch.add(t, 1, alpha=4),
    ):
        expected = f(a)
        result = f(x)
        assert result.dtype == expected.dtype
        assert result.stride() == expected.stride()
        assert torch.equal(result.cpu(), expected)


def test_E28_promotion(device):
    a, x = both(device, torch.int64, 2, 3)
    for f in (lambda t: t + t.float(), lambda t: t + 1.5, lambda t: t.float() + t.double(), lambda t: (t > 1) + t):
        expected = f(a)
        result = f(x)
        assert result.dtype == expected.dtype
        assert torch.equal(result.cpu(), expected)


def test_E28_out_is_resized_or_keeps_its_strides(device):
    a, x = both(device, torch.float32, 3, 4)
    empty = torch.empty(0, device=device)
    assert torch.add(x, 1, out=empty) is empty
    assert torch.equal(empty.cpu(), a + 1)
    strided = torch.zeros(4, 6, device=device).t()[1:4]
    torch.add(x, x, out=strided)
    assert strided.stride() == (1, 6)
    assert torch.equal(strided.cpu(), a + a)
    wide = torch.zeros(3, 4, dtype=torch.float64, device=device)
    torch.add(x, x, out=wide)
    assert torch.equal(wide.cpu(), (a + a).double())
    with pytest.warns(UserWarning, match="output with one or more elements was resized"):
        torch.add(x, x, out=torch.empty(2, device=device))
    torch.add(x, x, out=x)
    assert torch.equal(x.cpu(), a + a)


@pytest.mark.kernels
def test_E28_in_place(device, ran):
    a, x = both(device, torch.float32, 3, 4)
    result, calls = ran(lambda: x.add_(x, alpha=2))
    assert calls == 1
    assert result is x
    assert torch.equal(x.cpu(), a * 3)
    y = torch.zeros(3, 4, device=device)
    y[:, 1::2] += x[:, :2]
    y += 1
    expected = torch.zeros(3, 4)
    expected[:, 1::2] += (a * 3)[:, :2]
    assert torch.equal(y.cpu(), expected + 1)


def test_the_kernel_is_differentiable(device):
    x = torch.ones(3, device=device, requires_grad=True)
    torch.add(x, x, alpha=3).sum().backward()
    assert x.grad.tolist() == [4, 4, 4]


def test_an_unknown_kernel_is_an_error(kernel_calls):
    with pytest.raises(RuntimeError, match=r"called 'add'; of its \d+, those with 'add' in their name:.*\badd\.Tensor"):
        kernel_calls("add")
    with pytest.raises(RuntimeError, match=r"called 'no_such\.kernel'.*: none"):
        kernel_calls("no_such.kernel")
