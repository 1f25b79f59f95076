"""The dialect's words for TTIR's types: elements in memory, in arrays and in registers, and constants.

Halves and floats of 8 bits are ``f32`` in a register, rounded after each operation; ``i1`` is an ``i32``, 0 or 1.
"""

from __future__ import annotations

import linecache
import math
import struct

from torch_backplane.triton.ttir import Type

NARROW = {
    "f16": "f16",
    "bf16": "bf16",
    "f8E4M3FN": "f8e4m3",
    "f8E5M2": "f8e5m2",
    "f8E4M3FNUZ": "f8e4m3fnuz",
    "f8E5M2FNUZ": "f8e5m2fnuz",
}
"""Types that are f32 in a register, and their names in ``bp_load_<name>``, ``bp_store_<name>`` and ``bp_to_<name>``."""
INTEGERS = ("i8", "i16", "i32", "i64")


class Unsupported(NotImplementedError):
    """What the lowering does not do. The text says what to write instead, where there is something."""

    at: tuple[str, str] | None = None
    """``file:line`` of the user's kernel, whose text follows the reason if the file is there, and the operation."""

    def __str__(self) -> str:
        reason = super().__str__()
        if self.at is None:
            return reason
        place, operation = self.at
        file, _, number = place.rpartition(":")
        line = linecache.getline(file, int(number)).strip() if number.isdecimal() else ""
        return f"{place or 'a kernel'}: {operation}: {reason}" + (f"\n    {line}" if line else "")


def memory(type: Type) -> str:
    """The C type of an element in global memory."""
    if type.is_pointer:
        return "u64"
    if type.elem == "i1" or type.elem in NARROW:
        return f"u{type.bits}"
    if type.elem in (*INTEGERS, "f32", "f64"):
        return type.elem
    raise Unsupported(f"elements of type {type.elem}; {', '.join(NARROW)} are the small floats that there are")


def register(type: Type) -> str:
    """The C type of an element in a register."""
    if type.pointee is not None:
        return f"BP_GLOBAL {memory(type.pointee)}*"
    if type.elem == "i1":
        return "i32"
    return "f32" if type.elem in NARROW else memory(type)


def kept(type: Type) -> str:
    """The C type of an element in an array of the kernel's."""
    return "u64" if type.is_pointer else "u8" if type.elem == "i1" else register(type)


def keep(type: Type, value: str) -> str:
    """A value as an element in an array of the kernel's."""
    return f"(u64)({value})" if type.is_pointer else value


def take(type: Type, place: str) -> str:
    """The value of an element in an array of the kernel's."""
    return f"({register(type)}){place}" if type.is_pointer else place


def bytes_kept(type: Type) -> int:
    """Its size."""
    if type.is_pointer:
        return 8
    return 1 if type.elem == "i1" else 4 if type.elem in NARROW else type.bits // 8


def unsigned(type: Type) -> str:
    """The unsigned C type of an integer's width."""
    return "u8" if type.elem == "i1" else f"u{type.bits}"


def load(type: Type, place: str) -> str:
    """The value of an element in memory."""
    if type.is_pointer:
        return f"({register(type)})({place})"
    if type.elem in NARROW:
        return f"bp_{NARROW[type.elem]}_to_f32({place})"
    return f"({place} != 0)" if type.elem == "i1" else place


def store(type: Type, value: str) -> str:
    """A value as an element in memory."""
    if type.is_pointer:
        return f"(u64)({value})"
    if type.elem in NARROW:
        return f"bp_f32_to_{NARROW[type.elem]}({value})"
    return f"(u8)({value})" if type.elem == "i1" else value


def rounded(type: Type, value: str) -> str:
    """An f32 as a value of a small float."""
    return f"bp_to_{NARROW[type.elem]}({value})" if type.elem in NARROW else value


def to_bits(type: Type, value: str) -> str:
    """An unsigned integer of the type's width with the bits of a value."""
    if type.elem in NARROW:
        return store(type, value)
    if type.elem in ("f32", "f64"):
        return f"bp_as_u{type.bits}({value})"
    return f"({'u64' if type.is_pointer else unsigned(type)})({value})"


def from_bits(type: Type, bits: str) -> str:
    """The value with the bits of an unsigned integer of the type's width."""
    if type.elem in NARROW:
        return load(type, bits)
    if type.elem in ("f32", "f64"):
        return f"bp_as_{type.elem}({bits})"
    return f"(({bits}) & 1)" if type.elem == "i1" else f"(({register(type)})({bits}))"


def literal(type: Type, text: str) -> str:
    """A constant, from its text: decimal, or the bits in hexadecimal."""
    text = text.strip()
    if type.elem == "i1":
        return "1" if text in ("true", "1", "-1") else "0"
    if not type.is_float:
        return _integer(type, int(text, 0))
    if text[:2].lower() == "0x":
        bits = int(text, 16)
        if type.elem in NARROW and type.elem not in ("f16", "bf16"):
            return from_bits(type, f"{bits}u")
        if type.elem == "bf16":
            text = repr(struct.unpack("<f", struct.pack("<I", bits << 16))[0])
        else:
            code = {"f16": "<He", "f32": "<If", "f64": "<Qd"}[type.elem]
            text = repr(struct.unpack("<" + code[2], struct.pack(code[:2], bits))[0])
    return _real(type, float(text))


def _integer(type: Type, value: int) -> str:
    if type.elem == "i64":
        return f"((i64){value})" if value > -(2**63) else "((i64)(-9223372036854775807 - 1))"
    if type.elem == "i32":
        return str(value) if value > -(2**31) else "(-2147483647 - 1)"
    return f"(({type.elem})({value}))"


def _real(type: Type, value: float) -> str:
    kind = register(type)
    if math.isnan(value):
        return f"(({kind})BP_NAN)"
    if math.isinf(value):
        return f"(({kind}){'-' if value < 0 else ''}BP_INFINITY)"
    if kind == "f64":
        return f"({value!r})"
    return f"({struct.unpack('<f', struct.pack('<f', value))[0]!r}f)"
