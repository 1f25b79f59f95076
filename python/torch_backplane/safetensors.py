"""Loading safetensors files to the device.

Saving needs no help: ``safetensors.torch.save_file`` takes tensors on the device as they are. The library's own
``device=`` argument takes only the devices that it was compiled with, so :func:`load_file` reads on the CPU and moves.
"""

from __future__ import annotations

import os

import torch

__all__ = ["load_file"]


def load_file(
    filename: str | os.PathLike[str], device: str | int | torch.device | None = None
) -> dict[str, torch.Tensor]:
    """Load a safetensors file onto a device, one tensor at a time, so that the CPU never holds the whole file.

    Args:
        filename: the file.
        device: where the tensors go; an index is one of the accelerator's. Default: the accelerator's current device.

    Returns:
        The tensors by name.

    Raises:
        ImportError: safetensors is not installed.

    Example::

        >>> tensors = torch_backplane.safetensors.load_file("model.safetensors", device="mydevice:1")
    """
    try:
        from safetensors import safe_open
    except ImportError as error:
        raise ImportError(
            "torch_backplane.safetensors needs the package 'safetensors'. Install it: pip install safetensors",
            name="safetensors",
        ) from error
    if device is None:
        device = torch.accelerator.current_accelerator() or "cpu"
    target = torch.device(device)
    with safe_open(os.fspath(filename), framework="pt", device="cpu") as file:
        return {name: file.get_tensor(name).to(target) for name in file.keys()}  # noqa: SIM118 (the file is no mapping)
