"""The samples of PyTorch's operator database as calls, and their variations: gaps in memory, lazy conjugates, outs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map


@dataclass(frozen=True)
class Sample:
    """One call of an operator: ``(input, *args, **kwargs)``, all tensors on the CPU."""

    index: int
    """Its number in the database's list, for messages."""
    input: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    for_gradient: Callable[[Any], Any] = lambda value: value
    """Makes of the results what has a unique gradient."""

    @classmethod
    def of(cls, index: int, sample: Any) -> Sample:
        """Take over a ``SampleInput``."""
        return cls(index, sample.input, sample.args, sample.kwargs, sample.output_process_fn_grad)

    @property
    def arguments(self) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """What to hand to a function of ``(input, args, kwargs)``."""
        return self.input, self.args, self.kwargs

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Sample:
        """The sample with every tensor replaced."""
        new = tree_map(lambda leaf: function(leaf) if isinstance(leaf, torch.Tensor) else leaf, self.arguments)
        return replace(self, input=new[0], args=new[1], kwargs=new[2])

    def __str__(self) -> str:
        parts = [_brief(self.input), *map(_brief, self.args), *(f"{k}={_brief(v)}" for k, v in self.kwargs.items())]
        return f"sample {self.index} ({', '.join(parts)})"[:240]


def _brief(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        gaps = "" if value.layout is not torch.strided or value.is_contiguous() else f" strides {list(value.stride())}"
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}{gaps}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_brief, value))}]"
    return repr(value)


def with_gaps(sample: Sample) -> Sample:
    """The same values, no tensor contiguous."""
    from torch.testing._internal.common_utils import noncontiguous_like

    return sample.map(lambda t: noncontiguous_like(t) if t.layout is torch.strided else t)


def reordered(sample: Sample) -> Sample | None:
    """The same values without gaps, dimensions in another order in memory: channels last, or the first one innermost.

    None if that changes nothing.
    """

    def changed(tensor: torch.Tensor) -> torch.Tensor:
        order = [0, *range(2, tensor.dim()), 1] if tensor.dim() in (4, 5) else [*range(tensor.dim())][::-1]
        copy = torch.empty_permuted(tensor.shape, order, dtype=tensor.dtype).copy_(tensor.detach())
        return copy.requires_grad_(tensor.requires_grad)

    return _changed(sample, lambda t: sum(size > 1 for size in t.shape) >= 2, changed)


def odd_bools(sample: Sample) -> Sample | None:
    """The same values, True as a byte that is not 1: of a view of uint8. None if nothing in it is bool."""

    def changed(tensor: torch.Tensor) -> torch.Tensor:
        bytes = torch.randint(2, 256, tensor.shape, dtype=torch.uint8) * tensor
        return torch.empty_like(tensor, dtype=torch.uint8).copy_(bytes).view(torch.bool)

    return _changed(sample, lambda t: t.dtype is torch.bool, changed)


def lazy_conjugates(sample: Sample) -> Sample | None:
    """The same values, as conjugate views of their conjugates. None if nothing in it is complex."""
    return _changed(sample, lambda t: t.is_complex() and not t.requires_grad, lambda t: t.conj_physical().conj())


def lazy_negatives(sample: Sample) -> Sample | None:
    """The same values, as negative views of their negatives. None if nothing in it has a sign."""

    def is_signed(tensor: torch.Tensor) -> bool:
        return (tensor.is_complex() or tensor.is_floating_point()) and not tensor.requires_grad

    return _changed(sample, is_signed, lambda t: torch._neg_view(torch.neg(t)))


def _changed(
    sample: Sample, takes: Callable[[torch.Tensor], bool], change: Callable[[torch.Tensor], torch.Tensor]
) -> Sample | None:
    """The sample with some of its strided tensors changed; None if there are none of them."""
    found = [t for t in tree_leaves(sample.arguments) if _takes(t, takes)]
    return sample.map(lambda t: change(t) if _takes(t, takes) else t) if found else None


def _takes(leaf: Any, takes: Callable[[torch.Tensor], bool]) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and takes(leaf)


OUTS_WITH_GAPS = ("out with gaps", "transposed out")


def outs(results: tuple[torch.Tensor, ...]) -> Iterator[tuple[str, tuple[torch.Tensor, ...]]]:
    """Tensors for ``out=``: (what they are, one for each of the results that the operator returns)."""
    yield "out of the result's strides", tuple(_filled(torch.empty_like(r)) for r in results)
    yield "empty out", tuple(r.new_empty(0) for r in results)
    yield "out of the wrong size", tuple(_filled(r.new_empty([n + 1 for n in r.shape] or [3])) for r in results)
    yield "out with gaps", tuple(_filled(r.new_empty([*r.shape, 2]))[..., 0] for r in results)
    yield "transposed out", tuple(_filled(r.new_empty(r.shape[::-1])).permute([*range(r.dim())][::-1]) for r in results)

    for dtype in (torch.int64, torch.float64, torch.complex128):  # the operator casts to it, or refuses
        if any(r.dtype is not dtype for r in results):
            name = str(dtype).removeprefix("torch.")
            yield f"{name} out", tuple(_filled(r.new_empty(r.shape, dtype=dtype)) for r in results)


def _filled(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.fill_(1)
