"""Loads additional libraries of a vendor's operators."""

from __future__ import annotations

import os

import torch

from torch_backplane import _backend, _setup

__all__ = ["load_library"]


def load_library(path: str | os.PathLike[str]) -> None:
    """Load a library whose operators and kernels are registered by ``BACKPLANE_LIBRARY`` or ``BACKPLANE_KERNELS``.

    As :func:`torch.ops.load_library`, which works as well, but then imports the Python modules that the library names,
    and raises if a registration failed. Loading a library again does nothing.

    Args:
        path: the shared library; ``torch.ops.loaded_libraries`` lists the loaded ones.

    Raises:
        OSError: there is no such file, or it cannot be loaded.
        ImportError: an operator or a kernel could not be registered; each is named by its line.
    """
    known = _backend.C.kernels.registration_errors()
    torch.ops.load_library(os.fspath(path))
    _setup.import_python_parts(known)
