"""Where a built backend keeps its headers and libraries, for C++ extensions and programs that link it."""

from __future__ import annotations

from pathlib import Path

from torch_backplane import _backend

__all__ = ["include_paths", "library_paths", "package_dir"]


def package_dir() -> Path:
    """The folder of the built package.

    In an editable install the native parts lie here and ``__init__.py`` lies in the source tree.
    """
    if _backend.build is None:
        raise RuntimeError("no backend is loaded: import the vendor's package first")
    return Path(_backend.build.__file__).resolve().parent


def include_paths() -> list[str]:
    """Folders for the compiler's ``-I``: the headers this backend was compiled from. torch's own are not among them.

    Returns:
        Existing folders; ``#include <backplane/kernel.h>`` resolves in them.
    """
    import backplane_sdk

    packaged = package_dir() / "include"
    return [str(packaged if packaged.is_dir() else backplane_sdk.include_dir())]


def library_paths() -> list[str]:
    """Folders for the linker's ``-L``: ``lib<device>.so`` lies there.

    Also the folder to put into ``CMAKE_PREFIX_PATH``.

    Returns:
        Existing folders.
    """
    return [str(package_dir() / "lib")]
