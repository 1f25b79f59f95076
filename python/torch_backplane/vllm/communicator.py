"""Collectives of mixtures of experts in several replicas: each has a part of the experts' weights, and all tokens."""

from __future__ import annotations

from typing import Any

import torch
from vllm.distributed.device_communicators.all2all import AgRsAll2AllManager
from vllm.distributed.device_communicators.base_device_communicator import DeviceCommunicatorBase


class Communicator(DeviceCommunicatorBase):
    """Tokens are gathered for the experts, and their results summed and scattered."""

    def __init__(self, *groups: Any, **options: Any) -> None:
        super().__init__(*groups, **options)
        if self.use_all2all:
            self.all2all_manager = manager = AgRsAll2AllManager(self.cpu_group)
            self.dispatch_router_logits, self.combine = manager.dispatch_router_logits, manager.combine

    def all_gatherv(self, input_: Any, dim: int = 0, sizes: Any = None) -> list[torch.Tensor]:
        """The rows of all ranks of each tensor; ``sizes``: the rows of each rank."""
        most = max(sizes)
        padded = (torch.cat([one, one.new_zeros(most - len(one), *one.shape[1:])]) for one in input_)
        found = (self.all_gather(one, 0).split(most) for one in padded)
        return [torch.cat([rows[:size] for rows, size in zip(one, sizes, strict=True)]) for one in found]

    def reduce_scatterv(self, input_: torch.Tensor, dim: int = 0, sizes: Any = None) -> torch.Tensor:
        """The sum of this rank's rows; ``sizes``: the rows of each rank."""
        return self.all_reduce(input_).split(sizes)[self.rank_in_group]
