"""The installed backends: the packages with an entry point in torch's group, by which torch loads them."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path


def installed_backends() -> list[EntryPoint]:
    """One entry point per backend, sorted by package: ``name`` is usually the device's, ``module`` the package."""
    unique = {point.value: point for point in entry_points(group="torch.backends")}
    return [unique[value] for value in sorted(unique)]


def only_backend(how: str) -> str:
    """The package of the only installed backend.

    Args:
        how: to name another, for the message: ``"it: --device NAME"``.

    Raises:
        LookupError: none is installed, or several are.
    """
    packages = sorted({point.module for point in installed_backends()})
    if len(packages) != 1:
        found = ", ".join(packages) or "none"
        raise LookupError(
            f"which backend is to be tested? Installed with the entry point torch.backends: {found}. "
            f"Install one, or name {how}"
        )
    return packages[0]


def package_folders(package: str) -> list[Path]:
    """The folders of a top-level package, several in an editable install; none if it is not there. Imports nothing."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return []
    return [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
