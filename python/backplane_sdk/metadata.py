"""Pins torch in a backend's wheel: compiled against one minor version of torch, it loads under no other.

A provider for ``[[tool.dynamic-metadata]]``: adds ``torch == X.Y.*``, for the torch that is installed where the wheel
is built, to the ``dependencies`` that the entry lists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

__all__ = ["dynamic_metadata", "dynamic_wheel", "torch_version"]


def torch_version() -> str:
    """The version of the installed torch, for example ``2.13.0+cpu``; read from its files, torch is not imported."""
    spec = find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError(
            "torch is not installed where this backend is being built. Install the torch that it is for, and build "
            "without isolation: pip install --no-build-isolation ."
        )
    text = (Path(spec.submodule_search_locations[0]) / "version.py").read_text(encoding="utf-8")
    match = re.search(r"^__version__ = ['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    if match is None:
        raise RuntimeError(f"no version was found in {spec.submodule_search_locations[0]}/version.py; reinstall torch.")
    return match.group(1)


def dynamic_metadata(settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, list[str]]:
    """The project's dependencies: those of the entry and torch at its minor version."""
    minor = ".".join(torch_version().split(".")[:2])
    return {"dependencies": [*settings.get("dependencies", []), f"torch == {minor}.*"]}


def dynamic_wheel(settings: Mapping[str, Any]) -> dict[str, bool]:
    """A source distribution is for every torch, a wheel for one."""
    return {"dependencies": True}
