"""What ``torch.distributed`` makes of a backend's name, for a device that it does not know."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["complete_backends", "refuse_data_parallel"]


def complete_backends(device: str, name: str, is_usable: Callable[[], bool]) -> None:
    """Give groups without a named backend one for the CPU, too, and refuse Gloo for the device.

    Without a backend's name torch takes the one of the accelerator alone, also where a machine lacks it. Gloo
    takes a device's addresses for the host's: it reads them unordered, or the process dies. Seen on 2.11 to 2.15;
    unnecessary once torch asks a backend whether it takes a device's tensors, and makes Gloo the CPU's by default.

    Args:
        device: the device's name.
        name: of its backend.
        is_usable: whether there is a device.
    """
    config: Any = torch.distributed.distributed_c10d.BackendConfig
    torchs = config.__init__
    if getattr(torchs, "completes", False):
        return

    @functools.wraps(torchs)
    def completed(self: Any, backend: Any) -> None:
        torchs(self, backend)
        backends = self.device_backend_map
        by_default = str(backend) == torch.distributed.Backend.UNDEFINED
        if by_default and torch.distributed.is_gloo_available() and device in backends:
            backends["cpu"] = torch.distributed.Backend.GLOO
            if not is_usable():
                del backends[device]
        if str(backends.get(device, "")).lower() == "gloo":
            raise ValueError(
                f"the backend gloo cannot communicate tensors of {device}: "
                f'use "cpu:gloo,{device}:{name}", or no backend argument'
            )

    completed.completes = True  # type: ignore[attr-defined]
    config.__init__ = completed


def refuse_data_parallel(device: str) -> None:
    """Let ``torch.nn.DataParallel`` say what to use, where it would choose this device.

    It scatters by functions that torch has for CUDA alone, and fails in the first call with their names. Seen on 2.11
    to 2.15; unnecessary once torch asks the device.

    Args:
        device: the device's name.
    """
    torchs = torch.nn.DataParallel.__init__
    if getattr(torchs, "refuses", False):
        return

    @functools.wraps(torchs)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        if torch._utils._get_available_device_type() == device:
            raise NotImplementedError(
                f"torch.nn.DataParallel does not work on {device}: use torch.nn.parallel.DistributedDataParallel, "
                f"with a process for each device (torchrun --nproc-per-node {device} script.py)"
            )
        torchs(self, *args, **kwargs)

    checked.refuses = True  # type: ignore[attr-defined]
    torch.nn.DataParallel.__init__ = checked  # type: ignore[method-assign]
