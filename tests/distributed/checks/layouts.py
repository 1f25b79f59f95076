"""Tensors of the same values that lie differently in memory, and what lies beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from checks import same


@dataclass
class Placed:
    """A tensor on the device, and a check that what shares its memory is as it was."""

    tensor: torch.Tensor
    rest_is_untouched: Callable[[], None] = lambda: None


def plain(value: torch.Tensor, device: torch.device) -> Placed:
    return Placed(value.to(device))


def with_offset(value: torch.Tensor, device: torch.device) -> Placed:
    whole = torch.full((value.numel() + 8,), 1, dtype=value.dtype, device=device)
    part = whole[3 : 3 + value.numel()].view(value.shape)
    part.copy_(value)
    ones = torch.ones(5, dtype=value.dtype)
    return Placed(part, lambda: same(torch.cat([whole[:3], whole[-5:]])[:5], ones, "beside"))


def transposed(value: torch.Tensor, device: torch.device) -> Placed:
    return (
        Placed(value.transpose(0, -1).contiguous().to(device).transpose(0, -1)) if value.dim() else plain(value, device)
    )


def with_steps(value: torch.Tensor, device: torch.device) -> Placed:
    if value.dim() == 0:
        return plain(value, device)
    whole = torch.full((*value.shape[:-1], 2 * value.shape[-1]), 1, dtype=value.dtype, device=device)
    whole[..., ::2] = value.to(device)
    ones = torch.ones(value.shape, dtype=value.dtype)
    return Placed(whole[..., ::2], lambda: same(whole[..., 1::2].contiguous(), ones, "between"))


def lazily_cloned(value: torch.Tensor, device: torch.device) -> Placed:
    """Copy-on-write: a write gets separate memory."""
    base = value.to(device)
    return Placed(torch._lazy_clone(base), lambda: same(base, value, "the original of a lazy clone"))


def negated(value: torch.Tensor, device: torch.device) -> Placed:
    """The imaginary part of conjugated numbers."""
    numbers = torch.complex(torch.ones_like(value), -value).to(device)
    tensor = numbers.conj().imag
    assert tensor.is_neg()
    return Placed(tensor, lambda: same(numbers.real.contiguous(), torch.ones_like(value), "the real part"))


def layouts_of(dtype: torch.dtype, is_written: bool) -> list[Callable[[torch.Tensor, torch.device], Placed]]:
    """Those that a dtype can have.

    Not conjugated: torch.distributed refuses that ("view_as_real"), or hands a backend a copy. So it does with negated
    tensors, whose copy it drops when something was written there, on every backend.
    """
    every = [plain, with_offset, transposed, with_steps, lazily_cloned]
    return [*every, negated] if dtype in (torch.float32, torch.float64) and not is_written else every
