"""Accelerate: its path for cuda, for this device. Big models, both kinds of FSDP and ``accelerate launch`` follow."""

from __future__ import annotations

from typing import Any

from torch_backplane import _backend
from torch_backplane.integrations._library import Integration, Patch

integration = Integration("accelerate", tried="~=1.15.0")

# fp16 has a scaler only on the devices of a list.
integration.words("mixed_precision fp16 and bf16", "accelerate.accelerator: Accelerator.__init__")

# Their callers continue with torch.cuda, and are adapted where they do.
integration.words("bf16 is asked of the device", "accelerate.utils.imports: is_cuda_available is_bf16_available")

# find_executable_batch_size, free_memory and release_memory empty it.
integration.words("the device's cache is emptied", "accelerate.utils.memory: clear_device_cache")

# save_state and load_state, too; in the file the state has cuda's name.
integration.words(
    "the device's random state is seeded, saved and loaded",
    "accelerate.utils.random: set_seed synchronize_rng_state",
    "accelerate.checkpointing: save_accelerator_state load_accelerator_state",
)

# Without options, the command and the launcher for notebooks.
integration.words(
    "notebook_launcher and accelerate launch start one process per device",
    "accelerate.utils.environment: get_current_device_type",
    "accelerate.launchers: notebook_launcher",
    "accelerate.commands.launch: _validate_launch_command",
)
integration.words(
    f"--gpu_ids sets {_backend.env_name('VISIBLE_DEVICES')}",
    "accelerate.utils.launch: prepare_simple_launcher_cmd_env prepare_multi_gpu_env",
    CUDA_VISIBLE_DEVICES=_backend.env_name("VISIBLE_DEVICES"),
)

# A model that is spread over devices warns whoever moves it, by model.<device>(), too: dispatched_models has the name.
_MOVES = f"model.{_backend.device}() is watched as model.cuda() is"
integration.words(_MOVES, "accelerate.big_modeling: dispatch_model")


@integration.after("accelerate.hooks")
def dispatched_models(module: Any, patch: Patch) -> str:
    """The methods of a model that are watched."""
    patch.value(module, "_accelerate_added_attributes", lambda names: [*names, _backend.device])
    return _MOVES


@integration.after("accelerate.state")
def state(module: Any, patch: Patch) -> str:
    """The device of a process, and its process group."""
    from torch_backplane.process_group import backend_name

    device, collectives = _backend.device, backend_name()
    both = {"cuda:nccl,cpu:gloo": f"{device}:{collectives},cpu:gloo"}
    patch.words(module.PartialState, "default_device set_device", cuda=device)
    patch.words(module.PartialState, "_prepare_backend", cuda=device, nccl=collectives)
    patch.words(module.PartialState, "__init__", nccl=collectives, **both)
    return f"the default device is {device}, processes communicate by {collectives}"


@integration.after("accelerate.utils.modeling")
def big_models(module: Any, patch: Patch) -> str:
    """Memory of the devices, by which a model is split, and the scaler."""
    patch.words(module, "get_max_memory get_balanced_memory get_grad_scaler", cuda=_backend.device)

    @patch(module, "get_grad_scaler", takes="distributed_type")
    def get_grad_scaler(get_grad_scaler: Any, distributed_type: Any = None, **kwargs: Any) -> Any:
        if distributed_type == module.DistributedType.FSDP:  # its scaler has a parameter for it, cuda by default
            kwargs = {"device": _backend.device, **kwargs}
        return get_grad_scaler(distributed_type, **kwargs)

    return 'get_max_memory and device_map="auto" know the devices'


@integration.after("accelerate.utils.dataclasses")
def fsdp(module: Any, patch: Patch) -> str:
    """``sync_module_states`` makes parameters on the current device; the profiler has an activity for it."""
    patch.words(module, "FullyShardedDataParallelPlugin.__post_init__", cuda=_backend.device)

    @patch(module.ProfileKwargs, "_get_profiler_activity", takes="self activity")
    def activity(get: Any, self: Any, activity: str) -> Any:
        if activity == _backend.device:
            return module.torch.profiler.ProfilerActivity.PrivateUse1
        return get(self, activity)

    return f'FSDP makes parameters on the device; ProfileKwargs takes "{_backend.device}"'
