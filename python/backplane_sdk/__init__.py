"""Finds the headers, sources, CMake files and template of the Backplane SDK. Light to import: build backends do.

In an editable install these are the source tree itself, in a wheel the copy that it carries.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["CORE_PROTOCOL", "TORCH_MINORS", "__version__", "cmake_dir", "include_dir", "source_dir", "template_dir"]

# The one home of all three: pyproject.toml and cmake/BackplaneVersion.cmake read these lines.
__version__ = "0.1.0"
CORE_PROTOCOL = 1
TORCH_MINORS = ("2.11", "2.12", "2.13", "2.14", "2.15")

_PACKAGE = Path(__file__).resolve().parent


def source_dir() -> Path:
    """The folder with ``include/``, ``backend/``, ``cmake/``, ``examples/`` and the template, as in the repository."""
    packaged = _PACKAGE / "source"
    return packaged if packaged.is_dir() else _PACKAGE.parent.parent


def include_dir() -> Path:
    """The folder to pass to a compiler for ``#include <backplane/driver.h>``."""
    return source_dir() / "include"


def cmake_dir() -> Path:
    """The folder with ``backplaneConfig.cmake``: CMake's ``backplane_ROOT`` where scikit-build-core does not run."""
    return source_dir() / "cmake"


def template_dir() -> Path:
    """The folder with ``cookiecutter.json``, ``hooks/`` and the project template."""
    return source_dir()
