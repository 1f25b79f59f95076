"""Steps for Lightning's Trainer, in ``lightning.pytorch`` and in ``pytorch_lightning``."""

from __future__ import annotations

from typing import Any

import torch

from torch_backplane import _backend
from torch_backplane.integrations import _lightning_accelerator as accelerator
from torch_backplane.integrations import _lightning_fabric as fabric
from torch_backplane.integrations._library import Integration, Patch


def add_trainer(integration: Integration, root: str) -> None:
    """Add the steps for the package ``root``, which is ``lightning.pytorch`` or ``pytorch_lightning``."""

    @integration.after(root)
    def arrange(module: Any, patch: Patch) -> str:
        connector = fabric.part(root, "trainer.connectors.accelerator_connector")
        fabric.add_connector(connector, connector._AcceleratorConnector, patch)
        fabric.add_precision(fabric.part(root, "plugins.precision.fsdp").FSDPPrecision, patch)
        _strategies(root, patch)
        _memory(root, patch)
        _reports(root, patch)
        wrong = fabric.part(root, "utilities.exceptions").MisconfigurationException
        accelerator.register(fabric.part(root, "accelerators"), patch, wrong)
        return f"Trainer has the accelerator {_backend.device}, its strategies and its mixed precision"


def _strategies(root: str, patch: Patch) -> None:
    module = fabric.part(root, "strategies.ddp")
    fabric.add_wrapping(module.DDPStrategy, "_setup_model", "determine_ddp_device_ids", "model", "_ddp_kwargs", patch)
    fabric.add_mesh(fabric.part(root, "strategies.fsdp").FSDPStrategy, "kwargs", patch)

    @patch(module.DDPStrategy, "_register_ddp_hooks", takes="self")
    def register_hooks(original: Any, self: Any) -> None:
        if self.root_device.type != _backend.device:
            return original(self)
        return module._register_ddp_comm_hook(
            model=self.model,
            ddp_comm_state=self._ddp_comm_state,
            ddp_comm_hook=self._ddp_comm_hook,
            ddp_comm_wrapper=self._ddp_comm_wrapper,
        )


def _memory(root: str, patch: Patch) -> None:
    """The search for a batch size needs to recognize that memory is exhausted."""
    memory = fabric.part(root, "utilities.memory")

    @patch(memory, "is_oom_error", takes="exception")
    def is_oom_error(original: Any, exception: BaseException) -> bool:
        return isinstance(exception, torch.OutOfMemoryError) or original(exception)

    @patch(memory, "garbage_collection_cuda", takes="")
    def garbage_collection(original: Any) -> None:
        original()
        if accelerator.is_current():
            torch.accelerator.empty_cache()


def _reports(root: str, patch: Patch) -> None:
    """Device information, throughput and the profiler."""
    setup = fabric.part(root, "trainer.setup")
    profilers = fabric.part(root, "profilers.pytorch")
    throughput = fabric.part(root, "callbacks.throughput_monitor")

    @patch(setup, "_log_device_info", takes="trainer")
    def log_device_info(original: Any, trainer: Any) -> None:
        original(trainer)
        if accelerator.is_current():
            used = accelerator.is_ours(trainer.accelerator)
            setup.rank_zero_info(f"{_backend.device} available: True, used: {used}")

    @patch(throughput.ThroughputMonitor, "_update", takes="self trainer")
    def update(original: Any, self: Any, trainer: Any, *args: Any, **kwargs: Any) -> None:
        if trainer.strategy.root_device.type == _backend.device:
            torch.accelerator.synchronize()  # so that the clock is read after the work
        original(self, trainer, *args, **kwargs)

    @patch(profilers.PyTorchProfiler, "_default_activities", takes="self")
    def activities(original: Any, self: Any) -> list[Any]:
        found: list[Any] = original(self)
        return [*found, torch.profiler.ProfilerActivity.PrivateUse1] if accelerator.is_current() else found

    @patch(profilers, "_default_sort_by_key", takes="profiler_kwargs")
    def sort_by_key(original: Any, profiler_kwargs: dict[str, Any]) -> str:
        given = profiler_kwargs.get("activities") or [torch.profiler.ProfilerActivity.PrivateUse1]
        if accelerator.is_current() and torch.profiler.ProfilerActivity.PrivateUse1 in given:
            return "cuda_time_total"  # the accelerator's, in the list that Lightning has; torch takes it so
        key: str = original(profiler_kwargs)
        return key
