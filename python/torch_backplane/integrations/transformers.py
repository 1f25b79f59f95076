"""Transformers: pipelines, the Trainer, generation and placement take this device as they take cuda."""

from __future__ import annotations

from typing import Any

import torch

from torch_backplane import _backend
from torch_backplane.integrations._library import Integration, Patch

integration = Integration("transformers", tried="~=5.24.0")


def _is_available() -> bool:
    return _backend.C.devices.count() > 0


def _wait_for_current(stream: Any) -> None:
    if stream is not None and stream.device.type == _backend.device:
        stream.wait_stream(torch.get_device_module(stream.device).current_stream(stream.device))


@integration.after("transformers.utils.import_utils")
def half_types(module: Any, patch: Patch) -> str:
    """``is_torch_cuda_available`` stays torch's: whether packages of CUDA kernels are used goes by it."""
    patch.words(module, "is_torch_bf16_gpu_available is_torch_bf16_available_on_device", cuda=_backend.device)
    return "bf16=True is asked of the device"


@integration.after("transformers.utils")
def devices(module: Any, patch: Patch) -> str:
    """What quantizers may be used on."""

    @patch(module, "get_available_devices", takes="")
    def get_available_devices(known: Any) -> frozenset[str]:
        return known() | ({_backend.device} if _is_available() else set())

    return "the device is one of the available devices"


@integration.after("transformers.utils.type_validators")
def image_processors(module: Any, patch: Patch) -> str:
    """A list of names."""
    patch.words(module, "device_validator", cuda=_backend.device)
    return f'processors take device="{_backend.device}"'


@integration.after("transformers.pipelines.base")
def pipelines(module: Any, patch: Patch) -> str:
    """``device=None`` and ``device=0`` are the device, and the current device is set while a pipeline runs."""
    patch.words(module.Pipeline, "__init__ device_placement __call__", cuda=_backend.device)
    patch.value(module, "is_torch_cuda_available", lambda known: _is_available)
    return "pipeline() runs on the device"


@integration.after("transformers.training_args")
def training_arguments(module: Any, patch: Patch) -> str:
    """One device a process: nn.DataParallel is CUDA's alone, and so it is with the other accelerators here."""
    patch.words(module.TrainingArguments, "_setup_devices", cuda=_backend.device)

    @patch(module.TrainingArguments, "n_gpu", takes="self")
    def n_gpu(n_gpu: Any, self: Any) -> int:
        return min(n_gpu(self), 1)

    return "Trainer trains on the device, one in each process"


@integration.after("transformers.trainer")
def trainer(module: Any, patch: Patch) -> str:
    """Random states in checkpoints, by the device's name."""
    patch.words(module.Trainer, "evaluation_loop _save_rng_state", cuda=_backend.device)
    patch.words(module.Trainer, "_load_rng_state", cuda=_backend.device, CUDA=_backend.device.upper())
    return "checkpoints of Trainer have the device's random state"


@integration.after("transformers.trainer_utils")
def trainer_utilities(module: Any, patch: Patch) -> str:
    """Memory metrics (``skip_memory_metrics=False``)."""
    patch.words(module.TrainerMemoryTracker, "start stop", cuda=_backend.device)
    patch.value(module, "is_torch_cuda_available", lambda known: _is_available)
    patch.words(module, "set_seed", cuda=_backend.device)
    return "memory metrics are the device's"


@integration.after("transformers.integrations.accelerate")
def placement(module: Any, patch: Patch) -> str:
    """Memory that the allocator holds and does not use is free for a model."""
    patch.words(module, "check_and_set_device_map get_max_memory", cuda=_backend.device)
    return f'device_map="auto" and "{_backend.device}"'


@integration.after("transformers.generation.utils")
def generation(module: Any, patch: Patch) -> str:
    """Compiled with a static cache, unless ``disable_compile`` says no, as on cuda."""
    patch.words(module.GenerationMixin, "_valid_auto_compile_criteria", cuda=_backend.device)
    patch.words(module.DeferredStopCheck, "__init__", cuda=_backend.device)
    return "generate() compiles with a static cache, and offloads caches"


@integration.after("transformers.generation.continuous_batching.utils")
def continuous_batching(module: Any, patch: Patch) -> str:
    """``generate_batch()``: as much cache as the device has room for, and graphs."""
    patch.words(module, "get_device_and_memory_breakdown", cuda=_backend.device)
    patch.value(module, "DEVICE_TYPE_TO_GRAPH_NAME", lambda known: {**known, _backend.device: known["cuda"]})
    return "generate_batch() sizes its cache by the device's memory, and captures graphs"


@integration.after("transformers.generation.continuous_batching.continuous_api")
def continuous_batching_loop(module: Any, patch: Patch) -> str:
    """The device of a model is current in its thread."""
    patch.words(module.ContinuousBatchingManager, "_run_generation_loop", cuda=_backend.device)
    return "generate_batch() runs on the model's device"


@integration.after("transformers.generation.continuous_batching.input_outputs")
def continuous_batching_in_turns(module: Any, patch: Patch) -> str:
    """``use_async_batching=True``. What the current stream fills, another copies, which has to wait for it."""
    in_turns = module.ContinuousBatchingAsyncIOs
    patch.value(in_turns, "_supported_device_types", lambda known: (*known, _backend.device))

    @patch(in_turns, "get_model_kwargs", takes="self")
    def get_model_kwargs(kwargs: Any, self: Any, *args: Any, **options: Any) -> Any:
        _wait_for_current(self.h2d_stream)
        return kwargs(self, *args, **options)

    return "generate_batch() prepares a batch while another runs"


@integration.after("transformers.generation.continuous_batching.model_runner")
def continuous_batching_order(module: Any, patch: Patch) -> str:
    """Inputs are filled on the current stream, and read on another that does not wait for it: on any card a race."""

    @patch(module.ModelRunner, "compute_batch", takes="self model batch_data")
    def compute_batch(compute: Any, self: Any, model: Any, batch_data: Any) -> None:
        _wait_for_current(self.inputs_and_outputs.compute_stream)
        compute(self, model, batch_data)

    return "generate_batch() computes when its inputs are there"


@integration.after("transformers.modeling_utils")
def loading(module: Any, patch: Patch) -> str:
    """The allocator takes the memory of all weights at once, up to what the device has."""
    patch.words(module, "caching_allocator_warmup", cuda=_backend.device)
    return f'device_map="auto" and "{_backend.device}"'


@integration.after("transformers.cache_utils")
def offloaded_caches(module: Any, patch: Patch) -> str:
    """Layers come and go on a stream of their own."""
    patch.words(module.Cache, "update", cuda=_backend.device)
    return "generate() compiles with a static cache, and offloads caches"


@integration.after("transformers.distributed.utils")
def parallel_models(module: Any, patch: Patch) -> str:
    """``tp_plan="auto"``."""
    from torch_backplane.process_group import backend_name

    patch.value(module, "DISTRIBUTED_BACKEND_MAP", lambda known: {**known, _backend.device: backend_name()})
    return f"models that are cut over processes talk by {backend_name()}"
