"""add equals the CPU's, and is computed by the device's kernel where it has one. Its forms: test_structured.py."""

import pytest
import torch
from dtypes import FLOATS, dtypes

TAKEN = [*FLOATS, *dtypes("int64 int32 int8 uint8 bool complex64")]


def both(device, dtype, *shape):
    cpu = (torch.arange(torch.Size(shape).numel()) % 5).reshape(shape).to(dtype)
    return cpu, cpu.to(device)


@pytest.mark.kernels
@pytest.mark.parametrize("dtype", TAKEN, ids=str)
def test_E28_the_kernel_computes_the_dtypes_that_it_declares(device, dtype, kernel_calls):
    a, x = both(device, dtype, 3, 4)
    alpha = True if dtype == torch.bool else 2
    before = kernel_calls("portable/add.Tensor")
    result = torch.add(x, x[0], alpha=alpha)
    assert kernel_calls("portable/add.Tensor") == before + 1
    assert torch.equal(result.cpu(), torch.add(a, a[0], alpha=alpha))


SUMS = [
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
]
PROMOTED = [lambda t: t + t.float(), lambda t: t + 1.5, lambda t: t.float() + t.double(), lambda t: (t > 1) + t]


@pytest.mark.parametrize(
    ("dtype", "sums"), [*((one, SUMS) for one in dtypes("float32 bfloat16 int8 complex128")), (torch.int64, PROMOTED)]
)
def test_E28_broadcasting_strides_alpha_and_promotion(device, dtype, sums):
    a, x = both(device, dtype, 4, 5, 6)
    for f in sums:
        expected, result = f(a), f(x)
        assert (result.dtype, result.stride()) == (expected.dtype, expected.stride())
        assert torch.equal(result.cpu(), expected)


def test_an_unknown_kernel_is_an_error(kernel_calls):
    with pytest.raises(RuntimeError, match=r"called 'add'; of its \d+, those with 'add' in their name:.*\badd\.Tensor"):
        kernel_calls("add")
    with pytest.raises(RuntimeError, match=r"called 'no_such\.kernel'.*: none"):
        kernel_calls("no_such.kernel")
