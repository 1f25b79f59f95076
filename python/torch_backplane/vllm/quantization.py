"""Linear layers of quantized weights by torch's operators: weights stay small in memory, and are widened where used."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from vllm import _custom_ops
from vllm.model_executor.kernels import linear
from vllm.model_executor.kernels.linear.mixed_precision.MPLinearKernel import MPLinearKernel
from vllm.model_executor.kernels.linear.scaled_mm import FP8ScaledMMLinearKernel
from vllm.model_executor.layers.quantization import auto_awq, auto_gptq
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
        """Whether the layer's weights are of such a kind, and their differences from zero points fit a byte."""
        kind = f"{c.weight_type} with zero points" if c.zero_points else f"{c.weight_type}"
        fits = c.weight_type.size_bits in ((4,) if c.zero_points else (4, 8))
        return fits, f"weights of {kind} are not served on {_backend.device}"

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """Unpack words of 32 bits into bytes, (outputs, inputs), once."""
        weight, scale, zero = self._get_weight_params(layer)
        kind = self.config.weight_type
        wide = unpack_quantized_values_into_int32(weight.data, kind, packed_dim=weight.packed_dim)
        wide = wide if weight.output_dim == 0 else wide.t()
        scales = scale.data if scale.output_dim == 0 else scale.data.t().contiguous()
        if kind.has_bias():
            wide = wide - kind.bias
        if self.config.zero_points:
            zeros = unpack_quantized_values_into_int32(zero.data, kind, packed_dim=zero.packed_dim)
            wide = (wide.reshape(*scales.shape, -1) - zeros.unsqueeze(-1)).flatten(1)
        self._transform_param(layer, self.w_q_name, lambda _: wide.to(torch.int8).contiguous())
        self._transform_param(layer, self.w_s_name, lambda _: scales)

    def apply_weights(self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """``x`` times the weights."""
        weight, scale, _ = self._get_weight_params(layer)
        grouped = weight.view(*scale.shape, -1).to(x.dtype) * scale.unsqueeze(-1).to(x.dtype)
        return F.linear(x, grouped.flatten(1), bias)


class Float8Linear(FP8ScaledMMLinearKernel):
    """Weights of float8 with a scale for all, each row or each block. Activations are not rounded."""

    is_supported = can_implement = classmethod(lambda *_: (True, None))
    apply_scaled_mm = None  # of rounded activations

    def apply_weights(self, layer: Any, x: Any, bias: torch.Tensor | None = None) -> torch.Tensor:
        """``x`` times the weights, (inputs, outputs), or (outputs, inputs) with scales of blocks."""
        if layer.weight_block_size is None:
            wide = layer.weight.t().float() * layer.weight_scale.view(-1, 1)
        else:
            sizes = zip(layer.weight.shape, layer.weight_block_size, strict=True)
            rows, columns = (torch.arange(size, device=x.device) // block for size, block in sizes)
            wide = layer.weight.float() * layer.weight_scale_inv[rows][:, columns]
        return F.linear(x, wide.to(x.dtype), bias)


def register() -> None:
    """Among the kernels from which vLLM chooses for this platform; what it asks or calls first: docs/upstream.md."""
    if GroupedLinear in linear._POSSIBLE_KERNELS.get(PlatformEnum.OOT, ()):
        return
    linear.register_linear_kernel(GroupedLinear, PlatformEnum.OOT, "mp")
    for table in (linear._POSSIBLE_FP8_KERNELS, linear._POSSIBLE_FP8_BLOCK_KERNELS, linear._POSSIBLE_WFP8A16_KERNELS):
        table[PlatformEnum.OOT] = [Float8Linear]
    patch = Patch("vllm")
    # The other method is written in Triton, and this one asks for a kernel, as on other platforms.
    patch.value(auto_awq, "AutoAWQLinearMethod", lambda _: auto_awq.AutoAWQMarlinLinearMethod)

    @patch(auto_gptq, "verify_marlin_supported", "quant_type group_size")  # of auto_awq, too
    def verify(_: Any, quant_type: Any, group_size: int, has_zp: bool = False) -> None:
        pass  # GroupedLinear.can_implement decides

    @patch(_custom_ops, "scaled_fp8_quant", "input scale")
    def rounded(_: Any, input: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        most = torch.finfo(torch.float8_e4m3fn).max
        return (input.float() / scale).clamp(-most, most).to(torch.float8_e4m3fn), scale
