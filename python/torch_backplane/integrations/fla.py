"""Flash Linear Attention (fla-core): Triton says which device it is; this adapts the places that have a list."""

from __future__ import annotations

from torch_backplane import _backend
from torch_backplane.integrations._library import Integration

integration = Integration("fla-core", "~=0.6.0")

integration.words(
    f"losses take tensors of {_backend.device}",
    "fla.modules.fused_cross_entropy.ops: FusedCrossEntropyLoss.forward",
)
integration.words(
    f"autocast is that of {_backend.device}",
    "fla.modules.norm.layernorm_quant: LayerNormLinearQuantFunction.forward",
)
integration.words(
    f"operators take tensors of {_backend.device}",
    "fla.ops.attnres.fused: fused_attnres_fwd",
    "fla.ops.cyfa.utils: validate_cyfa_inputs",
    is_cuda=f"is_{_backend.device}",
)
