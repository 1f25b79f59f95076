"""What a kernel takes and how it is called: its head in the dialect, and the lines of the module around it.

A private class of torch stands behind it: ``SIMDKernel``; tried on torch 2.11, 2.12, 2.13 and 2.15.
"""
# torch types a property of axes, is_reduction, as a function.
# mypy: disable-error-code="misc"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch._inductor.codegen.common import IndentedBuffer, SizeArg, TensorArg
from torch._inductor.codegen.simd import IterationRangesRoot, SIMDKernel
from torch._inductor.virtualized import V

from torch_backplane.inductor import dtypes


def is_host_number(name: str) -> bool:
    """Whether a buffer is a number on the CPU, of which calls get the bits: an optimizer's step, a learning rate."""
    buffer = V.graph.try_get_buffer(name)
    return buffer is not None and buffer.get_device() == torch.device("cpu") and not buffer.get_size()


class SignedKernel(SIMDKernel[Any]):
    """Tensors first, then sizes, then the lengths of axes that vary."""

    def __init__(self, tiling: dict[str, sympy.Expr], **kwargs: Any) -> None:
        super().__init__(tiling, **kwargs)
        self.device = V.graph.get_current_device_or_throw()
        self.reports = False  # the kernel tells of places that are out of range

    def extent(self, tree: IterationRangesRoot) -> str:
        """The length of an axis, a number or a name that the kernel's head defines."""
        return str(tree.numel) if isinstance(tree.numel, sympy.Integer) else f"{tree.prefix}numel"

    def dynamic(self) -> list[IterationRangesRoot]:
        """The axes whose length is an argument of the call."""
        return [tree for tree in self.range_trees if not isinstance(tree.numel, sympy.Integer)]

    def _arguments(self) -> tuple[list[TensorArg], list[TensorArg | SizeArg], list[Any], list[Any]]:
        """Tensors of the device and numbers, each with what a call passes."""
        _, call_args, signature, _ = self.args.python_argdefs()
        strange = [arg for arg in signature if not isinstance(arg, (TensorArg, SizeArg))]
        if strange:
            raise NotImplementedError(f"a kernel with an argument {strange[0]}")
        pairs = list(zip(signature, call_args, strict=True))
        tensors: list[tuple[TensorArg, Any]] = []
        numbers: list[tuple[TensorArg | SizeArg, Any]] = []
        for arg, call in pairs:
            if isinstance(arg, TensorArg) and is_host_number(arg.buffer):
                numbers.append((arg, f"bits_of({call})"))
            elif isinstance(arg, TensorArg):
                tensors.append((arg, call))
            elif isinstance(arg, SizeArg):
                numbers.append((arg, call))
        return [a for a, _ in tensors], [a for a, _ in numbers], [c for _, c in tensors], [c for _, c in numbers]

    def call_arguments(self) -> tuple[list[Any], list[Any]]:
        """The tensors and the numbers of a call."""
        _, _, tensors, numbers = self._arguments()
        return tensors, [*numbers, *(V.graph.sizevars.simplify(tree.numel) for tree in self.dynamic())]

    def _written(self) -> set[str]:
        inner = {str(name) for name in self.args.output_buffers.values()}
        inner |= {one.inner_name for one in self.args.inplace_buffers.values() if hasattr(one, "inner_name")}
        return inner

    def definition(
        self,
        body: IndentedBuffer,
        takes: Sequence[tuple[IterationRangesRoot, int]],
        per_item: int,
        definitions: str = "",
    ) -> str:
        """What stands behind the kernel's name in the module.

        Args:
            body: of the kernel, behind the numbers that it takes.
            takes: axes, with how many elements a group takes of each; 0: a tile of its lanes.
            per_item: BP_PER_ITEM.
            definitions: lines in front of the library, where the kernel multiplies by tiles.
        """
        tensors, numbers, _, _ = self._arguments()
        written = self._written()
        parameters = []
        for arg in tensors:
            const = "" if arg.name in written else "const "
            parameters.append(f"BP_GLOBAL {const}{dtypes.MEMORY[arg.dtype]}* BP_RESTRICT {arg.name}")
        if self.reports:
            parameters.append("BP_GLOBAL i64* BP_RESTRICT report_")
        names = [arg.name for arg in numbers] + [f"{tree.prefix}numel" for tree in self.dynamic()]
        code = IndentedBuffer()
        code.writeline(f"typedef struct {{ {' '.join(f'i64 {one};' for one in [*names, 'site_'])} }} Generated;")
        code.writeline(f"BP_KERNEL(generated, {len(parameters)}, Generated, {', '.join(parameters)}) {{")
        with code.indent():
            code.writelines([f"const i64 {one} = bp_arg.{one};" for one in names])
            code.splice(body)
        code.writeline("}")
        argument = {f"{tree.prefix}numel": len(numbers) + i for i, tree in enumerate(self.dynamic())}
        extents = []
        for tree, elements in takes:
            where = argument.get(f"{tree.prefix}numel", -1)
            extents.append((1 if where >= 0 else int(tree.numel), where, elements))
        facts: dict[str, Any] = {
            "pointers": len(tensors),
            "values": len(names),
            "written": sum(1 << i for i, arg in enumerate(tensors) if arg.name in written),
            "per_item": per_item,
            "extents": extents,
            "reports": self.reports,
            "device": self.device.index or 0,
        }
        if definitions:
            facts["definitions"] = definitions
        self.text, self.facts = code.getvalue(), facts
        text = self.text.replace("\\", "\\\\")
        settings = ", ".join(f"{key}={value!r}" for key, value in facts.items())
        return f"generated_kernel(async_compile, '{{name}}', '''\n{text}''', {settings})"

    def call_kernel(self, name: str, node: Any = None, deallocate_ws: bool = True) -> None:
        """The call: tensors, then numbers; the launcher counts the groups."""
        wrapper = V.graph.wrapper_code
        for size in self.args.sizevars:
            wrapper.ensure_size_computed(size)
        tensors, numbers = self.call_arguments()
        call = [str(one) for one in tensors]
        sizes = [wrapper.codegen_sizevar(one) if isinstance(one, sympy.Expr) else str(one) for one in numbers]
        wrapper.generate_kernel_call(
            name, (call, sizes) if V.graph.cpp_wrapper else call + sizes, device=self.device, triton=False
        )

    def codegen_nan_check(self) -> None:
        wrapper = V.graph.wrapper_code
        tensors, _, calls, _ = self._arguments()
        for arg, call in zip(tensors, calls, strict=True):
            if not dtypes.is_real(arg.dtype):
                continue
            if V.graph.cpp_wrapper:
                check = f'aoti_torch_check_inf_and_nan("{call}", {call})'
                wrapper.writeline(f"AOTI_TORCH_ERROR_CODE_CHECK({check});")
            else:
                wrapper.writeline(f"assert not {call}.isnan().any().item()")
                wrapper.writeline(f"assert not {call}.isinf().any().item()")
