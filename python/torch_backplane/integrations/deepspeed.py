"""DeepSpeed: an accelerator by its abstract class, chosen where it detects one; ``DS_ACCELERATOR`` takes its name."""

from __future__ import annotations

import os
from typing import Any

from torch_backplane import _backend
from torch_backplane.integrations._library import Integration, Patch, Unexpected

integration = Integration("deepspeed", tried="~=0.19.8")


@integration.after("deepspeed.accelerator.real_accelerator")
def choose(module: Any, patch: Patch) -> str:
    """DeepSpeed chooses once, while it is imported: what it compiles depends on it."""
    if (chosen := module.ds_accelerator) is not None:
        raise Unexpected(f"it chose {chosen.device_name()} when it was imported: enable integrations before that")

    @patch(module, "get_accelerator", takes="")
    def get_accelerator(original: Any) -> Any:
        wanted = os.environ.get("DS_ACCELERATOR", _backend.device)
        if module.ds_accelerator is None and wanted == _backend.device and _backend.C.devices.count() > 0:
            from torch_backplane.integrations._deepspeed_accelerator import Accelerator

            module.set_accelerator(Accelerator())
        return original()

    patch.value(module, "SUPPORTED_ACCELERATOR_LIST", lambda known: [*known, _backend.device])
    return f"the accelerator is {_backend.device}"
