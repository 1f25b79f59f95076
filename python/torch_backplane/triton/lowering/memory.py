"""Loads and stores, of scalars and of blocks; the program's place; barriers."""

from __future__ import annotations

from torch_backplane.triton import words
from torch_backplane.triton.lowering import addresses, hazards, splits
from torch_backplane.triton.lowering.forms import Scalar
from torch_backplane.triton.lowering.nest import Nest
from torch_backplane.triton.lowering.state import Lowering, lowers
from torch_backplane.triton.ttir import Op
from torch_backplane.triton.words import register


@lowers("tt.load")
def _load_scalar(low: Lowering, op: Op) -> None:
    type = op.result.type
    value = words.load(type, f"{low.scalar(op.operands[0])}[0]")
    if len(op.operands) > 1:
        other = low.scalar(op.operands[2]) if len(op.operands) > 2 else f"({register(type)})0"
        value = f"{low.scalar(op.operands[1])} ? {value} : {other}"
    low.define(op.result, value)


@lowers("tt.store")
def _store(low: Lowering, op: Op) -> None:
    pointers, value, *masks = op.operands
    low.barrier()
    if not pointers.type.is_block:
        element = words.store(value.type, low.scalar(value))
        guards = [low.scalar(mask) for mask in masks] + (["BP_ITEM == 0"] if low.items > 1 else [])
        guard = f"if ({' && '.join(guards)}) " if guards else ""
        low.text.line(f"{guard}{low.scalar(pointers)}[0] = {element};")
        low.barrier()
        return
    hazards.keep_loads(low, pointers, value, *masks)
    nest = Nest(low, pointers.type.lengths)
    if masks and low.items == 1 and nest.heads:
        splits.bound(nest, masks[0], nest.index)
    condition = nest.element(masks[0], nest.index) if masks else "1"
    element = words.store(value.type, nest.element(value, nest.index))
    statement = f"{addresses.place(nest, pointers, nest.index)} = {element};"
    if condition != "1":
        statement = f"if ({condition}) {statement}"
        nest.parallel = False  # GCC 12 loses stores of a loop that is said to be parallel and stores conditionally
    nest.statements[nest.innermost].append(statement)
    nest.close()
    low.barrier()


@lowers("tt.unsplat")
def _only_element(low: Lowering, op: Op) -> None:
    low.define(op.result, f"{low.keep(op.operands[0])}[0]")


@lowers("tt.get_program_id")
def _program(low: Lowering, op: Op) -> None:
    low.forms[op.result] = Scalar(f"program_{op.body.strip()[0]}")


@lowers("tt.get_num_programs")
def _programs(low: Lowering, op: Op) -> None:
    low.forms[op.result] = Scalar(f"programs_{op.body.strip()[0]}")


@lowers("gpu.barrier", "ttg.barrier", "ttg.local_barrier")
def _barrier(low: Lowering, op: Op) -> None:
    if low.items > 1:
        low.text.line("BP_BARRIER();")


@lowers("llvm.intr.assume")
def _nothing(low: Lowering, op: Op) -> None:
    pass
