"""Backward operators of forward operators, for the lint.

They are read from the derivatives that come with torch (``torchgen``), if installed; otherwise a short list is used.
"""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path

# Without the derivatives of torchgen.
_SHORT: dict[str, tuple[str, ...]] = {
    "aten::convolution_overrideable": ("aten::convolution_backward_overrideable",),
    "aten::_scaled_dot_product_fused_attention_overrideable": (
        "aten::_scaled_dot_product_fused_attention_overrideable_backward",
    ),
    "aten::native_layer_norm": ("aten::native_layer_norm_backward",),
    "aten::native_group_norm": ("aten::native_group_norm_backward",),
    "aten::native_batch_norm": ("aten::native_batch_norm_backward",),
    "aten::native_dropout": ("aten::native_dropout_backward",),
    "aten::_softmax": ("aten::_softmax_backward_data",),
    "aten::_log_softmax": ("aten::_log_softmax_backward_data",),
    "aten::gelu": ("aten::gelu_backward",),
    "aten::silu": ("aten::silu_backward",),
    "aten::sigmoid": ("aten::sigmoid_backward",),
    "aten::tanh": ("aten::tanh_backward",),
    "aten::relu": ("aten::threshold_backward",),
    "aten::embedding": ("aten::embedding_backward",),
    "aten::nll_loss_forward": ("aten::nll_loss_backward",),
    "aten::max_pool2d_with_indices": ("aten::max_pool2d_with_indices_backward",),
    "aten::avg_pool2d": ("aten::avg_pool2d_backward",),
}


@cache
def table() -> dict[str, tuple[str, ...]]:
    """Forward operator -> the functions of a gradient's name that its own gradient calls. Names without overload."""
    derivatives = _derivatives()
    return {op: tuple(sorted(others)) for op, others in derivatives.items()} if derivatives else _SHORT


def gradient_of(op: str) -> tuple[str, ...] | None:
    """What the formula of an operator's gradient calls, as in :func:`table`; None if torch has no formula for it."""
    known = table()
    return known.get(op.partition(".")[0].removesuffix("_"), () if known is _SHORT else None)


def _derivatives() -> dict[str, set[str]]:
    """From torch's ``derivatives.yaml``; empty if it is not installed.

    It has functions named ``..._backward``; some are not operators, but functions inside torch.
    """
    spec = importlib.util.find_spec("torchgen")
    if spec is None or spec.origin is None:
        return {}
    path = Path(spec.origin).parent / "packaged" / "autograd" / "derivatives.yaml"
    if not path.is_file():
        return {}
    text = re.sub(r"^ *#.*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found: dict[str, set[str]] = {}
    for entry in re.split(r"^- name: ", text, flags=re.MULTILINE)[1:]:
        schema, _, formulas = entry.partition("\n")
        if not re.search(r"^ +(?!result|output_diff|dispatch)[\w, ]+: (?!non_diff|not_impl)", formulas, re.MULTILINE):
            continue  # no argument has a gradient
        op = "aten::" + re.split(r"[.(]", schema)[0]
        called = {f"aten::{name.removesuffix('_symint')}" for name in re.findall(r"\b(\w*_backward\w*)\(", formulas)}
        found.setdefault(op, set()).update(called - {op})
    return found
