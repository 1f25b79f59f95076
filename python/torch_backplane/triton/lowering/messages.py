"""``tl.device_print`` and ``tl.device_assert``: records that a kernel appends to a log, which the launch reads.

A log is an array of i64: how many records were wanted, then the records (:data:`RECORD` words each): the message's
number and the operand's, the program along each axis, the element's place, its bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch_backplane.triton import words
from torch_backplane.triton.lowering.nest import Nest
from torch_backplane.triton.lowering.state import Lowering, lowers
from torch_backplane.triton.reader import parts_of
from torch_backplane.triton.ttir import Op, Type, Value

RECORD = 7
RECORDS = 8192
"""A log has room for so many."""
_FUNCTION = f"""BP_FN void bt_log(BP_GLOBAL i64* log, i64 message, i64 operand, i32 x, i32 y, i32 z, i64 at, i64 bits)
{{
  BP_GLOBAL u32* const count = (BP_GLOBAL u32*)log;
  u32 number = *(BP_GLOBAL volatile u32*)count;
  for (u32 before = ~number; before != number;) {{
    before = number;
    number = BP_ATOMIC_CAS_32(count, before, before + 1u);
  }}
  if (number < {RECORDS}u) {{
    BP_GLOBAL i64* const record = log + 1 + (i64)number * {RECORD};
    record[0] = message;
    record[1] = operand;
    record[2] = x;
    record[3] = y;
    record[4] = z;
    record[5] = at;
    record[6] = bits;
  }}
}}
"""


@dataclass(frozen=True)
class Message:
    """What a print or an assertion of a kernel says."""

    text: str
    location: str
    types: tuple[str, ...]
    """Of the operands that are printed; none of an assertion."""
    shapes: tuple[tuple[int, ...], ...]
    is_hexadecimal: bool = False

    @property
    def is_assertion(self) -> bool:
        """Whether it is of ``device_assert``."""
        return not self.types


def _bits(type: Type, value: str) -> str:
    if type.elem in words.NARROW:
        return f"(i64)bp_as_u32({value})"
    return f"(i64){words.to_bits(type, value) if type.is_float or type.is_pointer else value}"


def _log(low: Lowering, number: int, operand: int, value: Value, condition: str) -> None:
    low.text.functions.setdefault("bt_log", _FUNCTION)
    call = f"bt_log(log_, {number}, {operand}, program_x, program_y, program_z, "
    low.barrier()
    if not value.type.is_block:
        text = low.scalar(value)
        guards = [condition.format(text)] + (["BP_ITEM == 0"] if low.items > 1 else [])
        low.text.line(f"if ({' && '.join(guards)}) {call}0, {_bits(value.type, text)});")
    else:
        nest = Nest(low, value.type.lengths, parallel=False)
        text = nest.element(value, nest.index)
        place = nest.linear(value.type.lengths, nest.index)
        statement = f"if ({condition.format(text)}) {call}{place}, {_bits(value.type, text)});"
        nest.statements[nest.innermost].append(statement)
        nest.close()
    low.barrier()


@lowers("tt.print")
def _print(low: Lowering, op: Op) -> None:
    text = parts_of(op.body.strip(), " {")[0].strip('"').strip().removesuffix(":")
    types = tuple(f"{value.type.elem}" for value in op.operands) or ("none",)
    shapes = tuple(value.type.lengths for value in op.operands) or ((),)
    signs = op.attributes.get("isSigned", "").split(",")
    if op.operands and not any(value.type.is_float for value in op.operands):
        types = tuple(
            f"u{kind[1:]}" if sign.strip() == "0" and kind[0] == "i" and kind != "i1" else kind
            for kind, sign in zip(types, signs, strict=False)
        )
    low.messages.append(Message(text, op.location, types, shapes, op.attributes.get("hex") == "true"))
    for number, value in enumerate(op.operands):
        _log(low, len(low.messages) - 1, number, value, "1")
    if not op.operands:
        low.text.functions.setdefault("bt_log", _FUNCTION)
        guard = "if (BP_ITEM == 0) " if low.items > 1 else ""
        number = len(low.messages) - 1
        low.text.line(f"{guard}bt_log(log_, {number}, 0, program_x, program_y, program_z, 0, 0);")


@lowers("tt.assert")
def _assert(low: Lowering, op: Op) -> None:
    text = parts_of(op.body, ",")[-1].strip().strip('"')
    low.messages.append(Message(text, op.location, (), (op.operands[0].type.lengths,)))
    _log(low, len(low.messages) - 1, 0, op.operands[0], "!{}")
