"""A kernel's parameters and its call: its head in the dialect, and the lines of the module around it.

Uses a private class of torch, ``SIMDKernel``; tested on torch 2.11, 2.12, 2.13 and 2.15.
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
from torch_backplane.inductor.host_numbers import is_host_number, take_fractions, text_of, value_of


class SignedKernel(SIMDKernel[Any]):
    """A kernel that takes tensors, then sizes, then the lengths of dynamic axes."""

    def __init__(self, tiling: dict[str, sympy.Expr], **kwargs: Any) -> None:
        super().__init__(tiling, **kwargs)
        self.device = V.graph.get_current_device_or_throw()
        self.reports = False  # whether the kernel reports places that are out of range
        self.numbers: dict[sympy.Symbol, sympy.Expr] = {}  # computed by the call

    def rename_indexing(self, index: Any) -> Any:
        """Use the kernel's names of its parameters."""
        if isinstance(index, (list, tuple)):
            return [self.rename_indexing(one) for one in index]
        return super().rename_indexing(take_fractions(sympy.sympify(index), self._number))

    def _number(self, expr: sympy.Expr) -> sympy.Expr:
        number = next((one for one, known in self.numbers.items() if known == expr), None)
        if number is None:
            number = sympy.Symbol(f"number{len(self.numbers)}")
            self.numbers[number] = expr
        return value_of(sympy.Symbol(self.args.size(number), integer=True), expr, self.device)

    def extent(self, tree: IterationRangesRoot) -> str:
        """The length of an axis: a number, or a name that the kernel's head defines."""
        return str(tree.numel) if isinstance(tree.numel, sympy.Integer) else f"{tree.prefix}numel"

    def dynamic(self) -> list[IterationRangesRoot]:
        """The axes whose length is an argument of the call."""
        return [tree for tree in self.range_trees if not isinstance(tree.numel, sympy.Integer)]

    def _arguments(self) -> tuple[list[TensorArg], list[TensorArg | SizeArg], list[Any], list[Any]]:
        """Tensors of the device and numbers, and the arguments of a call for them."""
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
                computed = self.numbers.get(call)
                numbers.append((arg, call if computed is None else text_of(computed, self.device)))
        return [a for a, _ in tensors], [a for a, _ in numbers], [c for _, c in tensors], [c for _, c in numbers]

    def call_arguments(self) -> tuple[list[Any], list[Any]]:
        """The tensors and the numbers of a call."""
        _, _, tensors, numbers = self._arguments()
        return tensors, [*numbers, *(V.graph.sizevars.simplify(tree.numel) for tree in self.dynamic())]

    def _written(self) -> set[str]:
        inner = {str(name) for name in self.args.output_buffers.values()}
        inner |= {one.inner_name for one in self.args.inplace_buffers.values() if hasattr(one, "inner_name")}
        return inner

    def parameters(self) -> list[tuple[str, str, bool]]:
        """For each tensor: the type of its elements in memory, its name, whether the kernel writes it."""
        tensors, _, _, _ = self._arguments()
        written = self._written()
        return [(dtypes.MEMORY[arg.dtype], arg.name, arg.name in written) for arg in tensors]

    def values(self) -> list[str]:
        """The names of the numbers that a call passes."""
        _, numbers, _, _ = self._arguments()
        return [arg.name for arg in numbers] + [f"{tree.prefix}numel" for tree in self.dynamic()]

    def definition(
        self,
        body: IndentedBuffer,
        takes: Sequence[tuple[IterationRangesRoot, int]],
        per_item: int,
        definitions: str = "",
    ) -> str:
        """The expression in the module that creates the kernel.

        Args:
            body: of the kernel, after the definitions of its numbers.
            takes: axes, with the number of elements that a group computes of each; 0: a tile of its lanes.
            per_item: BP_PER_ITEM.
            definitions: lines before the library, if the kernel multiplies by tiles.
        """
        extents = [self.factor(tree, elements, 0) for tree, elements in takes]
        facts: dict[str, Any] = {"per_item": per_item, "extents": extents, "device": self.device.index or 0}
        if definitions:
            facts["definitions"] = definitions
        self.text, self.facts, line = define(body, self.parameters(), self.values(), self.reports, facts)
        return line

    def factor(self, tree: IterationRangesRoot, elements: int, before: int) -> tuple[int, int, int]:
        """A factor of the number of groups (``extents`` of a kernel): an axis, of which a group computes ``elements``.

        ``before``: how many numbers of the call precede the kernel's.
        """
        if isinstance(tree.numel, sympy.Integer):
            return int(tree.numel), -1, elements
        return 1, before + self.values().index(f"{tree.prefix}numel"), elements

    def call_kernel(self, name: str, node: Any = None, deallocate_ws: bool = True) -> None:
        """Write the call: tensors, then numbers; the launcher counts the groups."""
        self.compute_sizes()
        write_call(name, *self.call_arguments(), self.device)

    def compute_sizes(self) -> None:
        """Define the sizes that a call passes as variables of the module."""
        for size in self.args.sizevars:
            for symbol in self.numbers.get(size, size).free_symbols:
                V.graph.wrapper_code.ensure_size_computed(symbol)

    def codegen_nan_check(self) -> None:
        wrapper = V.graph.wrapper_code
        tensors, _, calls, _ = self._arguments()
        for arg, call in zip(tensors, calls, strict=True):
            if not arg.dtype.is_floating_point:
                continue
            if V.graph.cpp_wrapper:
                check = f'aoti_torch_check_inf_and_nan("{call}", {call})'
                wrapper.writeline(f"AOTI_TORCH_ERROR_CODE_CHECK({check});")
            else:
                wrapper.writeline(f"assert not {call}.isnan().any().item()")
                wrapper.writeline(f"assert not {call}.isinf().any().item()")


