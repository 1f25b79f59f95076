"""All families of steps, with how often each comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fuzz import layers, memory, mistakes, pointwise, tensors

if TYPE_CHECKING:
    from fuzz.grammar import Grammar


def streams(g: Grammar) -> None:
    """Waiting, asking, giving memory back."""
    what = g.choice(["device", "stream", "query", "query", "empty_cache"])
    g.add({"sync": what, "on": g.choice(g.places), "stream": g.random.randrange(3)})


FAMILIES: dict[str, tuple[Callable[[Grammar], None], float]] = {
    "make": (tensors.make, 2),
    "unary": (pointwise.unary, 6),
    "binary": (pointwise.binary, 9),
    "bool_bytes": (pointwise.bool_bytes, 1.5),
    "reduce": (pointwise.reduce, 6),
    "view": (tensors.view, 9),
    "shapes": (tensors.shapes, 4),
    "index": (tensors.index, 6),
    "cast": (tensors.cast, 4),
    "matrix": (layers.matrix, 4),
    "network": (layers.network, 2),
    "gradient": (layers.gradient, 2),
    "chance": (layers.chance, 2),
    "lazy": (memory.lazy, 5),
    "copy": (memory.copy, 5),
    "overlap": (memory.overlap, 1.5),
    "resize": (memory.resize, 3),
    "clones": (memory.clones, 4),
    "mistake": (mistakes.mistake, 3),
    "shortage": (mistakes.shortage, 1.5),
    "freed": (mistakes.freed, 1),
    "streams": (streams, 2),
}

FEATURES = [*FAMILIES, "devices", "threads"]
"""What a run may be asked to draw from, or to leave out."""
