"""Copies of the arguments of a call, on the CPU or on the device, with the same structure.

Copies of tensors that share memory share memory, with the same offsets and strides, so that views and gaps are kept.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map


class Transfer:
    """Copies values to a device; one instance is for one call, so that a tensor that appears twice stays one tensor.

    Tensors are detached leaves of the same ``requires_grad``. ``"cpu"``, ``torch.device("cpu")`` and CPU generators
    become the device's; other values are passed on.

    Args:
        device: where the copies are made; copies of tensors on another device of its kind stay on that one.
        source: the kind of device that is copied from; tensors of other devices are passed on.
    """

    def __init__(self, device: str | torch.device, source: str = "cpu") -> None:
        self.device = torch.device(device)
        self.source = source
        self.names_device = False
        """Whether a tensor or a device was among the values."""
        self._tensors: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # the original is kept: ids are reused
        self._storages: dict[int, torch.UntypedStorage] = {}

    def __call__(self, value: Any) -> Any:
        """Copy a value: a tensor, or any tree of lists, tuples and dicts."""
        return tree_map(self._leaf, value)

    def _leaf(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            self.names_device = True
            return self._tensor(value)
        if isinstance(value, torch.device) or (isinstance(value, str) and value.partition(":")[0] == self.source):
            self.names_device = True
            return type(value)(str(self._target(torch.device(value)) or value))
        if isinstance(value, torch.Generator) and value.device.type == self.source:
            return torch.Generator(self.device).manual_seed(value.initial_seed())
        return value

    def _target(self, device: torch.device) -> torch.device | None:
        if device.type != self.source:
            return None
        return device if device.type == self.device.type else self.device

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        known = self._tensors.get(id(tensor))
        if known is not None:
            return known[1]
        with torch.no_grad():
            copy = self._copy(tensor.detach())
        if isinstance(tensor, torch.nn.Parameter):
            copy = torch.nn.Parameter(copy, tensor.requires_grad)
        elif tensor.requires_grad:
            copy.requires_grad_()
        self._tensors[id(tensor)] = (tensor, copy)
        return copy

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        device = self._target(tensor.device)
        if device is None:
            return tensor
        if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
            return tensor.to(device, copy=True)
        storage = tensor.untyped_storage()
        mine = self._storages.get(storage._cdata)
        if mine is None:
            raw = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage, 0, (storage.nbytes(),), (1,))
            mine = self._moved(raw, device)
            self._storages[storage._cdata] = mine
        copy = torch.empty(0, dtype=tensor.dtype, device=device)
        copy.set_(mine, tensor.storage_offset(), tensor.size(), tensor.stride())
        if tensor.is_conj():
            copy = copy.conj()
        if tensor.is_neg():
            copy = torch._neg_view(copy)
        return copy

    def _moved(self, raw: torch.Tensor, device: torch.device) -> torch.UntypedStorage:
        return raw.to(device, copy=True).untyped_storage()
