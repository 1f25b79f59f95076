"""Liger Kernel: the device that it infers, and the processors that share out the rows of a backward pass."""

from __future__ import annotations

from typing import Any

import torch

from torch_backplane import _backend
from torch_backplane.integrations._library import Integration, Patch

integration = Integration("liger-kernel", "~=0.8.5")

integration.words(
    f"the device is {_backend.device}", "liger_kernel.utils: infer_device infer_device_arch get_total_gpu_memory"
)


@integration.after("liger_kernel.utils")
def communication(module: Any, patch: Patch) -> str:
    """A chain of backends, each with its vendor."""

    @patch(module, "infer_comm_backend", takes="")
    def infer_comm_backend(original: Any) -> str:
        current = torch.accelerator.current_accelerator(check_available=True)
        if current is None or current.type != _backend.device:
            found: str = original()
            return found
        return torch.distributed.get_default_backend_for_device(_backend.device)

    return f"processes communicate over {_backend.device}"


integration.words(
    "backward passes use all processors",
    "liger_kernel.ops.dyt: liger_dyt_bwd",
    "liger_kernel.ops.fused_add_rms_norm: fused_add_rms_norm_backward",
    "liger_kernel.ops.layer_norm: layer_norm_backward",
    "liger_kernel.ops.modulated_rms_norm: modulated_rms_norm_backward",
    "liger_kernel.ops.poly_norm: poly_norm_backward",
    "liger_kernel.ops.rms_norm: rms_norm_backward",
)
integration.words(
    f"operators take tensors of {_backend.device}",
    "liger_kernel.ops.fused_linear_scaled_cross_entropy: _validate_tp_inputs",
    "liger_kernel.ops.mlp: LigerMLPFunction.forward",
    is_cuda=f"is_{_backend.device}",
)
