"""diffusers: it asks torch.accelerator for the device; this adapts what still names cuda.

``device_map="balanced"`` and offloading use Accelerate, and therefore its integration.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_backplane import _backend
from torch_backplane.integrations._library import Integration, Patch

integration = Integration("diffusers", "~=0.42.0")


@integration.after("diffusers.utils.torch_utils")
def forget(module: Any, patch: Patch) -> str:
    """The device is looked up once, perhaps before the backend was imported: look it up again."""
    patch.value(module, "torch_device", lambda found: _found_again(module))
    return f"the default device is {_backend.device}"


def _found_again(module: Any) -> str:
    module.TorchDeviceBackend._detect_device_type.cache_clear()
    device: str = module.get_device()
    return device


@integration.after("diffusers.pipelines.pipeline_utils")
def pipelines(module: Any, patch: Patch) -> str:
    """``device_map=`` of a pipeline, and ``to()`` after offloading."""

    def names(found: list[str]) -> list[str]:
        return found if _backend.device in found else [*found, _backend.device]

    patch.value(module, "SUPPORTED_DEVICE_MAP", names)
    _refuse_moves(module.DiffusionPipeline, patch)
    return f'device_map="{_backend.device}"; to() knows of offloading'


@integration.after("diffusers.modular_pipelines.modular_pipeline")
def modular_pipelines(module: Any, patch: Patch) -> str:
    """``to()`` of modular pipelines."""
    _refuse_moves(module.ModularPipeline, patch)
    return "to() of modular pipelines knows of offloading"


@integration.after("diffusers.hooks.tensor_parallel")
def tensor_parallel(module: Any, patch: Patch) -> str:
    """A list of supported devices."""
    patch.value(module, "_SUPPORTED_TP_DEVICES", lambda found: (*found, _backend.device))
    return "tensor parallelism"


def _refuse_moves(pipeline: Any, patch: Patch) -> None:
    """As ``pipe.to("cuda")`` does: an error after sequential offloading, a warning after that of whole models."""

    @patch(pipeline, "to", takes="self args kwargs")
    def to(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        asked = kwargs.get("device", args[0] if args and not isinstance(args[0], torch.dtype) else None)
        if asked is not None and torch.device(asked).type == _backend.device:
            _check_offloading(self)
        return original(self, *args, **kwargs)


def _check_offloading(pipeline: Any) -> None:
    hooks = [getattr(component, "_hf_hook", None) for component in pipeline.components.values()]
    first = [getattr(hook, "hooks", None) or [hook] for hook in hooks if hook is not None]
    kinds = {type(one[0]).__name__ for one in first}
    where = f"{type(pipeline).__name__}.to({_backend.device!r})"
    if "AlignDevicesHook" in kinds:
        raise ValueError(
            f"{where}: enable_sequential_cpu_offload() moves modules as they run. Leave out the move, or move to 'cpu'"
        )
    if "CpuOffload" in kinds:
        from diffusers.utils import logging

        logging.get_logger("diffusers.pipelines.pipeline_utils").warning(
            f"{where}: enable_model_cpu_offload() moves the models as they run, and the move undoes what it saves in "
            "memory. Leave it out, or move to 'cpu'"
        )
