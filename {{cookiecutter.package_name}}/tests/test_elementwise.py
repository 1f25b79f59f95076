"""The elementwise kernels and reductions: native, with the CPU's values."""

import pytest
import torch

pytestmark = pytest.mark.requires("host_exec")  # the kernels run C++ on the host, in the stream's order

KERNELS = {
    "exp": torch.exp,
    "abs.out": torch.abs,
    "tanh": torch.tanh,
    "gelu": torch.nn.functional.gelu,
    "mul.Tensor": lambda x: x * x[0],
    "div.Tensor": lambda x: x / 3,
    "lt.Scalar": lambda x: x < 1,
    "where.self": lambda x: torch.where(x > 0, x, x.t().t() * 2),
    "sum.dim_IntList": lambda x: x.sum(1),
    "amax": lambda x: x.amax(0),
    "argmax": torch.argmax,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", KERNELS)
def test_the_kernel_agrees_with_the_cpu(device, kernel_calls, name, dtype):
    a = torch.linspace(-3, 4, 84).reshape(7, 12).to(dtype)
    for x, y in ((a, a.to(device)), (a.t(), a.to(device).t()), (a[::2, 1::3], a.to(device)[::2, 1::3])):
        before = kernel_calls(name)
        result = KERNELS[name](y)
        assert kernel_calls(name) == before + 1
        torch.testing.assert_close(result.cpu(), KERNELS[name](x))
