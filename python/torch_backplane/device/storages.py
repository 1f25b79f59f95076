"""The legacy typed storages such as ``torch.mydevice.FloatStorage``, which torch looks for in a device's module."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.storage import _LegacyStorage

from torch_backplane import _backend

DTYPES = {
    "BFloat16Storage": torch.bfloat16,
    "BoolStorage": torch.bool,
    "ByteStorage": torch.uint8,
    "CharStorage": torch.int8,
    "ComplexDoubleStorage": torch.complex128,
    "ComplexFloatStorage": torch.complex64,
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "IntStorage": torch.int32,
    "LongStorage": torch.int64,
    "ShortStorage": torch.int16,
}


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
