"""The legacy typed storages such as ``torch.mydevice.FloatStorage``, which torch looks up in a device's module."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.storage import _LegacyStorage

from torch_backplane import _backend

LEGACY_NAMES = {
    "BFloat16": torch.bfloat16,
    "Bool": torch.bool,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "ComplexDouble": torch.complex128,
    "ComplexFloat": torch.complex64,
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Short": torch.int16,
}
DTYPES = {f"{name}Storage": dtype for name, dtype in LEGACY_NAMES.items()}


@cache
def storage_class(name: str) -> type[Any]:
    """The class of that name; torch reads the device from the class's ``__module__``."""
    dtype = DTYPES[name]
    body = {
        "dtype": dtype,
        "_dtype": dtype,
        "__module__": f"torch.{_backend.device}",
        "__doc__": f"Legacy storage of {dtype}.",
    }
    metaclass: Any = type(_LegacyStorage)
    made: type[Any] = metaclass(name, (_LegacyStorage,), body)
    return made
