"""A module of Triton's target-independent IR: functions of blocks of operations, and values with their types and users.

:mod:`torch_backplane.triton.reader` makes it from the text. Nothing here needs Triton.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Type:
    """Of a value: a scalar, or a block of elements of a scalar type."""

    elem: str
    """``i1`` to ``i64``, ``f16``, ``bf16``, ``f32``, ``f64``, ``f8E4M3FN`` ...; ``ptr`` for pointers."""
    shape: tuple[int, ...] | None = None
    """None for a scalar. The lengths of a block are powers of two."""
    pointee: Type | None = None
    """What a pointer points to, a scalar type."""

    @property
    def is_block(self) -> bool:
        """Whether it is of several elements, perhaps of one."""
        return self.shape is not None

    @property
    def is_pointer(self) -> bool:
        """Whether elements are addresses."""
        return self.pointee is not None

    @property
    def is_float(self) -> bool:
        """Whether elements are floating-point numbers."""
        return self.elem[0] in "fb"

    @property
    def bits(self) -> int:
        """Of one element in memory."""
        if self.is_pointer:
            return 64
        if self.elem.startswith("f8"):
            return 8
        return 8 if self.elem == "i1" else int(self.elem.lstrip("bfi"))

    @property
    def lengths(self) -> tuple[int, ...]:
        """The shape; () of a scalar."""
        return self.shape or ()

    @property
    def size(self) -> int:
        """How many elements there are, 1 for a scalar."""
        return math.prod(self.lengths)

    @property
    def scalar(self) -> Type:
        """Of an element."""
        return Type(self.elem, None, self.pointee)

    def blocked(self, shape: tuple[int, ...] | None) -> Type:
        """Of elements of this type in a block of a shape."""
        return Type(self.elem, shape, self.pointee)


@dataclass(eq=False)
class Value:
    """A result of an operation, or an argument of a block."""

    type: Type
    hint: str = ""
    """The user's name for it; "" if there is none."""
    op: Op | None = None
    block: Block | None = None
    """The block whose argument it is, where ``op`` is None."""
    users: list[Op] = field(default_factory=list)

    @property
    def home(self) -> Block:
        """The block in which it is defined."""
        found = self.block if self.op is None else self.op.block
        assert found is not None
        return found


@dataclass(eq=False)
class Op:
    """One operation."""

    name: str
    operands: list[Value] = field(default_factory=list)
    results: list[Value] = field(default_factory=list)
    body: str = ""
    """The text between the name and the types: operands, and attributes in the operation's own syntax."""
    attributes: dict[str, str] = field(default_factory=dict)
    regions: list[list[Block]] = field(default_factory=list)
    targets: list[tuple[str, list[Value]]] = field(default_factory=list)
    """Of a branch: the labels of the blocks that may follow, and what they take."""
    block: Block | None = None
    position: int = 0
    """In its block."""
    location: str = ""
    """``file:line`` of the user's kernel; "" if the text has none."""

    @property
    def dialect(self) -> str:
        """``arith`` of ``arith.addf``."""
        return self.name.partition(".")[0]

    @property
    def short(self) -> str:
        """``addf`` of ``arith.addf``."""
        return self.name.partition(".")[2]

    @property
    def result(self) -> Value:
        """Its first one."""
        return self.results[0]

    def integer(self, attribute: str) -> int:
        """Of an attribute that is a number."""
        return int(self.attributes[attribute])

    def integers(self, attribute: str) -> list[int]:
        """Of an array attribute."""
        return [int(part) for part in self.attributes[attribute].split(",") if part.strip()]

    @property
    def body_blocks(self) -> Iterator[Block]:
        """The blocks of all its regions."""
        for region in self.regions:
            yield from region


@dataclass(eq=False)
class Block:
    """Operations one after the other, the last of which says what follows."""

    parent: Op | None = None
    """The operation whose region it is in; None in a function."""
    arguments: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    label: str = ""

    def append(self, op: Op) -> None:
        """Add an operation at the end."""
        op.block, op.position = self, len(self.ops)
        self.ops.append(op)


@dataclass(eq=False)
class Function:
    """A kernel, or what one calls."""

    name: str
    is_public: bool
    results: list[Type]
    blocks: list[Block]

    @property
    def arguments(self) -> list[Value]:
        """Those of its first block."""
        return self.blocks[0].arguments


@dataclass
class Module:
    """What Triton compiles at once."""

    functions: dict[str, Function]

    @property
    def kernel(self) -> Function:
        """The function that is launched."""
        found = [function for function in self.functions.values() if function.is_public]
        if len(found) != 1:
            raise ValueError(f"a module of TTIR has one public function; this one has {len(found)}")
        return found[0]

    def called(self, op: Op) -> Function:
        """The function of a ``tt.call``."""
        name = re.search(r'@("[^"]*"|[^(]+)\(', op.body)
        assert name is not None
        return self.functions[name.group(1).strip('"')]


def ancestor(op: Op | None, block: Block) -> Op | None:
    """The operation of ``block`` that is ``op`` or has it in a region; None if there is none."""
    while op is not None and op.block is not block:
        op = op.block.parent if op.block else None
    return op
