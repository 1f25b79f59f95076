"""TRL: its trainers are those of Transformers; what is left says which chip it is."""

from __future__ import annotations

from typing import Any

from torch_backplane import _backend
from torch_backplane.integrations._library import Integration, Patch

integration = Integration("trl", tried="~=1.16.0")


@integration.after("trl.trainer.utils")
def speed_of_the_chip(module: Any, patch: Patch) -> str:
    """None for a chip that TRL has no figure of, as for a GPU of that kind."""
    patch.words(module, "get_peak_flops_per_device", cuda=_backend.device)
    return "the trainers of TRL, by those of Transformers"
