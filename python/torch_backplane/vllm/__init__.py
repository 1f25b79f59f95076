"""vLLM on the device, by vLLM's platform plugins: docs/vllm.md.

The entry point ``vllm.platform_plugins`` names :func:`plugin`. Nothing of vLLM is imported before vLLM asks for the
platform's class, and nothing here is imported without vLLM.
"""

from __future__ import annotations

from torch_backplane import _backend


def plugin() -> str | None:
    """The platform's class by its name if the process has a device of a Backplane backend, else None."""
    import torch

    if not _backend.loaded() or _backend.C.devices.count() == 0:
        return None
    current = torch.accelerator.current_accelerator()
    if current is None or current.type != _backend.device:
        return None
    return "torch_backplane.vllm.platform.BackplanePlatform"
