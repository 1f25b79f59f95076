"""The installed backends: the packages with an entry point in torch's group, by which torch loads them."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points


def installed_backends() -> list[EntryPoint]:
    """One entry point per backend, sorted by package: ``name`` is usually the device's, ``module`` the package."""
    unique = {point.value: point for point in entry_points(group="torch.backends")}
    return [unique[value] for value in sorted(unique)]
