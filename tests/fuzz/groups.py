"""What the reference knows of memory: who used it on which stream, and how exact its contents are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

Stream = tuple[Any, int]
"""A device of the program, or "host", and a number."""

HOST: Stream = ("host", 0)


@dataclass
class Group:
    """Memory that tensors share: a storage, and its copies on write."""

    taint: int = 0
    """0: both sides compute the same bits. Else how many steps have made something of inexact numbers."""
    coarsest: torch.dtype | None = None
    """Of what is inexact, the dtype of least precision that had a part in it."""
    defined: int | None = None
    """So many bytes have been written; None is all. What a storage gains by growing may hold anything."""
    owner: int | None = None
    """The thread that made it; None before the threads start."""
    writers: set[Stream] = field(default_factory=set)
    readers: set[Stream] = field(default_factory=set)
    users: set[Stream] = field(default_factory=set)

    def before(self, streams: list[Stream], writes: bool) -> set[Stream]:
        """The streams whose work must be over before an access on ``streams``."""
        conflicts = self.writers | self.readers if writes else self.writers
        return conflicts - set(streams)

    def access(self, streams: list[Stream], writes: bool) -> None:
        """Note one."""
        self.users.update(streams)
        if writes:
            self.writers, self.readers = set(streams), set()
        else:
            self.readers.update(streams)

    def defines(self, tensor: torch.Tensor) -> bool:
        """Whether all that the tensor covers has been written."""
        return self.defined is None or covered(tensor) <= self.defined


class Groups:
    """The group of each storage. Storages are kept alive, so that an address is one storage's alone."""

    def __init__(self) -> None:
        self._groups: dict[int, tuple[Group, torch.UntypedStorage]] = {}

    def of(self, tensor: torch.Tensor) -> Group | None:
        """The group, if the tensor's storage has one."""
        found = self._groups.get(key(tensor))
        return found[0] if found else None

    def of_storage(self, storage: torch.UntypedStorage) -> Group:
        """The group of a storage that has one."""
        return self._groups[storage._cdata][0]

    def all(self) -> list[Group]:
        """All there are."""
        return [group for group, _ in self._groups.values()]

    def add(self, tensor: torch.Tensor, group: Group) -> Group:
        """Put the tensor's storage into a group."""
        self._groups[key(tensor)] = (group, tensor.untyped_storage())
        return group


def key(tensor: torch.Tensor) -> int:
    """What is equal for tensors of one storage."""
    return tensor.untyped_storage()._cdata


def covered(tensor: torch.Tensor) -> int:
    """The bytes of its storage up to the tensor's last element."""
    if not tensor.numel():
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (tensor.storage_offset() + last + 1) * tensor.element_size()


Meta = tuple[Any, ...]


def meta(tensor: torch.Tensor) -> Meta:
    """All that a program can see of a tensor but its contents and device."""
    strides = [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size != 1]
    return (
        str(tensor.dtype).removeprefix("torch."),
        tuple(tensor.shape),
        tuple(strides) if tensor.numel() else (),
        tensor.storage_offset(),
        tensor.is_conj(),
        tensor.is_neg(),
        tensor._is_zerotensor(),
    )
