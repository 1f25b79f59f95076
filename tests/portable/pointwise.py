"""What the tests of pointwise operators share: operands with special values among them, and a comparison."""

import torch

# What a step of the CPU's own rounds in the half types in between.
ROUNDED_TWICE = "rsub.Tensor logit addcdiv addcmul lerp.Tensor lerp.Scalar hypot xlogy.Tensor logaddexp".split()
SPECIAL = [float("inf"), -float("inf"), float("nan"), 0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 88.0, -104.0, 1e-30, 3.0, -3.0]


def tensor(shape, dtype, seed):
    """Random values, for floats with special ones among them."""
    generator = torch.Generator().manual_seed(seed)
    count = torch.Size(shape).numel()
    if dtype == torch.bool:
        return torch.randint(0, 2, (count,), generator=generator).to(dtype).reshape(shape)
    if not dtype.is_floating_point:
        low = 0 if dtype == torch.uint8 else -9
        return torch.randint(low, 10, (count,), generator=generator).to(dtype).reshape(shape)
    values = torch.randn(count, generator=generator, dtype=torch.float64) * 3
    for i in range(min(len(SPECIAL), count // 2)):
        values[(i * 7 + seed * 3) % count] = SPECIAL[i]
    return values.to(dtype).reshape(shape)


def compare(got, expected, kernel=""):
    """As torch's own tests compare; a half type may be one step off where the CPU rounds in between."""
    tolerance = {}
    if expected.dtype in (torch.bfloat16, torch.float16):
        step = 2**-7 if expected.dtype == torch.bfloat16 else 2**-10
        tolerance = {"rtol": 2 * step if kernel in ROUNDED_TWICE else step, "atol": step}
    elif expected.dtype == torch.float32:
        tolerance = {"rtol": 4e-6, "atol": 1e-6}
    torch.testing.assert_close(got.cpu(), expected, equal_nan=True, **tolerance)
