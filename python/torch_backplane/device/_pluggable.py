"""Allocators from a shared object, for one pool or the whole device."""

from __future__ import annotations

import ctypes
import os

from torch_backplane import _backend


class Allocator:
    """Where device memory comes from: the device's own allocator, or two C functions."""

    def __init__(self, functions: tuple[int, int] = (0, 0)) -> None:
        self._functions = functions

    def allocator(self) -> Allocator:
        """This object: :class:`MemPool` and :func:`change_current_allocator` take either."""
        return self


class PluggableAllocator(Allocator):
    """Device memory from two functions of a shared object. It stays loaded to the end of the process.

    The functions are called with or without the GIL, by any thread, and must not raise. Sizes are in bytes; sizes and
    addresses are multiples of 512. ``device`` is torch's index of the device, ``stream`` the vendor's stream object.
    With ``backplane/driver_memory.h`` they can use the driver's own memory.

    Args:
        path_to_so_file: the shared object.
        alloc_fn_name: of ``void* alloc(ssize_t size, int device, void* stream)``; NULL means out of memory.
        free_fn_name: of ``void free(void* ptr, ssize_t size, int device, void* stream)``.

    Raises:
        OSError: there is no such shared object, or it cannot be loaded.
        AttributeError: it has no such function.
    """

    def __init__(self, path_to_so_file: str | os.PathLike[str], alloc_fn_name: str, free_fn_name: str) -> None:
        library = ctypes.CDLL(os.fspath(path_to_so_file))
        super().__init__((_address(library, alloc_fn_name), _address(library, free_fn_name)))


def _address(library: ctypes.CDLL, name: str) -> int:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


_current = Allocator()


def functions_of(allocator: Allocator | None) -> tuple[int, int]:
    """The addresses of an allocator's functions; (0, 0) for None and the device's own."""
    if allocator is None:
        return (0, 0)
    if not isinstance(allocator, Allocator):
        raise TypeError(f"expected a PluggableAllocator of torch.{_backend.device}, got {type(allocator).__name__}")
    return allocator._functions


def change_current_allocator(allocator: Allocator) -> None:
    """Let all device memory of this process come from an allocator, without caching.

    Each tensor is then a call of ``alloc``, and its deletion immediately a call of ``free``, which must order it after
    the work of the stream that it gets; streams recorded by ``record_stream`` are waited for before. Private pools
    keep their memory, and take new segments from the allocator.

    Args:
        allocator: a :class:`PluggableAllocator`.

    Raises:
        RuntimeError: memory was allocated already.
    """
    global _current
    _backend.C.memory.plug(*functions_of(allocator))
    _current = allocator


def _get_current_allocator() -> Allocator:
    """What :func:`change_current_allocator` set, or the device's own allocator."""
    return _current
