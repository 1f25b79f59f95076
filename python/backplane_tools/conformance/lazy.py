"""Copy-on-write arguments: what a call writes, it writes to its own memory; what it only reads stays unmaterialized."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_backplane.testing.compare import Difference, Rules, compare
from torch_backplane.testing.observe import Observation, observe
from torch_backplane.testing.transfer import Transfer


class LazyTransfer(Transfer):
    """Copies that share their memory, lazily, with originals that must not change."""

    def __init__(self, device: str | torch.device) -> None:
        super().__init__(device)
        self._originals: list[tuple[torch.Tensor, torch.Tensor]] = []

    def _moved(self, raw: torch.Tensor, device: torch.device) -> torch.UntypedStorage:
        original = raw.to(device, copy=True)
        if original.numel() == 0:
            return original.untyped_storage()
        self._originals.append((original, raw.clone()))
        return torch._lazy_clone(original).untyped_storage()

    def originals_are_untouched(self) -> bool:
        """Whether the memory that was shared holds what it held."""
        return all(torch.equal(original.cpu(), bytes_before.cpu()) for original, bytes_before in self._originals)


def check_lazy_clones(
    function: Callable[..., Any],
    arguments: Any,
    device: torch.device,
    seed: int,
    rules: Rules,
    *,
    stays_lazy: bool,
) -> Observation:
    """Call with copy-on-write clones of the arguments; raise Difference unless that makes no difference.

    Args:
        function: what is called.
        arguments: a tuple of trees of CPU tensors.
        device: the device.
        seed: of both calls.
        rules: what of the results must be equal.
        stays_lazy: whether an argument that the CPU leaves unmaterialized must be so on the device, too.
    """
    plain = observe(function, arguments, device, seed)
    transfer = LazyTransfer(device)
    found = observe(function, arguments, device, seed, transfer)
    lazy = _lazy(found)
    if not transfer.originals_are_untouched():
        raise Difference("wrote into memory that an argument, a copy-on-write clone, shares with its original")
    if found.error is not None:
        if plain.error is None:
            raise Difference(f"raised with copy-on-write clones: {found.error}") from found.error
        return found
    compare(plain.value, found.value, device, rules, "result of copy-on-write clones")
    if stays_lazy:
        on_cpu = _lazy(observe(function, arguments, "cpu", seed, LazyTransfer("cpu")))
        for i, (expected, still) in enumerate(zip(on_cpu, lazy, strict=True)):
            if expected and not still:
                raise Difference(f"materialized argument {i}, a copy-on-write clone that it does not write")
    return found


def _lazy(seen: Observation) -> list[bool]:
    is_lazy = torch._C._is_cow_tensor  # type: ignore[attr-defined]
    return [t.layout is torch.strided and not t.is_nested and is_lazy(t) for t in seen.arguments]
