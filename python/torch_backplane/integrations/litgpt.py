"""LitGPT: its commands run on what Fabric chooses; this adapts the number of devices, and ``LLM``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch_backplane import _backend
from torch_backplane.integrations._library import Integration, Patch

integration = Integration("litgpt", tried="~=0.5.13")

integration.words(
    "commands take every device by default",
    "litgpt.utils: parse_devices create_finetuning_performance_report",
)
integration.words(f"LLM.load() takes {_backend.device}", "litgpt.api: LLM.load LLM.distribute")


@integration.after("litgpt.api")
def count(module: Any, patch: Patch) -> str:
    """Of the class, only this method is used."""
    patch.value(module, "CUDAAccelerator", lambda found: SimpleNamespace(auto_device_count=_backend.C.devices.count))
    return f"LLM.distribute() takes {_backend.device}"
