"""The backends that are installed: what has an entry point of torch's group, by which torch loads it."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points


def installed_backends() -> list[EntryPoint]:
    """One entry point each, ordered by package: ``name`` is the device's usually, ``module`` the package."""
    unique = {point.value: point for point in entry_points(group="torch.backends")}
    return [unique[value] for value in sorted(unique)]
