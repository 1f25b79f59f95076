"""The sparse samples of PyTorch's operator database, and dense ones made sparse where it has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.utils._pytree import tree_map

from backplane_tools.conformance.samples import Sample

# How torch's own tests of sparse operators make their arguments.
_LAYOUTS: dict[torch.layout, Callable[[torch.Tensor], torch.Tensor]] = {
    torch.sparse_coo: lambda t: t.to_sparse(),
    torch.sparse_csr: lambda t: t.to_sparse_csr(),
    torch.sparse_csc: lambda t: t.to_sparse_csc(),
    torch.sparse_bsr: lambda t: t.to_sparse_bsr((1, 1)),
    torch.sparse_bsc: lambda t: t.to_sparse_bsc((1, 1)),
}
_DENSE = 8  # samples that are made sparse


def sparse_samples(op: Any, dtype: torch.dtype, dense: list[Sample], *, requires_grad: bool) -> Iterator[Sample]:
    """Yield an operator's samples in each sparse layout that it supports according to the database, on the CPU.

    Args:
        op: the ``OpInfo``.
        dtype: of the samples.
        dense: its dense samples, whose inputs become sparse where the database has no samples of a layout.
        requires_grad: whether the inputs do.
    """
    for layout, to_layout in _LAYOUTS.items():
        if not op.supports_sparse_layout(layout):
            continue
        name = str(layout).removeprefix("torch.")
        try:
            found = list(getattr(op, f"sample_inputs_{name}")("cpu", dtype, requires_grad=requires_grad))
        except NotImplementedError:  # no sample function specified
            for sample in dense[:_DENSE]:
                if (
                    isinstance(sample.input, torch.Tensor)
                    and (made := _made_sparse(sample.input, to_layout)) is not None
                ):
                    yield replace(sample, input=made, for_gradient=_to_dense)
            continue
        for i, sample in enumerate(found):
            yield replace(Sample.of(i, sample), for_gradient=_to_dense)


def _made_sparse(tensor: torch.Tensor, to_layout: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor | None:
    """The tensor in another layout; None for what has none in it, as a vector in a compressed one."""
    try:
        with torch.no_grad():
            return to_layout(tensor.detach()).requires_grad_(tensor.requires_grad)
    except (IndexError, RuntimeError):
        return None


def _to_dense(value: Any) -> Any:
    """The results as dense tensors, whose gradients are asked for."""
    return tree_map(
        lambda t: t.to_dense() if isinstance(t, torch.Tensor) and t.layout is not torch.strided else t, value
    )
