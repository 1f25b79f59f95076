"""Ultralytics: its path for cuda takes this device; ``device`` is by default the first, or numbers, or its name."""

from __future__ import annotations

from typing import Any

from torch_backplane import _backend
from torch_backplane.integrations._library import Integration, Patch

integration = Integration("ultralytics", tried="~=8.4.190")

_TRAINS = "train, val and predict run on the device, with the scaler of mixed precision"
integration.words(
    f"device='' is {_backend.device}",
    "ultralytics.utils.torch_utils: get_gpu_info parse_device time_sync cuda_memory_usage autocast",
)
integration.words(
    f"device='' is {_backend.device}",
    "ultralytics.utils.torch_utils: select_device",
    cuda=_backend.device,
    CUDA=_backend.device.upper(),
)
integration.words(
    _TRAINS,
    "ultralytics.engine.trainer: BaseTrainer._setup_train",
    "ultralytics.engine.validator: BaseValidator.__call__",
    "ultralytics.utils.ops: Profile.__init__",
)


@integration.after("ultralytics.utils.torch_utils")
def autocast(module: Any, patch: Patch) -> str:
    """Its device is cuda unless it is given, and a loss does not."""

    @patch(module, "autocast", takes="enabled device")
    def autocast(original: Any, enabled: Any, device: str = _backend.device) -> Any:
        return original(enabled, device)

    return f"autocast is that of {_backend.device}"


@integration.after("ultralytics.engine.trainer")
def processes(module: Any, patch: Patch) -> str:
    """``device=0,1``: two processes, and where there is no NCCL, Gloo."""
    from torch_backplane.process_group import backend_name

    patch.words(module.BaseTrainer, "_setup_ddp", cuda=_backend.device, gloo=backend_name())
    return f"processes communicate by {backend_name()}"
