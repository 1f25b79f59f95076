"""The forms in which the lowering keeps a value."""

from __future__ import annotations

from dataclasses import dataclass

from torch_backplane.triton.ttir import Op, Value


@dataclass(frozen=True)
class Scalar:
    """One element for the whole program: a name, or a literal."""

    text: str


@dataclass(frozen=True)
class Array:
    """The elements of a block in order; with several items, in local memory."""

    name: str


@dataclass(frozen=True)
class Sum:
    """A block, and a scalar that is added to each element: what a loop carries that adds one number to it each turn."""

    first: Value
    added: str


@dataclass(frozen=True)
class Lazy:
    """Computed where an element is needed."""

    op: Op
    value: Value
    """Its result. What a branch, or a loop of one turn, passes on under another name has the form of this one."""


Form = Scalar | Array | Sum | Lazy
