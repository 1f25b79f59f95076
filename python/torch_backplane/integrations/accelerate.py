"""Accelerate: its path for cuda, for this device. Big models, both kinds of FSDP and ``accelerate launch`` follow."""

from __future__ import annotations

from typing import Any

from torch_backplane import _backend
from torch_backplane.integrations._library import Integration, Patch

integration = Integration("accelerate", tried="~=1.15.0")


@integration.after("accelerate.state")
def state(module: Any, patch: Patch) -> str:
    """The device of a process, and its process group."""
    from torch_backplane.process_group import backend_name

    device, collectives = _backend.device, backend_name()
    both = {"cuda:nccl,cpu:gloo": f"{device}:{collectives},cpu:gloo"}
    patch.words(module.PartialState, "default_device set_device", cuda=device)
    patch.words(module.PartialState, "_prepare_backend", cuda=device, nccl=collectives)
    patch.words(module.PartialState, "__init__", nccl=collectives, **both)
    return f"the default device is {device}, processes talk by {collectives}"


@integration.after("accelerate.accelerator")
def mixed_precision(module: Any, patch: Patch) -> str:
    """A list of devices stands between fp16 and its scaler."""
    patch.words(module.Accelerator, "__init__", cuda=_backend.device)
    return "mixed_precision fp16 and bf16"


@integration.after("accelerate.utils.imports")
def availability(module: Any, patch: Patch) -> str:
    """What asks this goes on with torch.cuda, which is arranged where it does."""
    patch.words(module, "is_cuda_available is_bf16_available", cuda=_backend.device)
    return "bf16 is asked of the device"


@integration.after("accelerate.utils.modeling")
def big_models(module: Any, patch: Patch) -> str:
    """Memory of the devices, by which a model is cut, and the scaler."""
    patch.words(module, "get_max_memory get_balanced_memory", cuda=_backend.device)
    patch.words(module, "get_grad_scaler", cuda=_backend.device)

    @patch(module, "get_grad_scaler", takes="distributed_type")
    def get_grad_scaler(get_grad_scaler: Any, distributed_type: Any = None, **kwargs: Any) -> Any:
        if (
            distributed_type == module.DistributedType.FSDP
        ):  # its scaler has a parameter for the device, cuda by default
            kwargs = {"device": _backend.device, **kwargs}
        return get_grad_scaler(distributed_type, **kwargs)

    return 'get_max_memory and device_map="auto" know the devices'


@integration.after("accelerate.hooks")
def dispatched_models(module: Any, patch: Patch) -> str:
    """A model that is spread over devices warns whoever moves it, by ``model.<device>()`` too."""
    patch.value(module, "_accelerate_added_attributes", lambda names: [*names, _backend.device])
    return f"model.{_backend.device}() is watched as model.cuda() is"


@integration.after("accelerate.big_modeling")
def dispatch(module: Any, patch: Patch) -> str:
    """The same."""
    patch.words(module, "dispatch_model", cuda=_backend.device)
    return f"model.{_backend.device}() is watched as model.cuda() is"


@integration.after("accelerate.utils.memory")
def cache(module: Any, patch: Patch) -> str:
    """``find_executable_batch_size``, ``free_memory`` and ``release_memory`` empty a cache."""
    patch.words(module, "clear_device_cache", cuda=_backend.device)
    return "the device's cache is emptied"


@integration.after("accelerate.utils.random")
def seeds(module: Any, patch: Patch) -> str:
    """The device's random numbers."""
    patch.words(module, "set_seed synchronize_rng_state", cuda=_backend.device)
    return "the device's random state is seeded, saved and loaded"


@integration.after("accelerate.checkpointing")
def checkpoints(module: Any, patch: Patch) -> str:
    """Also in ``save_state`` and ``load_state``; the file has it by cuda's name."""
    patch.words(module, "save_accelerator_state load_accelerator_state", cuda=_backend.device)
    return "the device's random state is seeded, saved and loaded"


@integration.after("accelerate.utils.dataclasses")
def fsdp(module: Any, patch: Patch) -> str:
    """``sync_module_states`` makes parameters on the current device; the profiler has an activity for it."""
    patch.words(module.FullyShardedDataParallelPlugin, "__post_init__", cuda=_backend.device)

    @patch(module.ProfileKwargs, "_get_profiler_activity", takes="self activity")
    def activity(get: Any, self: Any, activity: str) -> Any:
        if activity == _backend.device:
            return module.torch.profiler.ProfilerActivity.PrivateUse1
        return get(self, activity)

    return f'FSDP makes parameters on the device; ProfileKwargs takes "{_backend.device}"'


@integration.after("accelerate.utils.environment")
def device_type(module: Any, patch: Patch) -> str:
    """What the launcher for notebooks starts."""
    patch.words(module, "get_current_device_type", cuda=_backend.device)
    return "notebook_launcher and accelerate launch start a process a device"


@integration.after("accelerate.launchers")
def notebooks(module: Any, patch: Patch) -> str:
    """The same."""
    patch.words(module, "notebook_launcher", cuda=_backend.device)
    return "notebook_launcher and accelerate launch start a process a device"


@integration.after("accelerate.commands.launch")
def launch(module: Any, patch: Patch) -> str:
    """``accelerate launch`` without options: a process for each device."""
    patch.words(module, "_validate_launch_command", cuda=_backend.device)
    return "notebook_launcher and accelerate launch start a process a device"


@integration.after("accelerate.utils.launch")
def launched(module: Any, patch: Patch) -> str:
    """``--gpu_ids``."""
    visible = _backend.env_name("VISIBLE_DEVICES")
    functions = "prepare_simple_launcher_cmd_env prepare_multi_gpu_env"
    patch.words(module, functions, CUDA_VISIBLE_DEVICES=visible)
    return f"--gpu_ids sets {visible}"
