"""How ``torch.distributed`` chooses backends for a device that it does not know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_backplane.compat import replaces


def complete_backends(device: str, name: str, is_usable: Callable[[], bool]) -> None:
    """Give groups without a named backend one for the CPU as well, and refuse Gloo for the device.

    Without a name torch chooses only the accelerator's backend, even on a machine without the accelerator. Gloo takes a
    device's addresses for the host's: it reads them unordered, or the process dies. Seen on 2.11 to 2.15; unnecessary
    once torch asks a backend whether it takes a device's tensors, and makes Gloo the CPU's by default.
    """

    @replaces(torch.distributed.distributed_c10d.BackendConfig, "__init__")
    def complete(known: Any, self: Any, backend: Any) -> None:
        known(self, backend)
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


def refuse_data_parallel(device: str) -> None:
    """Let ``torch.nn.DataParallel`` refuse this device with a message that names the alternative.

    It scatters by functions that torch has only for CUDA, and fails in the first call with their names. Seen on 2.11 to
    2.15; unnecessary once torch asks the device.
    """

    @replaces(torch.nn.DataParallel, "__init__")
    def check(known: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        if torch._utils._get_available_device_type() == device:
            raise NotImplementedError(
                f"torch.nn.DataParallel does not work on {device}: use torch.nn.parallel.DistributedDataParallel, "
                f"with a process for each device (torchrun --nproc-per-node {device} script.py)"
            )
        known(self, *args, **kwargs)
