"""What commands about the device do first: they load the backend, or say why there is none."""

from __future__ import annotations

import click

__all__ = ["load_backend"]


def load_backend() -> str:
    """Import the installed backend; its device's name."""
    import torch  # noqa: F401  brings the backend with it

    from torch_backplane import _backend

    if not _backend.loaded():
        raise click.UsageError("no backend is installed, or it did not load: see torch-backplane doctor")
    return _backend.device
