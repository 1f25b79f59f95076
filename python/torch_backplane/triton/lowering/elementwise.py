"""``tt.map_elementwise``: a scalar function, perhaps with control flow, of each element or of packs of neighbours."""

from __future__ import annotations

from torch_backplane.triton import words
from torch_backplane.triton.lowering.forms import Array, Scalar
from torch_backplane.triton.lowering.state import Lowering, lowers
from torch_backplane.triton.ttir import Op
from torch_backplane.triton.words import register


@lowers("tt.map_elementwise")
def _map_elementwise(low: Lowering, op: Op) -> None:
    pack, size, block = op.integer("pack"), op.result.type.size, op.regions[0][0]
    arrays = [low.keep(operand) for operand in op.operands]
    results = [low.array(value.type) for value in op.results]
    first, step = ("BP_ITEM", "BP_GROUP") if low.items > 1 else ("0", "1")
    at = low.text.name("l")
    low.barrier()
    with low.region(f"for (i32 {at} = {first}; {at} < {size // pack}; {at} += {step})"), low.apart():
        places = [f"{array}[{at} * {pack} + {i}]" for array in arrays for i in range(pack)]
        for argument, place in zip(block.arguments, places, strict=True):
            name = low.text.name("x")
            low.text.line(f"{register(argument.type)} const {name} = {words.take(argument.type, place)};")
            low.forms[argument] = Scalar(name)

        def end(last: Op) -> None:
            targets = [f"{array}[{at} * {pack} + {i}]" for array in results for i in range(pack)]
            for target, value in zip(targets, last.operands, strict=True):
                low.text.line(f"{target} = {words.keep(value.type, low.scalar(value))};")

        low.block(block, end)
    low.barrier()
    low.forms.update(zip(op.results, map(Array, results), strict=True))
