"""The arguments that a kernel's pointers come from: through which of them it reads and writes.

A pointer that is loaded from memory, or made from a number, leads to no argument that is known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from torch_backplane.triton.ttir import Block, Module, Op, Value

_READS = frozenset(("tt.load", "tt.atomic_rmw", "tt.atomic_cas"))
_WRITES = frozenset(("tt.store", "tt.atomic_rmw", "tt.atomic_cas"))
_UNKNOWN = frozenset((*_READS, "tt.int_to_ptr"))
"""What makes a pointer that may lead anywhere."""


class Pointers:
    """Of a module: the arguments of its kernel that values may come from."""

    def __init__(self, module: Module) -> None:
        arguments = [value for value in module.kernel.arguments if value.type.is_pointer]
        self._sources: defaultdict[Value, set[int]] = defaultdict(set)
        self._sources.update({pointer: {i} for i, pointer in enumerate(arguments)})
        ops = [op for function in module.functions.values() for op in _operations(function.blocks)]
        for op in ops:
            if op.name in _UNKNOWN and op.result.type.is_pointer:
                self._sources[op.result].add(-1)
        flows = [pair for op in ops for pair in _flows(module, op)]
        changed = True
        while changed:
            changed = False
            for value, result in flows:
                if not self._sources[value] <= self._sources[result]:
                    self._sources[result] |= self._sources[value]
                    changed = True
        read, written = (
            {i for op in ops if op.name in names for i in self._sources[op.operands[0]]} for names in (_READS, _WRITES)
        )
        self.accesses = "".join("-rwb"[(i in read) + 2 * (i in written)] for i in range(len(arguments)))
        """Of each pointer among the arguments: ``r``, ``w``, ``b`` for both, ``-`` for neither."""

    def may_overlap(self, one: Value, other: Value) -> bool:
        """Whether two pointers may lead to one tensor. Different arguments are taken to be different tensors."""
        first, second = self._sources[one], self._sources[other]
        return not first or not second or -1 in first | second or bool(first & second)


def _operations(blocks: Sequence[Block]) -> Iterator[Op]:
    for block in blocks:
        for op in block.ops:
            yield op
            for region in op.regions:
                yield from _operations(region)


def _flows(module: Module, op: Op) -> Iterator[tuple[Value, Value]]:
    """The values that a pointer may come from, each with the value that it may become."""
    if op.name in _READS:
        return
    if op.name == "scf.for":
        yield from _each(op.operands[3:], op.regions[0][0].arguments[1:], op.results)
        yield from _each(op.regions[0][0].ops[-1].operands, op.regions[0][0].arguments[1:], op.results)
    elif op.name == "scf.while":
        (before, *_), (after, *_) = op.regions
        yield from _each(op.operands, before.arguments)
        yield from _each(after.ops[-1].operands, before.arguments)
        yield from _each(before.ops[-1].operands[1:], after.arguments, op.results)
    elif op.name == "scf.if":
        for region in op.regions:
            yield from _each(region[0].ops[-1].operands, op.results)
    elif op.name == "tt.call":
        function = module.called(op)
        yield from _each(op.operands, function.arguments)
        for block in function.blocks:
            if block.ops[-1].name == "tt.return":
                yield from _each(block.ops[-1].operands, op.results)
    elif not op.regions:
        for operand in op.operands:
            for result in op.results:
                yield operand, result
    for label, values in op.targets:
        (blocks,) = [function.blocks for function in module.functions.values() if op.block in function.blocks]
        yield from _each(values, next(block for block in blocks if block.label == label).arguments)


def _each(values: Sequence[Value], *becoming: Sequence[Value]) -> Iterator[tuple[Value, Value]]:
    for results in becoming:
        yield from zip(values, results, strict=False)
