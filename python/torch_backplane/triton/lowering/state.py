"""The state of a lowering: the form of each value, arrays, and the operations that were read ahead of their time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch_backplane.triton import expressions
from torch_backplane.triton.lowering.deals import Deals
from torch_backplane.triton.lowering.forms import Array, Form, Lazy, Scalar, Sum
from torch_backplane.triton.lowering.nest import Nest
from torch_backplane.triton.lowering.text import Text
from torch_backplane.triton.lowering.uses import CHEAP, Uses, has_effects, is_lazy
from torch_backplane.triton.pointers import Pointers
from torch_backplane.triton.ttir import Block, Module, Op, Type, Value, ancestor
from torch_backplane.triton.words import Unsupported, keep, kept, literal, register

if TYPE_CHECKING:
    from torch_backplane.triton.lowering.messages import Message

_INSTEAD = {
    "tt.elementwise_inline_asm": "inline assembly is one chip's; write it with functions of tl, or of libdevice",
    "tt.descriptor_gather": "gathers of a descriptor are not supported; gather with tl.load of pointers",
    "tt.descriptor_scatter": "scatters of a descriptor are not supported; scatter with tl.store of pointers",
}
"""What to write in the place of an operation."""
BARRIER = "BT_BARRIER;"
Root = Callable[["Lowering", Op], None]
ROOTS: dict[str, Root] = {}
"""What writes each operation that is not lazy."""


def lowers(*names: str) -> Callable[[Root], Root]:
    """Registers what writes an operation."""

    def register_root(function: Root) -> Root:
        ROOTS.update(dict.fromkeys(names, function))
        return function

    return register_root


class Lowering:
    """Of one kernel, for groups of ``items``, in subgroups of ``subgroup`` (0: there are no shuffles)."""

    def __init__(self, module: Module, items: int, subgroup: int) -> None:
        self.module, self.items, self.subgroup = module, items, subgroup
        self.text = Text(depth=2)
        self.forms: dict[Value, Form] = {}
        self.uses = Uses(self.forms)
        self.pointers = Pointers(module)
        self.deals = Deals(module, items)
        self.dealt: dict[str, tuple[str, object]] = {}
        """With several items: of variables that are the place of an item's own element, the element's number among
        the item's, and how its block is dealt (:attr:`Deal.key`)."""
        self.arrays: dict[str, tuple[Type, int]] = {}
        """The arrays' elements. With several items placement.py declares them; with one, each is declared where it is
        needed."""
        self.carried: list[dict[int, Value]] = [{}]
        """Of the loop around: its blocks' arguments that are arrays, by the number of the result. See products.py."""
        self.messages: list[Message] = []
        """Of the kernel's prints and assertions."""
        self.calls: list[str] = []
        """The functions around."""
        self._is_together = True
        self.written: set[Op] = set()
        """Operations that were written with one before them."""
        self._loads: list[Value] = []  # lazy ones, that read memory as it was

    # ---- forms ----

    def form(self, value: Value) -> Form:
        """The form of a value."""
        return self.forms[value]

    def scalar(self, value: Value) -> str:
        """The text of a scalar."""
        form = self.forms[value]
        if not isinstance(form, Scalar):
            raise Unsupported("a block where a scalar is needed")
        return form.text

    def is_uniform(self, value: Value) -> bool:
        """Whether all elements of a block are one scalar that is no constant."""
        form = self.forms[value]
        while isinstance(form, Lazy) and form.op.name in ("tt.splat", "tt.broadcast", "tt.expand_dims"):
            value = form.op.operands[0]
            form = self.forms[value]
        return isinstance(form, Scalar) and not form.text.startswith("(")

    def define(self, value: Value, text: str) -> None:
        """Make a scalar a constant."""
        name = self.text.name(value.hint or "s")
        self.text.line(f"{register(value.type)} const {name} = {text};")
        self.forms[value] = Scalar(name)

    def keep_as(self, value: Value, array: str) -> None:
        """What every item has written into an array is the value."""
        self.forms[value] = Array(array)
        self.barrier()

    def expression(self, op: Op, operands: list[str]) -> str:
        """An elementwise operation; one without a division check where the divisor is a constant."""
        sign = {"arith.divsi": "/", "arith.remsi": "%"}.get(op.name)
        if sign and re.fullmatch(r"[1-9]\d*", operands[1]):
            return f"(({register(op.result.type)})({operands[0]} {sign} {operands[1]}))"
        with _located(op):
            return expressions.expression(op, operands)

    def splat_constant(self, op: Op) -> str:
        """The element of a block constant that has one."""
        return literal(op.result.type, re.sub(r"^dense<(.*)>$", r"\1", op.body))

    # ---- arrays ----

    def barrier(self) -> None:
        """A place for a barrier of the items, if there are several: placement.py keeps those that are needed."""
        if self.items > 1 and self._is_together and self.text.last != BARRIER:
            self.text.line(BARRIER)

    @contextmanager
    def apart(self) -> Iterator[None]:
        """What is written meanwhile, an item may execute without the others: there are no barriers in it."""
        was, self._is_together = self._is_together, False
        yield
        self._is_together = was

    def array(self, type: Type, size: int | None = None) -> str:
        """A new array for a block."""
        name, size = self.text.name("a"), type.size if size is None else size
        self.arrays[name] = (type.scalar, size)
        if self.items == 1:
            self.text.line(f"{kept(type)} {name}[{size}] BT_ALIGNED;")
        return name

    def write(self, array: str, value: Value) -> None:
        """Compute a block into an array."""
        if self.forms[value] == Array(array):
            return
        self.barrier()
        nest = Nest(self, value.type.lengths)
        self._store(nest, array, value, nest.element(value, nest.index))

    def keep(self, value: Value) -> str:
        """Compute a block into an array of its own, unless it is in one: the array."""
        form = self.forms[value]
        if isinstance(form, Array):
            return form.name
        if isinstance(form, Lazy) and self._is_same_array(form.op):
            name = self.keep(form.op.operands[0])
            self.forms[value] = Array(name)
            return name
        name = self.array(value.type)
        self.barrier()
        nest = Nest(self, value.type.lengths)
        text = nest.compute(form, nest.index) if isinstance(form, Lazy) else nest.element(value, nest.index)
        self._store(nest, name, value, text)
        self.forms[value] = Array(name)
        return name

    def _is_same_array(self, op: Op) -> bool:
        """Whether an operation leaves elements and order as they are, and its operand is in an array, or worth one."""
        source = op.operands[0] if op.operands else None
        is_same = op.name in ("tt.reshape", "tt.expand_dims")
        if source is None or not (is_same or (op.name == "arith.extf" and kept(source.type) == kept(op.result.type))):
            return False
        return isinstance(self.forms[source], Array) or self.uses.cost(source) > CHEAP

    def _store(self, nest: Nest, array: str, value: Value, text: str) -> None:
        place = f"{array}[{nest.linear(value.type.lengths, nest.index)}]"
        nest.statements[nest.innermost].append(f"{place} = {keep(value.type, text)};")
        nest.close()
        self.barrier()

    # ---- order ----

    def settle(self, value: Value) -> None:
        """Make a value cheap to compute in a region that needs it, perhaps many times."""
        form = self.forms.get(value)
        if isinstance(form, Sum):
            self.settle(form.first)
        if not isinstance(form, Lazy):
            return
        op = form.op
        follows = op.name in ("tt.broadcast", "tt.expand_dims", "tt.splat", "arith.addi", "arith.muli", "arith.extsi")
        follows = follows or op.name in ("arith.cmpi", "arith.andi") or value.type.is_pointer
        if self.uses.cost(value) <= CHEAP or follows:
            for operand in op.operands:
                self.settle(operand)
        else:
            self.keep(value)

    def settle_region(self, op: Op) -> None:
        """The same for all that the regions of an operation take from outside."""
        for value in dict.fromkeys(_taken(op)):
            if value in self.forms:
                self.settle(value)

    def _flush(self, op: Op) -> None:
        """Before memory changes: compute what was read before it and is needed behind it."""
        loads, self._loads = self._loads, []
        for value in loads:
            if not isinstance(self.forms.get(value), Lazy):
                continue
            home = value.home
            here = ancestor(op, home) or home.ops[-1]  # in a later block of the function
            if any(at > here.position for at in self.uses.roots(value)):
                self.keep(value)
            else:
                self._loads.append(value)

    @contextmanager
    def region(self, head: str = "") -> Iterator[None]:
        """A scope, behind which values have the forms that they had before it."""
        forms, loads = dict(self.forms), list(self._loads)
        with self.text.scope(head):
            yield
        self.forms.clear()
        self.forms.update(forms)
        self._loads = loads

    # ---- operations ----

    def block(self, block: Block, end: Callable[[Op], None]) -> None:
        """Write the operations of a block; ``end`` writes the last, which says what follows."""
        for op in block.ops[:-1]:
            self.operation(op)
        with _located(block.ops[-1]):
            end(block.ops[-1])

    def operation(self, op: Op) -> None:
        """Write the next operation of a block, or keep it as an expression."""
        if op in self.written:
            self.written.remove(op)
            return
        self.write_operation(op)

    def write_operation(self, op: Op) -> None:
        """The same where it is not the next one, or is written again."""
        with _located(op):
            self._operation(op)

    def _operation(self, op: Op) -> None:
        if is_lazy(op):
            if op.name == "arith.constant" and ("[" in op.body or '"' in op.body):
                self._listed_constant(op)
                return
            self.forms.update((result, Lazy(op, result)) for result in op.results)
            if op.name == "tt.load":
                self._loads.append(op.result)
            return
        if has_effects(op):
            self._flush(op)
        if op.name in ROOTS:
            ROOTS[op.name](self, op)
        elif op.name == "arith.constant":
            self.forms[op.result] = Scalar(literal(op.result.type, op.body))
        elif op.name in expressions.HANDLERS:
            self.define(op.result, self.expression(op, [self.scalar(operand) for operand in op.operands]))
        else:
            raise Unsupported(_INSTEAD.get(op.name, "the kernel dialect has no such operation"))

    def _listed_constant(self, op: Op) -> None:
        """A block constant of several elements, listed or as bytes in hexadecimal."""
        type, inside = op.result.type, op.body[len("dense<") : -1]
        if inside.startswith('"0x'):
            raw, width = bytes.fromhex(inside[3:-1]), type.bits // 8
            bits = [int.from_bytes(raw[at : at + width], "little") for at in range(0, len(raw), width)]
            elements = [hex(one) if type.is_float else str(one - (one >> (type.bits - 1) << type.bits)) for one in bits]
        else:
            elements = re.findall(r"[^\[\],\s]+", inside)
        array = self.array(type)
        for place, element in enumerate(elements):
            self.text.line(f"{array}[{place}] = {literal(type, element)};")
        self.keep_as(op.result, array)


@contextmanager
def _located(op: Op) -> Iterator[None]:
    """What is not supported names the operation, or one in it that is lazy."""
    try:
        yield
    except Unsupported as error:
        error.at = error.at or (op.location, op.name)
        raise


def _taken(op: Op) -> Iterator[Value]:
    """The values that the operations in its regions use and that come from outside."""
    inside: set[Value] = set()
    used: list[Value] = []
    stack = list(op.body_blocks)
    while stack:
        block = stack.pop()
        inside.update(block.arguments)
        for inner in block.ops:
            inside.update(inner.results)
            used.extend(inner.operands)
            for _, values in inner.targets:
                used.extend(values)
            stack.extend(inner.body_blocks)
    return (value for value in used if value not in inside)
