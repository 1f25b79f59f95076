"""vLLM's worker and model runner for GPUs, on streams and events of the device."""

from __future__ import annotations

import gc
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from vllm.platforms import current_platform
from vllm.platforms.interface import set_assigned_physical_gpu_ids
from vllm.utils.mem_utils import MemorySnapshot
from vllm.utils.torch_utils import set_random_seed
from vllm.v1.worker import gpu_model_runner
from vllm.v1.worker.gpu_worker import Worker, init_worker_distributed_environment
from vllm.v1.worker.utils import request_memory

from torch_backplane import _backend
from torch_backplane.integrations._library import Patch

STREAMS = (
    "AsyncGPUModelRunnerOutput.__init__ AsyncGPUPoolingModelRunnerOutput.__init__ GPUModelRunner.__init__ "
    "GPUModelRunner._get_or_create_async_output_copy_stream GPUModelRunner._copy_draft_token_ids_to_cpu "
    "GPUModelRunner._copy_valid_sampled_token_count"
)
"""Where the model runner says ``torch.cuda`` for streams and events: see docs/upstream.md."""

Patch("vllm").words(gpu_model_runner, STREAMS, cuda=_backend.device)


class BackplaneWorker(Worker):
    """A worker of one device."""

    def init_device(self) -> None:
        """Select the device, join the process group, measure memory, make the model runner."""
        parallel = self.parallel_config
        if parallel.assigned_physical_gpu_ids is not None:  # those of this replica alone
            set_assigned_physical_gpu_ids(parallel.assigned_physical_gpu_ids)
        elif parallel.distributed_executor_backend != "external_launcher":
            replica = parallel.data_parallel_rank_local
            replica = parallel.data_parallel_index if replica is None else replica
            self.local_rank += replica * parallel.world_size
        index = current_platform.logical_device_id_to_visible_device_id(self.local_rank)
        self.device = torch.device(_backend.device, index)
        torch.accelerator.set_device_index(index)
        current_platform.check_if_supports_dtype(self.model_config.dtype)
        init_worker_distributed_environment(
            self.vllm_config, self.rank, self.distributed_init_method, self.local_rank, current_platform.dist_backend
        )
        set_random_seed(self.model_config.seed)
        gc.collect()
        torch.accelerator.empty_cache()
        self.init_snapshot = MemorySnapshot(device=self.device)
        self.requested_memory = request_memory(self.init_snapshot, self.cache_config)
        self._init_workspace_and_model_runner()

    def _maybe_get_memory_pool_context(self, tag: str) -> AbstractContextManager[Any]:
        return nullcontext()  # without sleep mode, which vLLM refuses, there is no pool
