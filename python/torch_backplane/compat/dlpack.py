"""DLPack for the device: torch converts it in both directions, but its Python side does not know renamed devices.

In torch 2.13 the conversions themselves (``torch.utils.dlpack.to_dlpack``, ``torch.from_dlpack`` of a capsule) map the
device to ``kDLExtDev``. What is around them needs help, and :func:`install` wraps it:

- ``Tensor.__dlpack_device__`` refuses every device name that it has not got in its list.
- ``Tensor.__dlpack__`` knows streams of CUDA alone, and copies what the CPU asks for, also where the host reaches the
  device's memory.
- ``torch.from_dlpack`` gives a stream to producers of CUDA and ROCm alone, and believes any address.

Tensors of other devices go to torch's own.
"""

from __future__ import annotations

import functools
from enum import IntEnum
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function_unary
from torch.utils.dlpack import DLDeviceType

from torch_backplane import _backend

__all__ = ["install"]

_MARK = "_backplane_device"


def install(device: str) -> None:
    """Make DLPack work for tensors on ``device``, to it and from it. Idempotent.

    Args:
        device: the name of the renamed PrivateUse1 device.
    """
    if getattr(torch.Tensor.__dlpack_device__, _MARK, None) == device:
        return
    methods = _dlpack_device(device), _dlpack(device)
    for method in methods:
        setattr(method, _MARK, device)
        setattr(torch.Tensor, method.__name__, method)
    if (read_only := getattr(torch.utils.dlpack, "ReadOnlyTensorWrapper", None)) is not None:  # from torch 2.14 on
        read_only._DLPACK_ALLOWED |= {*methods}  # it lets none but those two pass
    torch.from_dlpack = torch.utils.dlpack.from_dlpack = _from_dlpack(device)


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


# ---- export ----------------------------------------------------------------------------------------------------------


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
        target = options.get("dl_device")
        if target is not None and target[0] == DLDeviceType.kDLCPU:
            # What is queued has been waited for when this returns: a stream of the consumer's has nothing to add.
            return _backend.C.dlpack.with_cures(_for_the_cpu(self, original, options))
        capsule = original(self, stream=None, **options)
        if stream != -1:
            _wait_for_producer(self.device, stream)
        return _backend.C.dlpack.with_cures(capsule)

    return __dlpack__


def _for_the_cpu(tensor: torch.Tensor, original: Any, options: dict[str, Any]) -> Any:
    """A capsule for the CPU: over the device's own memory where the host reaches it, and ``copy`` is not True.

    Args:
        tensor: on the device.
        original: ``Tensor.__dlpack__`` of torch.
        options: those of ``__dlpack__``; ``dl_device`` is the CPU.

    Raises:
        BufferError: the tensor cannot be exported, or not without the copy that was forbidden.
    """
    copy = options.get("copy")
    if copy is False and not _backend.C.memory.has_host_view():
        name = _backend.device
        raise BufferError(
            f"the host does not reach the memory of {name} (its driver lacks bp.host_view), so a tensor cannot be "
            f"exported to the CPU with copy=False. Leave copy= out for a copy, or write `with torch.{name}.host_view("
            "x) as host:`, which writes back"
        )
    if copy or (copy is None and not _backend.C.memory.is_zero_copy()):
        return original(tensor, stream=None, **options)
    original(tensor, stream=None)  # raises for what torch does not export
    rest = {key: value for key, value in options.items() if key not in ("dl_device", "copy")}
    return original(_backend.C.memory.host_view(tensor), stream=None, **rest)


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


# ---- import ----------------------------------------------------------------------------------------------------------


def _from_dlpack(device: str) -> Any:
    original = torch.utils.dlpack.from_dlpack

    @functools.wraps(original)
    def from_dlpack(ext_tensor: Any, **options: Any) -> torch.Tensor:
        if isinstance(ext_tensor, torch.Tensor):
            return original(ext_tensor, **options)
        if not hasattr(ext_tensor, "__dlpack__"):
            return original(_checked(ext_tensor), **options)
        kind, index = ext_tensor.__dlpack_device__()
        if kind == DLDeviceType.kDLExtDev:
            ext_tensor = _Foreign(ext_tensor, kind, index)
        return original(ext_tensor, **options)

    return from_dlpack


def _checked(capsule: Any) -> Any:
    """The capsule, unless it says that it is the device's and is not: then BufferError. It is not used up."""
    if reason := _backend.C.dlpack.refusal(capsule):
        raise BufferError(f"the DLPack tensor cannot be one of {_backend.device}: {reason}")
    return capsule


class _Foreign:
    """Another library's tensor, asked as torch's ``from_dlpack`` asks, with the stream that the consumer will use."""

    def __init__(self, tensor: Any, kind: Any, index: int) -> None:
        self._tensor = tensor
        self._where = (kind, index)

    def __dlpack_device__(self) -> tuple[Any, int]:
        return self._where

    def __dlpack__(self, **options: Any) -> Any:
        module = torch.get_device_module(_backend.device)
        index = self._where[1]
        if not 0 <= index < module.device_count():
            return _checked(self._tensor.__dlpack__(**options))  # which raises
        current, default = module.current_stream(index), module.default_stream(index)
        number = 0 if current == default else current.native_handle
        try:
            capsule = self._tensor.__dlpack__(stream=number, **options)
        except TypeError:  # it knows no streams: what it gives is ready on the default one
            capsule = self._tensor.__dlpack__(**options)
            if current != default:
                current.wait_stream(default)
        return _checked(capsule)
