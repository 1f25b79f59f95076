"""Linear layers of quantized weights by torch's operators: weights stay small in memory, and are widened where used."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from vllm.model_executor.kernels.linear import _POSSIBLE_KERNELS, register_linear_kernel
from vllm.model_executor.kernels.linear.mixed_precision.MPLinearKernel import MPLinearKernel
from vllm.model_executor.layers.quantization import auto_gptq
from vllm.model_executor.layers.quantization.utils.quant_utils import unpack_quantized_values_into_int32
from vllm.platforms.interface import PlatformEnum

from torch_backplane import _backend
from torch_backplane.integrations._library import Patch


class GroupedLinear(MPLinearKernel):
    """Weights of 4 or 8 bits with a scale, and perhaps a zero point, for each group of a row."""

    @classmethod
    def get_min_capability(cls) -> int:
        """Any device."""
        return 0

    @classmethod
    def can_implement(cls, c: Any) -> tuple[bool, str | None]:
        """Whether the layer's weights are of such a kind."""
        if c.zero_points:
            return False, f"weights with zero points are not served on {_backend.device}"
        return c.weight_type.size_bits in (4, 8), f"weights of {c.weight_type} are not served on {_backend.device}"

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """Unpack words of 32 bits into bytes, once."""
        weight, scale, _ = self._get_weight_params(layer)
        kind = self.config.weight_type
        wide = unpack_quantized_values_into_int32(weight.data, kind, packed_dim=weight.packed_dim)
        wide = (wide - kind.bias if kind.has_bias() else wide).to(torch.int8)
        self._transform_param(layer, self.w_q_name, lambda _: wide if weight.output_dim == 0 else wide.t().contiguous())
        self._transform_param(layer, self.w_s_name, lambda s: s if scale.output_dim == 0 else s.t().contiguous())

    def apply_weights(self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """``x`` times the weights, whose rows are outputs."""
        weight, scale, _ = self._get_weight_params(layer)
        grouped = weight.view(len(weight), scale.shape[1], -1).to(x.dtype) * scale.unsqueeze(-1).to(x.dtype)
        return F.linear(x, grouped.flatten(1), bias)


def register() -> None:
    """Among the kernels from which vLLM chooses for this platform; for GPTQ it asks Marlin first: docs/upstream.md."""
    if GroupedLinear in _POSSIBLE_KERNELS.get(PlatformEnum.OOT, ()):
        return
    register_linear_kernel(GroupedLinear, PlatformEnum.OOT, "mp")

    @Patch("vllm")(auto_gptq, "verify_marlin_supported", "quant_type group_size")
    def verify(_: Any, quant_type: Any, group_size: int, has_zp: bool = False) -> None:
        pass  # GroupedLinear.can_implement decides
