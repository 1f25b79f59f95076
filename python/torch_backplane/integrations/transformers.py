"""Transformers: pipelines, the Trainer, generation and placement take this device as they take cuda."""

from __future__ import annotations

from typing import Any

import torch

from torch_backplane import _backend
from torch_backplane.integrations._library import Integration, Patch

integration = Integration("transformers", tried=">=5.16,<5.25")

# is_torch_cuda_available stays torch's: it decides whether packages of CUDA kernels are used.
integration.words(
    "bf16=True is asked of the device",
    "transformers.utils.import_utils: is_torch_bf16_gpu_available is_torch_bf16_available_on_device",
)
integration.words(
    f'processors take device="{_backend.device}"',
    "transformers.utils.type_validators: device_validator",
)
# Memory that the allocator holds and does not use is free for a model, and all weights are allocated at once.
integration.words(
    f'device_map="auto" and "{_backend.device}"',
    "transformers.integrations.accelerate: check_and_set_device_map get_max_memory",
    "transformers.modeling_utils: caching_allocator_warmup",
)
# Compiled unless disable_compile is set, as on cuda; the layers of an offloaded cache are copied on a separate stream.
integration.words(
    "generate() compiles with a static cache, and offloads caches",
    "transformers.generation.utils: GenerationMixin._valid_auto_compile_criteria",
    "transformers.cache_utils: Cache.update",
)
_BATCHING = "transformers.generation.continuous_batching"
# The thread of 5.16 sets no current device.
integration.words(
    "generate_batch() runs on the model's device",
    f"{_BATCHING}.continuous_api: ContinuousBatchingManager._run_generation_loop",
    releases=">=5.17",
)
# The function has moved.
integration.words(
    "generate_batch() sizes its cache by the device's memory",
    f"{_BATCHING}.requests: get_device_and_memory_breakdown",
    releases="<5.21",
)
integration.words(
    "generate_batch() sizes its cache by the device's memory",
    f"{_BATCHING}.utils: get_device_and_memory_breakdown",
    releases=">=5.21",
)
# From 5.19 on, these ask torch for the module of the device.
integration.words(
    "generate_batch() has the device's streams, pools and graphs",
    f"{_BATCHING}.continuous_api: ContinuousBatchProcessor.__del__ ContinuousBatchProcessor.update_batch",
    f"{_BATCHING}.continuous_api: ContinuousBatchingManager.stop",
    f"{_BATCHING}.initialization: decide_use_cuda_graphs",
    f"{_BATCHING}.input_outputs: ContinuousBatchingIOs.__init__ ContinuousBatchingIOs._transfer_inputs",
    f"{_BATCHING}.input_outputs: HostDeviceIOPair.__init__ HostDeviceIOPair.transfer_outputs_d2h",
    f"{_BATCHING}.input_outputs: ContinuousBatchingAsyncIOs.__init__",
    f"{_BATCHING}.model_runner: ModelRunner.compute_batch ModelRunner._capture_graph",
    f"{_BATCHING}.offloading_manager: OffloadingManager._stream_ctx",
    f"{_BATCHING}.utils: get_cuda_pools mem_pool_ctx",
    releases="<5.19",
)


def _is_available() -> bool:
    return _backend.C.devices.count() > 0


def _wait_for_current(stream: Any) -> None:
    if stream is not None and stream.device.type == _backend.device:
        stream.wait_stream(torch.get_device_module(stream.device).current_stream(stream.device))


@integration.after("transformers.utils")
def devices(module: Any, patch: Patch) -> str:
    """What quantizers may be used on."""

    @patch(module, "get_available_devices", takes="")
    def get_available_devices(known: Any) -> frozenset[str]:
        return known() | ({_backend.device} if _is_available() else set())

    return "the device is one of the available devices"


@integration.after("transformers.pipelines.base")
def pipelines(module: Any, patch: Patch) -> str:
    """``device=None`` and ``device=0`` are the device, and the current device is set while a pipeline runs."""
    patch.words(module.Pipeline, "__init__ device_placement __call__", cuda=_backend.device)
    patch.value(module, "is_torch_cuda_available", lambda known: _is_available)
    return "pipeline() runs on the device"


@integration.after("transformers.training_args")
def training_arguments(module: Any, patch: Patch) -> str:
    """One device per process, as with the other accelerators here: nn.DataParallel is for CUDA only."""
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
    patch.words(module, "TrainerMemoryTracker.start TrainerMemoryTracker.stop set_seed", cuda=_backend.device)
    patch.value(module, "is_torch_cuda_available", lambda known: _is_available)
    return "memory metrics are the device's"


@integration.after(f"{_BATCHING}.utils", releases=">=5.19")
def continuous_batching(module: Any, patch: Patch) -> str:
    """``generate_batch()`` captures graphs."""
    patch.value(module, "DEVICE_TYPE_TO_GRAPH_NAME", lambda known: {**known, _backend.device: known["cuda"]})
    return "generate_batch() captures graphs"


@integration.after(f"{_BATCHING}.input_outputs", releases=">=5.19")
def continuous_batching_devices(module: Any, patch: Patch) -> str:
    """``use_async_batching=True``."""
    in_turns = module.ContinuousBatchingAsyncIOs
    patch.value(in_turns, "_supported_device_types", lambda known: (*known, _backend.device))
    return "generate_batch() prepares a batch while another runs"


@integration.after(f"{_BATCHING}.input_outputs")
def continuous_batching_in_turns(module: Any, patch: Patch) -> str:
    """``use_async_batching=True``. What the current stream fills, another copies, which has to wait for it."""

    @patch(module.ContinuousBatchingAsyncIOs, "get_model_kwargs", takes="self")
    def get_model_kwargs(kwargs: Any, self: Any, *args: Any, **options: Any) -> Any:
        _wait_for_current(self.h2d_stream)
        return kwargs(self, *args, **options)

    return "generate_batch() prepares a batch while another runs"


@integration.after(f"{_BATCHING}.model_runner")
def continuous_batching_order(module: Any, patch: Patch) -> str:
    """Inputs are filled on the current stream, and read on another that does not wait for it: on any device a race."""

    @patch(module.ModelRunner, "compute_batch", takes="self model batch_data")
    def compute_batch(compute: Any, self: Any, model: Any, batch_data: Any) -> None:
        _wait_for_current(self.inputs_and_outputs.compute_stream)
        compute(self, model, batch_data)

    return "generate_batch() computes when its inputs are ready"


@integration.after("transformers.distributed.utils", releases=">=5.19")
def parallel_models(module: Any, patch: Patch) -> str:
    """``DistributedConfig(tp_size=2)``. Before 5.19, torch chooses for a device that is not in the library's list."""
    from torch_backplane.process_group import backend_name

    patch.value(module, "DISTRIBUTED_BACKEND_MAP", lambda known: {**known, _backend.device: backend_name()})
    return f"models that are split over processes communicate by {backend_name()}"
