"""What tensors hold, and when that is the same."""

from __future__ import annotations

from typing import Any

import torch

from fuzz.properties import readable, same_bits
from torch_backplane.testing.compare import Difference, Rules, compare


def difference(wanted: torch.Tensor, found: torch.Tensor, coarsest: torch.dtype | None, scale: float) -> str | None:
    """What differs, if anything does.

    Args:
        wanted: the CPU's.
        found: the device's.
        coarsest: None if every bit counts; else the coarsest dtype that had a part in the numbers.
        scale: the largest number of the program.
    """
    if same_bits(wanted, found):
        return None
    if coarsest is None:
        return f"expected {short(wanted)}, found {short(found)}"
    try:
        rules = Rules(near=False, chain=True, precision=coarsest, scale=scale)
        compare(wanted, found, torch.device("cpu"), rules, "contents")
    except Difference as error:
        return str(error)
    return None


def contents(tensor: torch.Tensor) -> torch.Tensor | None:
    """What a tensor holds, on the CPU; None if it has no memory."""
    if tensor._is_zerotensor():
        return torch.zeros(tensor.shape, dtype=tensor.dtype)
    if tensor.numel() and not readable(tensor):
        return None
    held = tensor.detach().cpu()
    if held.is_conj() or held.is_neg():
        held = held.resolve_conj().resolve_neg()
    return held.clone() if tensor.device.type == "cpu" else held


def same_scalars(expected: list[Any], found: list[Any], exact: bool) -> bool:
    """Whether two lists of numbers, strings and lists of numbers are equal, or near where numbers are inexact."""
    if exact or len(expected) != len(found):
        return repr(expected) == repr(found)
    pairs = zip(expected, found, strict=True)
    return all(torch.allclose(torch.tensor(a), torch.tensor(b), rtol=0.05, atol=0.05, equal_nan=True) for a, b in pairs)


def largest(tensor: torch.Tensor) -> float:
    """The largest finite number."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel() or not readable(tensor):
        return 0.0
    size = torch.nan_to_num(tensor.detach().abs().double(), nan=0.0, posinf=0.0)
    return float(size.max())


def short(tensor: torch.Tensor) -> str:
    """Its first numbers."""
    text = str(tensor.flatten()[:8].tolist())
    return f"{text[:-1]}, ...]" if tensor.numel() > 8 else text
