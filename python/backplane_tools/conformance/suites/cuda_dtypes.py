"""How much of what CUDA computes the device computes: the operators and dtypes of ``dtypesIfCUDA`` in torch's database.

One sample a pair, forward, and backward where CUDA has gradients. Where the CPU has the dtype, its result is the right
one; where it has not, the CPU's of a wider dtype, rounded, or a formula.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from backplane_tools.conformance.samples import Sample
from backplane_tools.conformance.suites.ops import OneSample, OpsSuite
from torch_backplane.testing.compare import WIDER, Difference
from torch_backplane.testing.observe import Observation

_WIDE = {**WIDER, torch.bool: torch.int64}
_NARROW = {
    (torch.float16, torch.float32): torch.float16,
    (torch.bfloat16, torch.float32): torch.bfloat16,
    (torch.complex32, torch.complex64): torch.complex32,
    (torch.complex32, torch.float32): torch.float16,
    (torch.float16, torch.complex64): torch.complex32,
}


# The CPU has its dtypes all the same: the database lists none for it, because cuDNN is what it is about.
_CUDNN_OFF = "nn.functional.batch_norm.without_cudnn"


class _Pair(OneSample):
    """The forward and the backward of one sample, against the CPU in the dtype, or in a wider one that it supports."""

    is_first_dtype = False
    planned = 0

    @property
    def is_lacking(self) -> bool:
        """Whether the CPU does not support the dtype, by the database."""
        return self.dtype not in self.op.dtypes and self.op.full_name != _CUDNN_OFF

    @property
    def has_backward(self) -> bool:
        """Whether CUDA has gradients in this dtype."""
        is_differentiable = self.dtype.is_floating_point or self.dtype.is_complex
        return (
            is_differentiable and self.op.supports_autograd and self.dtype in self.op.supported_backward_dtypes("cuda")
        )

    def worth(self, sample: Sample) -> Any:
        """Without random numbers if there is such a sample, since those have no formula."""
        return not sample.kwargs.get("dropout_p"), super().worth(sample)

    def check_sample(self, sample: Sample) -> None:
        self.way = self.find_way(sample)
        self.checker.check("forward", sample, partial(self.forward, sample))

    def forward(self, sample: Sample, plain: Any = None) -> Observation:
        if self.is_lacking:
            return self._by_wider(self.values(self._reference_or_device), sample, chain=False)
        return self._by_cpu(super().forward, self.values(self._reference_or_device), sample, chain=False)

    def backward(self, sample: Sample) -> Observation:
        if self.is_lacking:
            return self._by_wider(self.gradients(sample, self._reference_or_device), sample, chain=True)
        return self._by_cpu(super().backward, self.gradients(sample, self._reference_or_device), sample, chain=True)

    def _by_cpu(
        self, check: Callable[..., Any], call: Callable[..., Any], sample: Sample, *, chain: bool
    ) -> Observation:
        """By the CPU in the dtype, unless it does not support it although the database has it."""
        try:
            return check(sample)
        except Difference as difference:
            if "the CPU refuses with NotImplementedError" not in str(difference):
                raise
        return self._by_wider(call, sample, chain=chain)

    def _by_wider(self, call: Callable[..., Any], sample: Sample, *, chain: bool) -> Observation:
        rules = self.rules.but(near=False, strides=False, aliases=False, chain=chain)
        seen = self.checker.both(call, sample.arguments, rules=rules)
        if seen.error is not None:  # the device's is the same, so that nothing was compared
            raise seen.error
        return seen

    def _reference_or_device(self, input: Any, *args: Any, **kwargs: Any) -> Any:
        leaves = tree_leaves((input, args, kwargs))
        if any(leaf.device.type != "cpu" for leaf in leaves if isinstance(leaf, torch.Tensor)):
            results = self.op(input, *args, **kwargs)
            return self._plain(results[0] if self.op.full_name in _ATTENTION else results)
        wide_input, wide_args, wide_kwargs = tree_map(self._wide, (input, args, kwargs))
        results = _FORMULAS.get(self.op.full_name, self.op)(wide_input, *wide_args, **wide_kwargs)
        return tree_map(self._narrow, self._plain(results))

    def _wide(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.dtype):
            return _WIDE.get(leaf, leaf)
        is_narrow = isinstance(leaf, torch.Tensor) and leaf.dtype is self.dtype
        return leaf.to(_WIDE.get(leaf.dtype, leaf.dtype)) if is_narrow else leaf

    def _narrow(self, leaf: Any) -> Any:
        return leaf.to(_NARROW.get((self.dtype, leaf.dtype), leaf.dtype)) if isinstance(leaf, torch.Tensor) else leaf

    def _plain(self, results: Any) -> Any:
        """Of integers and bools the value counts: the wider computation has another dtype."""
        if self.dtype.is_floating_point or self.dtype.is_complex:
            return results
        return tree_map(lambda leaf: leaf.double() if isinstance(leaf, torch.Tensor) else leaf, results)


class CudaDtypesSuite(OpsSuite):
    """One case is an operator of ``op_db`` and a dtype in which CUDA has it."""

    name = "cuda-dtypes"
    checks = _Pair
    foreach = False

    @cached_property
    def dtypes(self) -> list[str]:  # type: ignore[override]
        found = {dtype for op in self.entries.values() for dtype in op.dtypesIfCUDA}
        return sorted(str(dtype).removeprefix("torch.") for dtype in found)

    def has(self, entry: Any, dtype: torch.dtype) -> bool:
        """What CUDA supports."""
        return dtype in entry.dtypesIfCUDA


def _nansum(input: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> torch.Tensor:
    return torch.where(input.isnan(), 0, input).sum(dim, keepdim, dtype=dtype)


def _nanmean(input: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> torch.Tensor:
    return _nansum(input, dim, keepdim, dtype=dtype) / input.isnan().logical_not().sum(dim, keepdim)


def _histc(input: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> torch.Tensor:
    """In whole numbers, as CUDA has it."""
    low, high = int(min), int(max)
    values = [int(value) for value in input.flatten().tolist()]
    if low == high and values:
        low, high = _range(values)
    counts = [0] * bins
    for value in values:
        if low <= value <= high:
            place = (value - low) * bins // (high - low)
            counts[place if place < bins else bins - 1] += 1
    return torch.tensor(counts, dtype=input.dtype)


def _range(values: list[int]) -> tuple[int, int]:
    low, high = sorted(values)[0], sorted(values)[-1]
    return (low, high) if low < high else (low - 1, high + 1)


def _flash(query: Any, key: Any, value: Any, *, is_causal: bool, scale: float | None = None, **_: Any) -> Any:
    """Causal up to the last key."""
    return _attention(query, key, value, key.shape[1] - query.shape[1] if is_causal else None, None, scale)


def _efficient(
    query: Any, key: Any, value: Any, *, bias: Any, custom_mask_type: int, scale: Any = None, **_: Any
) -> Any:
    edge = (None, 0, key.shape[1] - query.shape[1])[custom_mask_type]
    return _attention(query, key, value, edge, bias, scale)


def _attention(query: Any, key: Any, value: Any, edge: int | None, bias: Any, scale: float | None) -> Any:
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if bias is not None:
        scores = scores + bias
    if edge is not None:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 + edge)
        scores = scores.masked_fill(hidden, -torch.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2)


_FORMULAS: dict[str, Callable[..., Any]] = {
    "nansum": _nansum,
    "nanmean": _nanmean,
    "histc": _histc,
    "torch.ops.aten._flash_attention_forward": _flash,
    "torch.ops.aten._efficient_attention_forward": _efficient,
}
_ATTENTION = frozenset(name for name in _FORMULAS if "attention" in name)
