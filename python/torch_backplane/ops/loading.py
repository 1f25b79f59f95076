"""Loads a vendor's further libraries of operators."""

from __future__ import annotations

import os

import torch

from torch_backplane import _backend, _setup

__all__ = ["load_library"]


def load_library(path: str | os.PathLike[str]) -> None:
    """Load a library whose operators and kernels are registered by ``BACKPLANE_LIBRARY`` or ``BACKPLANE_KERNELS``.

    As :func:`torch.ops.load_library`, which works as well, and then checks: the Python modules that the library names
    are imported, and what could not be registered is an error. A library that is loaded already is left as it is.

    Args:
        path: the shared library; ``torch.ops.loaded_libraries`` lists those that were loaded.

    Raises:
        OSError: there is no such file, or it cannot be loaded.
        ImportError: an operator or a kernel could not be registered; each is named by its line.
    """
    if not _backend.loaded():
        raise RuntimeError("no backend is loaded: import the vendor's package first, for example `import mydevice`")
    known = _backend.C.kernels.registration_errors()
    torch.ops.load_library(os.fspath(path))
    _setup.import_python_parts(known)
