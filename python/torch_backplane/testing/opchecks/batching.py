"""The operator under torch.vmap: against a loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product

import torch

from torch_backplane.testing.opchecks.call import Call, NothingToCheckError

_BATCH = 3


def vmap(call: Call) -> None:
    """torch.vmap returns what a loop returns, with the batch first and last, of all tensors and of the first only."""
    call = call.detached().copy()
    if not call.tensors:
        raise NothingToCheckError("no argument is a tensor")
    if call.is_random:
        raise NothingToCheckError("its random numbers differ in a batch")
    if torch.Tag.data_dependent_output in call.op.tags:
        raise NothingToCheckError("its result is a number, which depends on values")
    has_rule = call.has_kernel("FuncTorchBatched")
    every = list(range(len(call.tensors)))
    # Torch writes no batch into a tensor without one.
    which = [every] if len(every) == 1 or any(call.is_written()) else [every, every[:1]]
    for places, in_front in product(which, (True, False)):
        try:
            _compare(call, places, in_front)
        except RuntimeError as error:
            if has_rule or "Batching rule not implemented" not in str(error):
                raise
            raise NothingToCheckError("it has no batching rule, and torch cannot loop over it") from error


def _compare(call: Call, places: list[int], in_front: bool) -> None:
    slices = [[_varied(t, i) if place in places else t for i in range(_BATCH)] for place, t in enumerate(call.tensors)]
    loop = [call.with_tensors(list(tensors)).run() for tensors in zip(*slices, strict=True)]
    if any(len({result.shape for result in results}) > 1 for results in zip(*loop, strict=True)):
        raise NothingToCheckError("the shape of its result depends on values")
    expected = [torch.stack(results) for results in zip(*loop, strict=True)]
    batched: list[torch.Tensor] = []
    dims: list[int | None] = []
    for place, tensors in enumerate(slices):
        if place not in places:
            batched.append(tensors[0])
            dims.append(None)
            continue
        dim = 0 if in_front else tensors[0].dim()
        batched.append(torch.stack(tensors).movedim(0, dim))  # contiguous slices, wherever the batch is
        dims.append(dim)
    with _without_warning():
        found = torch.vmap(lambda *tensors: tuple(call.with_tensors(list(tensors)).run()), tuple(dims))(*batched)
    what = f"torch.vmap, in_dims=({', '.join(map(str, dims))}), against a loop"
    call.close(list(found), expected, what)


@contextmanager
def _without_warning() -> Iterator[None]:
    """Without torch's warning that it loops where there is no rule."""
    display = torch._C._functorch._set_vmap_fallback_warning_enabled  # type: ignore[attr-defined]
    display(False)
    try:
        yield
    finally:
        display(True)


def _varied(tensor: torch.Tensor, i: int) -> torch.Tensor:
    """One slice of a batch; they differ, and stay where the operator is defined: indices are not touched."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return tensor.clone()
    return (tensor * (1 - i / 4)).to(tensor.dtype)
