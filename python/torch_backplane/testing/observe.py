"""What a call did: its results or its error, its warnings, and its arguments after it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from torch_backplane.testing.transfer import Transfer


def tensors(tree: Any) -> list[torch.Tensor]:
    """The tensors of a tree of lists, tuples and dicts, in order."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


@dataclass
class Observation:
    """One call on one device."""

    value: Any = None
    error: Exception | None = None
    warnings: list[str] = field(default_factory=list)
    arguments: list[torch.Tensor] = field(default_factory=list)
    """The tensors among the arguments, after the call."""
    aliases: list[tuple[int, int]] = field(default_factory=list)
    """For each tensor of the result: which argument it is (-1: none), and with which storage it shares, in order of
    first appearance among arguments and results."""
    moved: list[bool] = field(default_factory=list)
    """For each argument: whether its data has moved."""
    seconds: float = 0
    drew: bool = False
    """Whether the call used the CPU's random numbers."""


def observe(
    function: Callable[..., Any],
    arguments: Any,
    device: str | torch.device,
    seed: int,
    transfer: Transfer | None = None,
) -> Observation:
    """Call ``function(*arguments)`` with copies of the arguments on a device.

    Args:
        function: what is called.
        arguments: a tuple of trees of CPU tensors and other values; they are not changed.
        device: where the copies are.
        seed: all generators are seeded with it before the call.
        transfer: what makes the copies; by default it copies CPU tensors.
    """
    transfer = transfer or Transfer(device)
    copies = transfer(arguments)
    # A function without a device in its arguments uses the default device.
    default = nullcontext() if transfer.names_device else torch.device(device)
    seen = Observation(arguments=tensors(copies))
    before = [_address(tensor) for tensor in seen.arguments]
    seed_generators(device, seed)
    state = torch.get_rng_state()
    begin = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with default:
                seen.value = function(*copies)
            synchronize(device)
        except Exception as error:
            seen.error = error
    seen.seconds = time.perf_counter() - begin
    seen.warnings = [str(warning.message) for warning in caught]
    seen.drew = not torch.equal(state, torch.get_rng_state())
    if seen.error is None:
        seen.moved = [_address(tensor) != old for tensor, old in zip(seen.arguments, before, strict=True)]
        seen.aliases = _aliases(seen.arguments, tensors(seen.value))
    return seen


def seed_generators(device: str | torch.device, seed: int) -> None:
    """Seed the CPU's generator and the device's. ``torch.manual_seed`` would seed every kind of device."""
    torch.default_generator.manual_seed(seed)
    if torch.device(device).type != "cpu":
        torch.get_device_module(device).manual_seed_all(seed)


def synchronize(device: str | torch.device) -> None:
    """Wait for the work of a device; a no-op for the CPU."""
    if torch.device(device).type != "cpu":
        torch.get_device_module(device).synchronize(device)


def _aliases(arguments: list[torch.Tensor], results: list[torch.Tensor]) -> list[tuple[int, int]]:
    storages: dict[int, int] = {}
    for tensor in arguments:
        _number(storages, tensor)
    identities = {id(tensor): i for i, tensor in reversed(list(enumerate(arguments)))}
    return [(identities.get(id(tensor), -1), _number(storages, tensor)) for tensor in results]


def _number(storages: dict[int, int], tensor: torch.Tensor) -> int:
    if not _has_storage(tensor):
        return -1
    return storages.setdefault(tensor.untyped_storage()._cdata, len(storages))


def _address(tensor: torch.Tensor) -> int:
    # Not data_ptr(), which makes a lazy clone materialize.
    return torch._C._data_address(tensor) if _has_storage(tensor) else 0  # type: ignore[attr-defined]


def _has_storage(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_nested
