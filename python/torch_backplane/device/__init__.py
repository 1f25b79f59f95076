"""The device module: a backend package registers it as ``torch.<device>``. It has the names of ``torch.cuda``.

``torch_backplane.device.unsupported`` lists the names that it does not have, and why. Importing it,
``is_available()``, ``device_count()`` and properties touch no device; the first allocation, stream or wait opens the
driver. In a child that was forked after that, use raises.
"""
# ruff: noqa: F403 (each module's __all__ says what it adds)

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if "torch" not in sys.modules:  # torch's autoload would import this module while it is being imported
    raise ImportError("import torch, or the backend's package, before torch_backplane.device", name=__name__)

from torch import AcceleratorError, OutOfMemoryError

from torch_backplane import _backend
from torch_backplane.device import _utils as _utils
from torch_backplane.device import amp, devices, graphs, memory, profiler, random, storages, streams, tensor_types
from torch_backplane.device._utils import _get_device_index as _get_device_index
from torch_backplane.device.amp import get_amp_supported_dtype
from torch_backplane.device.devices import *
from torch_backplane.device.devices import _DeviceGuard as _DeviceGuard
from torch_backplane.device.devices import _exchange_device as _exchange_device
from torch_backplane.device.devices import _get_device as _get_device
from torch_backplane.device.devices import _is_compiled as _is_compiled
from torch_backplane.device.devices import _is_in_bad_fork as _is_in_bad_fork
from torch_backplane.device.devices import _lazy_init as _lazy_init
from torch_backplane.device.devices import _maybe_exchange_device as _maybe_exchange_device
from torch_backplane.device.graphs import *
from torch_backplane.device.memory import *
from torch_backplane.device.random import *
from torch_backplane.device.random import _get_generator as _get_generator
from torch_backplane.device.random import _get_rng_state_offset as _get_rng_state_offset
from torch_backplane.device.random import _set_rng_state_offset as _set_rng_state_offset
from torch_backplane.device.streams import *
from torch_backplane.device.streams import _set_stream_by_id as _set_stream_by_id
from torch_backplane.device.streams import _sleep as _sleep

if TYPE_CHECKING:
    import torch

    default_generators: tuple[torch.Generator, ...]
    """The default generator of each device, by index. Not in __all__: looking it up asks the driver for the count."""

    # The legacy types are made when the device has its name.
    from types import ModuleType

    sparse: ModuleType
    BFloat16Tensor: tensor_types._TensorType
    BoolTensor: tensor_types._TensorType
    ByteTensor: tensor_types._TensorType
    CharTensor: tensor_types._TensorType
    DoubleTensor: tensor_types._TensorType
    FloatTensor: tensor_types._TensorType
    HalfTensor: tensor_types._TensorType
    IntTensor: tensor_types._TensorType
    LongTensor: tensor_types._TensorType
    ShortTensor: tensor_types._TensorType

__all__ = [
    "AcceleratorError",
    "OutOfMemoryError",
    "amp",
    "get_amp_supported_dtype",
    "graphs",
    "memory",
    "profiler",
    "random",
    "streams",
]
__all__ += devices.__all__
__all__ += [name for name in graphs.__all__ if name not in streams.__all__]
__all__ += memory.__all__
__all__ += random.__all__
__all__ += streams.__all__


def __getattr__(name: str) -> Any:
    if name == "_initialized":  # torch.utils.checkpoint saves this device's random state only where it is true
        return devices.is_initialized()
    if name == "default_generators":
        return tuple(_backend.C.random.default_generator(index) for index in range(_backend.C.devices.count()))
    if name in storages.DTYPES:
        return storages.storage_class(name)
    if name == "distributed":  # half of torch.distributed comes with it
        from torch_backplane import distributed

        return distributed
    if _backend.device:
        from torch_backplane.inductor import entry

        if name in entry.NAMES:
            return entry.look_up(name)
    from torch_backplane.device.unsupported import PRIVATE, UNSUPPORTED

    where = f"torch.{_backend.device}" if _backend.device else __name__
    why = UNSUPPORTED.get(name) or PRIVATE.get(name)
    reason = f": {why}" if why else ""
    raise AttributeError(f"{where} has no attribute '{name}'{reason}", name=name)


def __dir__() -> list[str]:
    return sorted([*globals(), "default_generators", *storages.DTYPES])
