"""DLPack for the device: torch converts it in both directions, but its Python functions do not know renamed devices.

In torch 2.13 the conversions themselves (``torch.utils.dlpack.to_dlpack``, ``torch.from_dlpack`` of a capsule) map the
device to ``kDLExtDev``. :func:`install` wraps the functions around them:

- ``Tensor.__dlpack_device__`` refuses every device name that is not in its list.
- ``Tensor.__dlpack__`` only knows streams of CUDA, and copies for the CPU even if the host can access the device's
  memory.
- ``torch.from_dlpack`` passes a stream only to producers of CUDA and ROCm, and does not check addresses.

Tensors of other devices go to torch's own functions.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function_unary
from torch.utils.dlpack import DLDeviceType

from torch_backplane import _backend
from torch_backplane.compat import replaces


def install(device: str) -> None:
    """Make DLPack work for tensors on ``device``, to it and from it. Idempotent."""
    _replace_dlpack_device(device)
    _replace_dlpack(device)
    if (read_only := getattr(torch.utils.dlpack, "ReadOnlyTensorWrapper", None)) is not None:  # from torch 2.14 on
        # It allows only those two.
        read_only._DLPACK_ALLOWED |= {torch.Tensor.__dlpack__, torch.Tensor.__dlpack_device__}
    _replace_from_dlpack()
    torch.from_dlpack = torch.utils.dlpack.from_dlpack


def _replace_dlpack_device(device: str) -> None:
    @replaces(torch.Tensor, "__dlpack_device__")
    def dlpack_device(original: Any, self: torch.Tensor) -> tuple[IntEnum, int]:
        if has_torch_function_unary(self):
            return handle_torch_function(torch.Tensor.__dlpack_device__, (self,), self)
        if self.device.type == device:
            return (DLDeviceType.kDLExtDev, self.device.index or 0)
        kind, index = original(self)
        if kind == DLDeviceType.kDLCUDAHost and not torch.cuda.is_initialized():
            # Page-locked memory of this device, for which DLPack has no name; to a consumer it is CPU memory.
            return (DLDeviceType.kDLCPU, index)
        return (kind, index)


# ---- export ----------------------------------------------------------------------------------------------------------


def _replace_dlpack(device: str) -> None:
    @replaces(torch.Tensor, "__dlpack__")
    def dlpack(original: Any, self: torch.Tensor, *, stream: Any = -1, **options: Any) -> Any:
        if has_torch_function_unary(self):
            return handle_torch_function(torch.Tensor.__dlpack__, (self,), self, stream=stream, **options)
        if self.device.type != device:
            return original(self, stream=stream, **options)
        if self.is_neg():
            raise BufferError("Can't export tensors with the negative bit set, use tensor.resolve_neg()")
        if stream is not None and type(stream) is not int:
            raise TypeError(f"stream must be an int or None, got {type(stream).__name__}")
        _backend.C.graphs.own_memory(self)  # the consumer would not notice that it moves
        target = options.get("dl_device")
        if target is not None and target[0] == DLDeviceType.kDLCPU:
            # This returns after all queued work is done, so the consumer's stream need not wait.
            return _backend.C.dlpack.with_cures(_for_the_cpu(self, original, options))
        capsule = original(self, stream=None, **options)
        if stream != -1:
            _wait_for_producer(self.device, stream)
        return _backend.C.dlpack.with_cures(capsule)


def _for_the_cpu(tensor: torch.Tensor, original: Any, options: dict[str, Any]) -> Any:
    """A capsule for the CPU: over the device's own memory if the host can access it and ``copy`` is not True.

    Args:
        tensor: on the device.
        original: ``Tensor.__dlpack__`` of torch.
        options: those of ``__dlpack__``; ``dl_device`` is the CPU.

    Raises:
        BufferError: the tensor cannot be exported, or only with the copy that ``copy=False`` forbids.
    """
    copy = options.get("copy")
    if copy is False and not _backend.C.memory.has_host_view():
        name = _backend.device
        raise BufferError(
            f"the host cannot access the memory of {name} (its driver lacks bp.host_view), so a tensor cannot be "
            f"exported to the CPU with copy=False. Leave copy= out for a copy, or write `with torch.{name}.host_view("
            "x) as host:`, which writes back"
        )
    if copy or (copy is None and not _backend.C.memory.is_zero_copy()):
        return original(tensor, stream=None, **options)
    original(tensor, stream=None)  # raises for what torch does not export
    rest = {key: value for key, value in options.items() if key not in ("dl_device", "copy")}
    return original(_backend.C.memory.host_view(tensor), stream=None, **rest)


def _wait_for_producer(device: torch.device, stream: int | None) -> None:
    """Let the consumer's stream wait for the work that is queued on the producer's current stream.

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


def _replace_from_dlpack() -> None:
    @replaces(torch.utils.dlpack, "from_dlpack")
    def from_dlpack(original: Any, ext_tensor: Any, **options: Any) -> Any:
        if not hasattr(ext_tensor, "__dlpack__"):
            ext_tensor = _checked(ext_tensor)
        elif not isinstance(ext_tensor, torch.Tensor):
            kind, index = ext_tensor.__dlpack_device__()
            if kind == DLDeviceType.kDLExtDev:
                ext_tensor = _Foreign(ext_tensor, kind, index)
        return original(ext_tensor, **options)


def _checked(capsule: Any) -> Any:
    """The capsule; raises BufferError if it claims memory of the device that is not. Does not consume it."""
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
        except TypeError:  # it takes no stream: its tensor is ready on the default one
            capsule = self._tensor.__dlpack__(**options)
            if current != default:
                current.wait_stream(default)
        return _checked(capsule)
