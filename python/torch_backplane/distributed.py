"""``torch.<device>.distributed``: the device's additions to :mod:`torch.distributed`.

The backend is named ``<device>ccl``. ``init_process_group()`` without a backend makes it serve device tensors, and Gloo
CPU tensors (docs/distributed.md).
"""

# No annotations of the future here: DistributedDataParallel compares those of hooks with types.

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from torch_backplane import __version__, _backend
from torch_backplane.process_group import backend_name, choose_engine

__all__ = [
    "backend_name",
    "bf16_compress_hook",
    "bf16_compress_wrapper",
    "engine",
    "is_available",
    "set_timeout",
    "version",
]

_Future = torch.futures.Future[torch.Tensor]


def is_available() -> bool:
    """Whether device tensors can be communicated: torch has c10d, there is a device, and its driver's links or Gloo."""
    if not dist.is_available() or _backend.C.devices.count() == 0:
        return False
    return dist.is_gloo_available() or choose_engine()[0] == "native"


def engine(group: dist.ProcessGroup | None = None) -> str:
    """What carries out the collectives of a group on device tensors.

    Args:
        group: a process group; default: the default one.

    Returns:
        ``"native"``: the driver, over the devices' links (``bp.collective``); ``"staged"``: the host, by Gloo.

    Raises:
        RuntimeError: the group has no backend for the device.
    """
    return _backend_of(group).engine


def set_timeout(group: dist.ProcessGroup | None, timeout: timedelta) -> None:
    """Set how long calls of a group may take from now on; calls in flight keep theirs.

    Args:
        group: a process group; None for the default one.
        timeout: above zero.

    Raises:
        ValueError: it is not above zero.
        RuntimeError: the group has no backend for the device.
    """
    if timeout <= timedelta(0):
        raise ValueError(f"a timeout is above zero, not {timeout}")
    _backend_of(group)._set_default_timeout(timeout)


def version() -> str:
    """The engine that a new group gets, and its version.

    Returns:
        ``"native 2.1"``, with the driver's version (``get_device_properties().driver_version``);
        ``"staged 0.1.0"``, with the version of ``torch-backplane``.

    Raises:
        ValueError, RuntimeError: ``<DEVICE>_DIST`` names an engine that is not available.
    """
    chosen, _ = choose_engine()
    if chosen == "staged":
        return f"staged {__version__}"
    return f"native {torch.get_device_module(_backend.device).get_device_properties().driver_version}"


def bf16_compress_hook(process_group: Any, bucket: dist.GradBucket) -> _Future:
    """Average gradients in bfloat16: torch's ``default_hooks.bf16_compress_hook`` under another name.

    ``DistributedDataParallel.register_comm_hook`` refuses torch's by its name on all devices but CUDA and XPU.

    Args:
        process_group: the group, or None for the default one.
        bucket: the gradients.

    Returns:
        The averaged gradients, in the bucket's dtype.
    """
    return default_hooks.bf16_compress_hook(process_group, bucket)


bf16_compress_hook.__name__ = "bf16_compress"


def bf16_compress_wrapper(hook: Callable[[Any, dist.GradBucket], _Future]) -> Callable[[Any, dist.GradBucket], _Future]:
    """Cast gradients to bfloat16 before a hook and back after it.

    Args:
        hook: a communication hook that takes gradients of bfloat16.

    Returns:
        A communication hook.
    """
    wrapped = default_hooks.bf16_compress_wrapper(hook)

    def bf16_compressed(state: Any, bucket: dist.GradBucket) -> _Future:
        return wrapped(state, bucket)

    return bf16_compressed


def _backend_of(group: dist.ProcessGroup | None) -> Any:
    chosen: Any = group if group is not None else dist.group.WORLD
    if chosen is None:
        raise RuntimeError("there is no process group: call torch.distributed.init_process_group() first")
    backend: Any = chosen._get_backend(torch.device(_backend.device))
    return getattr(backend, "wrapped_pg", backend)  # with TORCH_DISTRIBUTED_DEBUG=DETAIL


def __getattr__(name: str) -> Any:
    if name == "Options":  # for pg_options=; native
        from torch_backplane.process_group import native_part

        return native_part().Options
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
