"""Operators that draw random numbers: reproducible, and of the CPU's distribution."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from torch_backplane.testing.compare import Difference, Rules, compare
from torch_backplane.testing.observe import Observation, tensors

_DRAWS = 256
_SEEDS = 8
_ALPHA = 1e-6  # how often the test rejects two equal distributions


def check_random(
    cpu: Callable[[int], Observation], found: Callable[[int], Observation], device: torch.device, *, distribution: bool
) -> None:
    """Raise Difference unless the device draws as the CPU does.

    Args:
        cpu: the call on the CPU, by the seed.
        found: the call on the device.
        device: where that is.
        distribution: whether the values are compared too, over many draws.
    """
    first, again = found(1), found(1)
    if error := first.error or again.error:
        raise Difference(f"raised {type(error).__name__}: {error}, sometimes") from error
    rules = Rules(strides=False, aliases=False)
    for x, y in zip(tensors(first.value), tensors(again.value), strict=True):
        try:
            compare(x.detach().cpu(), y.detach().cpu(), torch.device("cpu"), rules, "result")
        except Difference as error:
            raise Difference(f"two calls with one seed differ: {error}") from error
    cpu_varies = len({_numbers(cpu(seed)) for seed in range(_SEEDS)})
    if cpu_varies >= _SEEDS // 2 and len({_numbers(found(seed)) for seed in range(_SEEDS)}) == 1:
        raise Difference(f"{_SEEDS} seeds give the same numbers")
    if not distribution or cpu_varies == 1:
        return
    for i, tensor in enumerate(tensors(cpu(1).value)):
        if not tensor.numel():
            continue
        worst = distance(*(_draws(draw, i) for draw in (cpu, found)))
        # Elements of one draw may depend on each other, as in a dropout of whole channels: only the draws count.
        limit = math.sqrt(-math.log(_ALPHA / 2) / 2) * math.sqrt(2 / _DRAWS)
        if worst > limit:
            raise Difference(
                f"distribution: distance {worst:.2f} from the CPU's over {_DRAWS} draws, {limit:.2f} allowed"
            )


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest distance between the distribution functions of two sorted samples (Kolmogorov-Smirnov).

    Numbers closer to each other than a thousandth of the largest are equal: a decomposition of random projections has
    results that are the same but for their rounding.
    """
    both = torch.cat([a, b])
    finite = both[both.abs() < 1e299]
    near = 1e-3 * float(finite.abs().max()) if finite.numel() else 0.0
    points = torch.cat([both, both + near])

    def excess(x: torch.Tensor, y: torch.Tensor) -> float:
        below_x = torch.searchsorted(x, points - near, right=True) / x.numel()
        below_y = torch.searchsorted(y, points + near, right=True) / y.numel()
        return float((below_x - below_y).max())

    return max(excess(a, b), excess(b, a), 0.0)


def _draws(draw: Callable[[int], Observation], i: int) -> torch.Tensor:
    """The sorted numbers of result i, of all draws."""
    return torch.cat([_flat(tensors(draw(seed).value)[i]) for seed in range(_DRAWS)]).sort().values


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach().cpu()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.to(torch.complex128))
    return tensor.flatten().double().nan_to_num(nan=1e300)


def _numbers(seen: Observation) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(_flat(tensor).tolist()) for tensor in tensors(seen.value))
