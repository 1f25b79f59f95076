"""Atomic operations on memory: the dialect's words where it has them, else a loop of compare and swap.

All are at least as strong as the text asks: a barrier stands on either side.
"""

from __future__ import annotations

from collections.abc import Callable

from torch_backplane.triton import words
from torch_backplane.triton.lowering import addresses, hazards
from torch_backplane.triton.lowering.forms import Array
from torch_backplane.triton.lowering.nest import Nest
from torch_backplane.triton.lowering.state import Lowering, lowers
from torch_backplane.triton.ttir import Op, Type, Value
from torch_backplane.triton.words import memory, register

_WORDS = {
    ("fadd", "f32"): "BP_ATOMIC_ADD_F32",
    ("add", "i32"): "BP_ATOMIC_ADD_I32",
    ("add", "i64"): "BP_ATOMIC_ADD_I64",
}
"""They return nothing."""
_NEW = {
    "fadd": "x + v",
    "add": "x + v",
    "max": "x > v ? x : v",
    "min": "x < v ? x : v",
    "umax": "({U})x > ({U})v ? x : v",
    "umin": "({U})x < ({U})v ? x : v",
    "and": "x & v",
    "or": "x | v",
    "xor": "x ^ v",
    "exch": "v",
}
_SWAP = """BP_FN {T} {name}(BP_GLOBAL {M}* p, {T} v{more}) {{
  BP_GLOBAL {W}* const word = (BP_GLOBAL {W}*){word};
  const u32 shift = {shift};
  {W} before = *word;
  for (;;) {{
    const {B} old = ({B})(before >> shift);
    const {T} x = {old};
    const {T} y = {new};
    const {W} bits = ({W})({B}){bits} << shift;
    const {W} seen = {unchanged}BP_ATOMIC_CAS_{width}(word, before, (before & ~(({W})({B})-1 << shift)) | bits);
    if (seen == before) return x;
    before = seen;
  }}
}}
"""
"""An operation on an element, which may be a part of a word of 32 bits. It returns the element before it."""


def _function(low: Lowering, name: str, type: Type, new: str, more: str = "", unchanged: str = "") -> str:
    is_part, width = type.bits < 32, 64 if type.bits == 64 else 32
    low.text.functions.setdefault(
        name,
        _SWAP.format(
            name=name,
            more=more,
            unchanged=unchanged,
            T=register(type),
            M=memory(type),
            W=f"u{width}",
            B=f"u{type.bits}",
            width=width,
            word="((u64)p & ~(u64)3)" if is_part else "p",
            shift="(u32)((u64)p & 3) * 8u" if is_part else "0",
            old=words.from_bits(type, "old"),
            new=new,
            bits=words.to_bits(type, "y"),
        ),
    )
    return name


def _new(kind: str, type: Type) -> str:
    """What an element x and an operand v become."""
    if not type.is_float:
        return _NEW[kind].replace("{U}", words.unsigned(type))
    if kind in ("and", "or", "xor"):
        x, v = (words.to_bits(type, operand) for operand in "xv")
        return words.from_bits(type, f"{x} {_NEW[kind][2]} {v}")
    return _NEW[kind]


@lowers("tt.atomic_rmw")
def _read_modify_write(low: Lowering, op: Op) -> None:
    kind = op.body.split(",")[0].strip()
    pointers, value, *masks = op.operands
    type, is_used = value.type.scalar, bool(op.result.users)
    word = None if is_used else _WORDS.get((kind, type.elem))
    if word is None:
        word = _function(low, f"bt_{kind}_{type.elem}", type, _new(kind, type))
    _write(low, op, pointers, masks, is_used, lambda place, element: f"{word}(&{place}, {element(value)})")


@lowers("tt.atomic_cas")
def _compare_and_swap(low: Lowering, op: Op) -> None:
    pointers, expected, desired = op.operands[:3]
    type = expected.type.scalar
    name = f"bt_cas_{type.elem}"
    _function(low, name, type, "v", f", {register(type)} expected", f"{_differs(type)} ? before : ")
    _write(
        low,
        op,
        pointers,
        [],
        bool(op.result.users),
        lambda place, element: f"{name}(&{place}, {element(desired)}, {element(expected)})",
    )


def _differs(type: Type) -> str:
    """Bits are compared, so that NaN is equal to itself and zeros are not."""
    return f"old != (u{type.bits}){words.to_bits(type, 'expected')}"


def _write(
    low: Lowering,
    op: Op,
    pointers: Value,
    masks: list[Value],
    is_used: bool,
    call: Callable[[str, Callable[[Value], str]], str],
) -> None:
    result = op.result
    low.barrier()
    if not pointers.type.is_block:
        guards = [low.scalar(mask) for mask in masks] + (["BP_ITEM == 0"] if low.items > 1 else [])
        guard = f"if ({' && '.join(guards)}) " if guards else ""
        text = call(f"{low.scalar(pointers)}[0]", low.scalar)
        if not is_used:
            low.text.line(f"{guard}{text};")
        elif low.items > 1:
            array = low.array(result.type, 1)
            low.text.line(f"{guard}{array}[0] = {text};")
            low.barrier()
            low.define(result, f"{array}[0]")
        else:
            name = low.text.name("old")
            low.text.line(f"{register(result.type)} {name} = 0;")
            low.text.line(f"{guard}{name} = {text};")
            low.define(result, name)
        low.barrier()
        return
    hazards.keep_loads(low, pointers, *op.operands[1:])
    array = low.array(result.type) if is_used else ""
    nest = Nest(low, pointers.type.lengths, parallel=False)
    condition = nest.element(masks[0], nest.index) if masks else "1"
    place = addresses.place(nest, pointers, nest.index)
    text = call(place, lambda value: nest.element(value, nest.index))
    if is_used:
        text = f"{array}[{nest.linear(result.type.lengths, nest.index)}] = {text}"
    nest.statements[nest.innermost].append(f"if ({condition}) {text};")
    nest.close()
    low.barrier()
    if is_used:
        low.forms[result] = Array(array)