def define(
    body: IndentedBuffer,
    parameters: Sequence[tuple[str, str, bool]],
    values: Sequence[str],
    reports: bool,
    facts: dict[str, Any],
) -> tuple[str, dict[str, Any], str]:
    """A kernel's text, the facts that a launch needs, and the expression in the module that creates it.

    Args:
        body: of the kernel, which uses its numbers by their names.
        parameters: for each tensor its type in memory, its name, whether it is written.
        values: the names of the numbers.
        reports: whether the kernel reports places that are out of range.
        facts: the other arguments of ``runtime.generated_kernel``.
    """
    pointers = [
        f"BP_GLOBAL {'' if written else 'const '}{kind}* BP_RESTRICT {name}" for kind, name, written in parameters
    ]
    if reports:
        pointers.append("BP_GLOBAL i64* BP_RESTRICT report_")
    code = IndentedBuffer()
    code.writeline(f"typedef struct {{ {' '.join(f'i64 {one};' for one in [*values, 'site_'])} }} Generated;")
    code.writeline(f"BP_KERNEL(generated, {len(pointers)}, Generated, {', '.join(pointers)}) {{")
    with code.indent():
        code.writelines([f"const i64 {one} = bp_arg.{one};" for one in values])
        code.splice(body)
    code.writeline("}")
    facts = {
        "pointers": len(parameters),
        "values": len(values),
        "written": sum(1 << i for i, (_, _, written) in enumerate(parameters) if written),
        "reports": reports,
        **facts,
    }
    text = code.getvalue()
    quoted = text.replace("\\", "\\\\")
    settings = ", ".join(f"{key}={value!r}" for key, value in facts.items())
    return text, facts, f"generated_kernel(async_compile, '{{name}}', '''\n{quoted}''', {settings})"


def write_call(name: str, tensors: Sequence[Any], numbers: Sequence[Any], device: torch.device) -> None:
    """Write the line of the module that launches a kernel."""
    wrapper = V.graph.wrapper_code
    call = [str(one) for one in tensors]
    sizes = [wrapper.codegen_sizevar(one) if isinstance(one, sympy.Expr) else str(one) for one in numbers]
    wrapper.generate_kernel_call(
        name, (call, sizes) if V.graph.cpp_wrapper else call + sizes, device=device, triton=False
    )
