"""Functions of libdevice for Triton's interpreter, which has none: of numpy, where they are exact."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np


def _each(function: Callable[..., int]) -> Callable[..., np.ndarray]:
    """Of the bits of whole numbers: as many as each has, and the numbers without a sign."""

    def call(first: np.ndarray, *others: np.ndarray) -> np.ndarray:
        bits = first.dtype.itemsize * 8
        numbers = [np.broadcast_to(one, first.shape).ravel().tolist() for one in (first, *others)]
        found = [function(bits, *(one % (1 << bits) for one in each)) for each in zip(*numbers, strict=True)]
        return np.array([one - (one >> bits - 1 << bits) for one in found], dtype=first.dtype).reshape(first.shape)

    return call


def _count(function: Callable[..., int]) -> Callable[..., np.ndarray]:
    return lambda first: _each(function)(first).astype(np.int32)


def _wide(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    return lambda a, b: function(a.astype(np.int64), b.astype(np.int64)).astype(a.dtype)


def _permuted(bits: int, low: int, high: int, selector: int) -> int:
    both = (high << 32 | low).to_bytes(8, "little")
    return int.from_bytes([both[selector >> 4 * i & 7] for i in range(4)], "little")


_FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "copysign": np.copysign,
    "fmod": np.fmod,
    "remainder": lambda a, b: np.vectorize(math.remainder)(a, b).astype(a.dtype),
    "fdim": lambda a, b: np.maximum(a - b, 0).astype(a.dtype),
    "fma": lambda a, b, c: a * b + c,
    "saturatef": lambda a: np.clip(a, 0, 1),
    "isnan": lambda a: np.isnan(a).astype(np.int32),
    "signbit": lambda a: np.signbit(a).astype(np.int32),
    "finitef": lambda a: np.isfinite(a).astype(np.int32),
    "isfinited": lambda a: np.isfinite(a).astype(np.int32),
    "popc": _count(lambda bits, a: a.bit_count()),
    "clz": _count(lambda bits, a: bits - a.bit_length()),
    "ffs": _count(lambda bits, a: (a & -a).bit_length()),
    "brev": _each(lambda bits, a: int(f"{a:0{bits}b}"[::-1], 2)),
    "byte_perm": _each(_permuted),
    "mulhi": _wide(lambda a, b: a * b >> 32),
    "hadd": _wide(lambda a, b: a + b >> 1),
    "rhadd": _wide(lambda a, b: a + b + 1 >> 1),
    "mul24": _wide(lambda a, b: ((a << 40) >> 40) * ((b << 40) >> 40)),
    "sad": lambda a, b, c: (np.abs(a.astype(np.int64) - b) + c).astype(a.dtype),
}


class Library:
    """In the place of ``libdevice``."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        import triton.language as tl
        from triton.runtime.interpreter import TensorHandle

        def call(*tensors: Any) -> Any:
            found = np.asarray(_FUNCTIONS[name](*(tensor.handle.data for tensor in tensors)))
            first = tensors[0]
            dtype = first.dtype if found.dtype == first.handle.data.dtype else tl.int32
            kind = tl.block_type(dtype, first.type.shape) if first.type.is_block() else dtype
            return tl.tensor(TensorHandle(found, dtype), kind)

        return call
