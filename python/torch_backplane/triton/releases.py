"""Releases of Triton: those whose texts are read, and the one that the installed torch names. Imports neither."""

from __future__ import annotations

import importlib.metadata
import re

_OLDEST, _NEWEST = (3, 5), (3, 9)
SUPPORTED = " to ".join(f"{major}.{minor}" for major, minor in (_OLDEST, _NEWEST))
_OF_TORCH = {"2.11": "==3.6.0", "2.12": "==3.7.0", "2.13": "==3.7.1", "2.14": "~=3.8.0", "2.15": "~=3.9.0"}
"""What torch's builds for CUDA require. Its builds for the CPU name no Triton."""


def requirement() -> str:
    """Triton's release for the installed torch, as pip takes it: ``triton==3.7.1``."""
    try:
        required = importlib.metadata.requires("torch") or ()
        named = [re.fullmatch(r"triton\s*([=~]=[\w.]+)\s*(;.*)?", one) for one in required]
        minor = ".".join(importlib.metadata.version("torch").split(".")[:2])
    except importlib.metadata.PackageNotFoundError:
        named, minor = [], ""
    return "triton" + next((one.group(1) for one in named if one), _OF_TORCH.get(minor, ""))


def refusal(version: str) -> str:
    """Why a release is not supported, and what to install; "" if it is."""
    if _OLDEST <= _minor(version) <= _NEWEST:
        return ""
    return (
        f"Triton {version} is not supported: torch-backplane reads what Triton {SUPPORTED} write. "
        f"pip install '{requirement()}'"
    )


def has_default_backend(version: str) -> bool:
    """Whether ``TRITON_DEFAULT_BACKEND`` selects one of several active backends."""
    return _minor(version) >= (3, 7)


def check() -> None:
    """Raise RuntimeError if the imported Triton is not supported."""
    import triton

    if why := refusal(triton.__version__):
        raise RuntimeError(why)


def _minor(version: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)
