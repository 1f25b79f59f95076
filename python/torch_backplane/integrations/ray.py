"""Ray: its resource GPU counts the devices, and Ray Train's path for cuda takes them with ``use_gpu=True``."""

from __future__ import annotations

from typing import Any

import torch

from torch_backplane import _backend
from torch_backplane.integrations._library import Integration, Patch

integration = Integration("ray", tried="~=2.60.0")

_TRAINS = f"Ray Train's workers train on {_backend.device} with use_gpu=True"
integration.words(
    _TRAINS,
    "ray.air._internal.device_manager: get_torch_device_manager_by_device_type",
    "ray.train.torch.config: TorchConfigContextManager.__enter__ _shutdown_torch",
    "ray.train.v2.torch.train_loop_utils: get_devices prepare_model",
)


@integration.after("ray._private.accelerators.nvidia_gpu")
def resource(module: Any, patch: Patch) -> str:
    """``ray.init()`` counts them, in the process that calls it."""

    @patch(module.NvidiaGPUAcceleratorManager, "get_current_node_num_accelerators", takes="")
    def count(original: Any) -> int:
        found: int = original() or _backend.C.devices.count()
        return found

    return "ray.init() counts the devices as GPU"


@integration.after("ray.air._internal.device_manager.nvidia_gpu")
def devices(module: Any, patch: Patch) -> str:
    """A worker sees all devices of its node: Ray limits it to its own by CUDA's variable alone."""
    manager = module.CUDATorchDeviceManager
    taken = "is_available set_device create_stream get_stream_context get_current_stream"
    patch.words(manager, taken, cuda=_backend.device)

    @patch(manager, "get_devices", takes="self")
    def get_devices(original: Any, self: Any) -> list[torch.device]:
        return [torch.device(_backend.device, int(index)) for index in module.ray.get_gpu_ids() or [0]]

    return _TRAINS


def _communicate(module: Any, patch: Patch, name: str) -> str:
    from torch_backplane.process_group import backend_name

    patch.words(module, name, nccl=backend_name())
    return f"workers communicate by {backend_name()}"


@integration.after("ray.train.torch.config")
def backend(module: Any, patch: Patch) -> str:
    """Where a trainer of another library asks for none."""
    return _communicate(module, patch, "_TorchBackend.on_start")


@integration.after("ray.train.v2.torch.torch_trainer")
def trainer(module: Any, patch: Patch) -> str:
    """The trainer's default."""
    return _communicate(module, patch, "TorchTrainer.__init__")
