"""What every operator pays: memory, views, a small kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from benchmarks.row import ASYNC, COMPILED, INLINE, Result, Row
from benchmarks.timing import ratio, wait


def _names(device: str, **more: Any) -> dict[str, Any]:
    x = torch.ones(8, device=device)
    return {"torch": torch, "device": x.device, "x": x, "y": x.clone(), **more}


def _empty(count: int) -> Row:
    """Against the CPU's smallest, because a caching allocator's time must not depend on the size."""

    def measure(device: str) -> Result:
        statement = "torch.empty({}, device=device)"
        return ratio(statement.format(count), _names(device), _names("cpu"), cpu_statement=statement.format(8))

    return Row(f"torch.empty, {count * 4:,} bytes", measure, budget=1.1)


def _view(device: str) -> Result:
    return ratio("x.view(2, 4)", _names(device), _names("cpu"))


def _as_strided(device: str) -> Result:
    return ratio("x.as_strided((2, 2), (4, 1))", _names(device), _names("cpu"))


def _add(device: str) -> Result:
    """Time on the calling thread: the wait comes after each round."""
    return ratio("torch.add(x, y)", _names(device), _names("cpu"), after=wait)


def _add_number(device: str) -> Result:
    return ratio("x.add_(1)", _names(device), _names("cpu"), after=wait)


def _item(device: str) -> Result:
    names = [_names(where, scalar=torch.ones((), device=where)) for where in (device, "cpu")]
    return ratio("scalar.item()", *names)


def _token(where: str) -> Callable[[], torch.Tensor]:
    """A token through six layers of a Llama of 64, written out: some 200 operators, each of a microsecond or two."""
    generator = torch.Generator().manual_seed(0)

    def of(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(where)

    token, scale, cos, sin = of(1, 64), of(64), of(1, 64), of(1, 64)
    projections, out, up, gate, down = of(192, 64), of(64, 64), of(256, 64), of(256, 64), of(64, 256)
    keys, values, place = of(1, 4, 32, 16), of(1, 4, 32, 16), torch.tensor([7]).to(where)

    def turned(x: torch.Tensor) -> torch.Tensor:
        return (x * cos + torch.cat([-x[:, 32:], x[:, :32]], -1) * sin).view(1, 4, 1, 16)

    def step() -> torch.Tensor:
        x = token
        for _ in range(6):
            q, k, v = functional.linear(functional.rms_norm(x, (64,), scale), projections).chunk(3, -1)
            keys.index_copy_(2, place, turned(k))
            values.index_copy_(2, place, v.view(1, 4, 1, 16))
            seen = functional.scaled_dot_product_attention(turned(q), keys, values)
            x = x + functional.linear(seen.view(1, 64), out)
            y = functional.rms_norm(x, (64,), scale)
            x = x + functional.linear(functional.silu(functional.linear(y, up)) * functional.linear(y, gate), down)
        return x

    return torch.no_grad()(step)


def _small_operators(device: str) -> Result:
    return ratio("step()", *({"step": _token(where)} for where in (device, "cpu")), after=wait)


ROWS = [
    *(_empty(count) for count in (8, 1 << 18, 1 << 24)),
    Row("view", _view, budget=1.1),
    Row("as_strided", _as_strided, budget=1.1),
    Row("add, 8 floats", _add, budget=1.3),
    Row("add, 8 floats, calling thread", _add, budget=2.0, configurations=(ASYNC,)),
    Row("add_ of a number, 8 floats", _add_number, budget=1.3),
    Row("a token through 200 small operators", _small_operators, budget=1.2, configurations=(COMPILED,)),
    Row("item()", _item, configurations=(INLINE, ASYNC)),
]
