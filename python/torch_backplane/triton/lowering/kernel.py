"""The text of a kernel around the lowering of its function: the signature, and the walk over the programs of a grid."""

from __future__ import annotations

from dataclasses import dataclass

from torch_backplane.triton import words
from torch_backplane.triton.lowering.control import branch
from torch_backplane.triton.lowering.forms import Scalar
from torch_backplane.triton.lowering.messages import Message
from torch_backplane.triton.lowering.placement import Placement
from torch_backplane.triton.lowering.state import Lowering
from torch_backplane.triton.reader import read
from torch_backplane.triton.ttir import Type
from torch_backplane.triton.words import Unsupported, bytes_kept, memory, register

_FOR_CORES = """#ifdef __GNUC__
#define BT_ALIGNED __attribute__((aligned(64)))
#else
#define BT_ALIGNED
#endif
#if defined(__GNUC__) && !defined(__clang__)
#define BT_ROLLED _Pragma("GCC unroll 1") /* GCC 12 unrolls short loops before it looks for vectors */
#else
#define BT_ROLLED
#endif
"""

STACK_BYTES = 6 << 20
"""For the arrays of one item: of a thread's 8 MiB on Linux, with a margin for its callers. It is more than the local
memory of a target, so that a kernel with larger arrays is refused as one that needs too much of it."""


@dataclass(frozen=True)
class Kernel:
    """What the driver compiles and launches."""

    name: str
    """The user's function."""
    text: str
    """``BP_KERNEL(generated, ...)``; its parameters are the pointers, its values the numbers and the grid's three."""
    arguments: tuple[str, ...]
    """``ptr``, or the type of a number, of each argument that is no constant."""
    written: int
    """Bit i: the kernel may write what pointer i points to. All are set: one pointer may lead to another's tensor."""
    local_bytes: int
    """Local memory of a group. With one item arrays are on the stack: 0, or their bytes if no stack holds them."""
    accesses: str
    """Of each pointer among the arguments, whether the kernel reads or writes through it: of :mod:`..pointers`."""
    messages: tuple[Message, ...] = ()
    """Of prints and assertions: the last pointer is their log, if there are any."""


def lower(ttir: str, items: int, subgroup: int = 0, *, is_grid: bool = False) -> Kernel:
    """The kernel of a module of TTIR, for groups of that many items.

    Args:
        ttir: behind the target-independent passes: functions are inlined where they may be, descriptors are pointers.
        items: 1 where an item is a core.
        subgroup: ``subgroup_size`` of the target.
        is_grid: a launch has a group for each program; else the numbers end with the grid, and groups loop over it.

    Raises:
        TextError: it cannot be read.
        Unsupported: with the line of the user's kernel.
    """
    if items & (items - 1):
        raise Unsupported(f"groups of {items} items; choose a power of two, as the lengths of blocks are")
    module = read(ttir)
    function = module.kernel
    low = Lowering(module, items, subgroup)
    parameters: list[str] = []
    numbers: list[str] = []
    for value in function.arguments:
        if value.type.pointee is not None:
            name = f"p{len(parameters)}_"
            parameters.append(f"BP_GLOBAL {memory(value.type.pointee)}* {name}")
        else:
            name = f"{value.hint or 'n'}_{len(numbers)}_"
            member = f"bp_arg.n{len(numbers)}"
            numbers.append(f"  {register(value.type)} const {name} = {_number(value.type, member)};\n  (void){name};")
        low.forms[value] = Scalar(name)
    branch(low, function, function.blocks[0], [])
    if low.messages:
        parameters.append("BP_GLOBAL i64* log_")
    low.barrier()
    placement = Placement(low, parameters) if items > 1 else None
    count = len(numbers)
    members = " ".join(f"i64 n{i};" for i in range(count + (0 if is_grid else 3)))
    x, y, z = (f"BP_GROUPS({i})" if is_grid else f"bp_arg.n{count + i}" for i in range(3))
    first, step = ("BP_GROUP_ID(0)", "BP_GROUPS(0)")
    if is_grid:
        first, step = "BP_GROUP_ID(0) + (BP_GROUP_ID(1) + (i64)BP_GROUP_ID(2) * programs_y) * programs_x", "programs"
    newline = "\n"
    text = f"""{_FOR_CORES if items == 1 else ""}{low.text.preamble()}
typedef struct {{ {members} i64 site_; }} Generated;
BP_KERNEL(generated, {max(1, len(parameters))}, Generated, {", ".join(parameters) or "BP_GLOBAL i32* p_"}) {{
{newline.join("  " + array for array in (placement.local() if placement else []))}
  i32 const programs_x = (i32){x};
  i32 const programs_y = (i32){y};
  i64 const programs = (i64)programs_x * programs_y * {z};
  i32 const programs_z = (i32){z};
  (void)programs_z;
{newline.join(numbers)}
  for (i64 program = {first}; program < programs; program += {step}) {{
    i32 const program_x = (i32)(program % programs_x);
    i32 const program_y = (i32)(program / programs_x % programs_y);
    i32 const program_z = (i32)(program / programs_x / programs_y);
    (void)program_x; (void)program_y; (void)program_z;
{newline.join("    " + array for array in (placement.private() if placement else []))}
{newline.join(low.text.lines)}
  }}
}}
"""
    arguments = tuple("ptr" if value.type.is_pointer else value.type.elem for value in function.arguments)
    written = (1 << max(1, len(parameters))) - 1
    stack_bytes = sum(bytes_kept(type) * size for type, size in low.arrays.values())
    local_bytes = placement.local_bytes if placement else stack_bytes if stack_bytes > STACK_BYTES else 0
    return Kernel(
        function.name, text, arguments, written, local_bytes, low.pointers.accesses, messages=tuple(low.messages)
    )


def _number(type: Type, member: str) -> str:
    if type.elem == "i1":
        return f"{member} != 0"
    if type.elem == "f64":
        return f"bp_as_f64((u64){member})"
    if type.is_float:
        return words.rounded(type, f"bp_as_f32((u32){member})")
    return f"({register(type)}){member}"
