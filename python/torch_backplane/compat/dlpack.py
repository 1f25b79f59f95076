"""DLPack for the device: torch converts it in both directions, but its Python side does not know renamed devices.

In torch 2.13 the conversions themselves (``torch.utils.dlpack.to_dlpack``, ``torch.from_dlpack`` of a capsule) map the
device to ``kDLExtDev``. Two methods of ``torch.Tensor``, by which libraries ask for a tensor, need help, and
:func:`install` wraps them: ``__dlpack_device__`` refuses every device name that it has not got in its list, and
``__dlpack__`` knows streams of CUDA alone. Other devices' tensors go to torch's own.
"""

from __future__ import annotations

import functools
from enum import IntEnum
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function_unary
from torch.utils.dlpack import DLDeviceType

__all__ = ["install"]

_MARK = "_backplane_device"


def install(device: str) -> None:
    """Make ``Tensor.__dlpack__`` and ``Tensor.__dlpack_device__`` work for tensors on ``device``. Idempotent.

    Args:
        device: the name of the renamed PrivateUse1 device.
    """
    if getattr(torch.Tensor.__dlpack_device__, _MARK, None) == device:
        return
    for method in (_dlpack_device(device), _dlpack(device)):
        setattr(method, _MARK, device)
        setattr(torch.Tensor, method.__name__, method)


def _dlpack_device(device: str) -> Any:
    original = torch.Tensor.__dlpack_device__

    @functools.wraps(original)
    def __dlpack_device__(self: torch.Tensor) -> tuple[IntEnum, int]:
        if has_torch_function_unary(self):
            return handle_torch_function(torch.Tensor.__dlpack_device__, (self,), self)
        if self.device.type == device:
            return (DLDeviceType.kDLExtDev, self.device.index or 0)
        kind, index = original(self)
        if kind == DLDeviceType.kDLCUDAHost and not torch.cuda.is_initialized():
            # The page-locked memory is this device's, which DLPack has no name for; to a consumer it is CPU memory.
            return (DLDeviceType.kDLCPU, index)
        return (kind, index)

    return __dlpack_device__


def _dlpack(device: str) -> Any:
    original = torch.Tensor.__dlpack__

    @functools.wraps(original)
    def __dlpack__(self: torch.Tensor, *, stream: Any = -1, **options: Any) -> Any:
        if has_torch_function_unary(self):
            return handle_torch_function(torch.Tensor.__dlpack__, (self,), self, stream=stream, **options)
        if self.device.type != device:
            return original(self, stream=stream, **options)
        if self.is_neg():
            raise BufferError("Can't export tensors with the negative bit set, use tensor.resolve_neg()")
        if stream is not None and type(stream) is not int:
            raise TypeError(f"stream must be an int or None, got {type(stream).__name__}")
        capsule = original(self, stream=None, **options)
        if stream != -1:
            _wait_for_producer(self.device, stream)
        return capsule

    return __dlpack__


def _wait_for_producer(device: torch.device, stream: int | None) -> None:
    """Let the consumer's stream wait for what the producer's current stream has queued.

    Args:
        device: the tensor's device.
        stream: the consumer's stream: None or 0 is the device's default one, another number the
            vendor's stream object (``native_handle``).
    """
    module = torch.get_device_module(device)
    consumer = module.ExternalStream(stream, device=device) if stream else module.default_stream(device)
    producer = torch.accelerator.current_stream(device)
    if consumer != producer:
        consumer.wait_stream(producer)
