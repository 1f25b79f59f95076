"""The driver interface for ctypes, as far as tests in Python call it."""

from __future__ import annotations

import ctypes

OK, INVALID_ARGUMENT, UNSUPPORTED, INTERNAL = 0, 3, 5, 9
ABI = (0, 2)
SLOTS = 33
FIRST_SLOT = 32  # bytes before device_count
SIZE = FIRST_SLOT + SLOTS * 8

SetError = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)
Entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
Count = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int32))


class Host(ctypes.Structure):
    """bp_host."""

    _fields_ = (
        ("struct_size", ctypes.c_uint64),
        ("abi_major", ctypes.c_uint32),
        ("abi_minor", ctypes.c_uint32),
        ("ctx", ctypes.c_void_p),
        ("log", ctypes.c_void_p),
        ("set_error", SetError),
        ("config", ctypes.c_char_p),
        ("inner", ctypes.c_void_p),
    )


class Table(ctypes.Structure):
    """bp_driver."""

    _fields_ = (
        ("struct_size", ctypes.c_uint64),
        ("abi_major", ctypes.c_uint32),
        ("abi_minor", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("self", ctypes.c_void_p),
        ("slots", ctypes.c_void_p * SLOTS),
    )


assert ctypes.sizeof(Table) == SIZE
