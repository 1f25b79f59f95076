"""stable-baselines3: ``device="auto"``, which every algorithm has by default, is the device."""

from __future__ import annotations

from typing import Any

import torch

from torch_backplane import _backend
from torch_backplane.integrations._library import Integration, Patch

integration = Integration("stable-baselines3", "~=2.9.0")


@integration.after("stable_baselines3.common.utils")
def choose(module: Any, patch: Patch) -> str:
    """One function chooses, and knows only CUDA."""

    @patch(module, "get_device", takes="device")
    def get_device(original: Any, device: torch.device | str = "auto") -> torch.device:
        current = torch.accelerator.current_accelerator(check_available=True)
        if device == "auto" and current is not None and current.type == _backend.device:
            return torch.device(_backend.device)
        found: torch.device = original(device)
        return found

    return f"device='auto' is {_backend.device}"
