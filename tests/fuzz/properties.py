"""What is asked of a tensor on the CPU before a step uses it, and of two that should be equal."""

from __future__ import annotations

import torch

_EXACT_TO = {torch.float16: 2.0**10, torch.bfloat16: 2.0**7, torch.float32: 2.0**22, torch.float64: 2.0**50}


def coarsest(dtypes: list[torch.dtype | None]) -> torch.dtype | None:
    """The one of least precision."""
    floats = [dtype for dtype in dtypes if dtype is not None and (dtype.is_floating_point or dtype.is_complex)]
    return max(floats, key=lambda dtype: torch.finfo(dtype).eps, default=None)


def finite(tensor: torch.Tensor) -> bool:
    """Whether all numbers are, and small enough for a cast."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
        return True
    return readable(tensor) and bool((tensor.detach().abs() < 100).all())


def overlaps(tensor: torch.Tensor) -> bool:
    """Whether elements may share memory in a way that no function refuses: what is written last stays."""
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride:
            if stride <= reach:
                return True
            reach += (size - 1) * stride
    return False


def readable(tensor: torch.Tensor) -> bool:
    """Whether there is memory under the tensor."""
    return tensor._is_zerotensor() or not tensor.numel() or tensor.untyped_storage().nbytes() > 0


def too_large(tensor: torch.Tensor) -> bool:
    """Whether there are numbers among which the order of a sum counts."""
    limit = _EXACT_TO.get(tensor.dtype)
    if limit is None or not tensor.numel() or not readable(tensor):
        return False
    size = torch.nan_to_num(tensor.detach().abs(), nan=0.0, posinf=0.0)
    return bool(size.max() > limit)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors hold the same."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if not readable(a) or not readable(b):
        return readable(a) == readable(b)
    if a.dtype is torch.bool:
        a, b = a.ne(0), b.ne(0)
    if a.dtype is torch.complex32:
        a, b = a.to(torch.complex64), b.to(torch.complex64)
    return torch.equal(a, b) or torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
