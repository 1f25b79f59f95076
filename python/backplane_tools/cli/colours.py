"""The colours in which commands show how an operator runs."""

from __future__ import annotations

__all__ = ["COLOURS"]

# torch_backplane.ops.ways.WAYS, which cannot be imported before torch
COLOURS = {
    "refused": "bold red",
    "fallback": "yellow",
    "composite": "cyan",
    "portable": "green",
    "generated": "green",
    "native": "green",
}
