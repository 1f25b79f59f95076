"""The variables of a kernel: each with the type of its dtype, and where it is declared.

Private classes of torch stand behind it: ``CSE`` and ``CSEProxy``; tried on torch 2.11, 2.12, 2.13 and 2.15.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch._inductor.codegen.common import CSE, CSEProxy, CSEVariable
from torch._inductor.virtualized import V
from torch.utils._sympy.value_ranges import ValueRanges

from torch_backplane.inductor import dtypes

if TYPE_CHECKING:
    from torch_backplane.inductor.kernel import GroupKernel

# Functions are followed by a parenthesis.
_NAMES = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?!\w|\()")
# Names in expressions that no axis has a say in.
SAME_EVERYWHERE = {*dtypes.REGISTER.values(), *dtypes.MEMORY.values(), "BP_INFINITY", "BP_NAN"}


def names_in(expression: str) -> list[str]:
    """All but those of functions."""
    return _NAMES.findall(expression)


class TypedCSE(CSE[Any, Any]):
    """Declares each variable with the type of its dtype; a kernel's own, and what no axis has a say in, ahead of loops.

    Compilers leave calls of functions in loops: an optimizer's step raises a number to the power of the step's for each
    element.
    """

    kernel: GroupKernel | None = None  # not of what is generated apart

    def generate(self, buffer: Any, expr: Any, *, dtype: torch.dtype | None = None, **rest: Any) -> Any:
        kernel = self.kernel
        if kernel is None or buffer is not kernel.compute or not kernel.is_invariant(expr):
            return self._declare(buffer, expr, dtype=dtype, **rest)
        variable = self._declare(kernel.invariant, expr, dtype=dtype, **rest)
        kernel.invariant_names.add(str(variable))
        kernel.row_vars.add(variable)
        return variable

    def _declare(self, buffer: Any, expr: Any, *, dtype: torch.dtype | None = None, **rest: Any) -> Any:
        if not isinstance(expr, CSEVariable) and rest.get("assignment", True):
            if dtype is None:
                raise AssertionError(f"{expr} has no dtype")
            self.prefix = f"const {dtypes.REGISTER[dtype]} "
        if "bounds" in rest and isinstance(dtype, torch.dtype) and dtype.is_floating_point:
            # two numbers may be one when they are rounded: their text is the same, and their bounds are not
            rest["bounds"] = ValueRanges.unknown()
        return super().generate(buffer, expr, dtype=dtype, **rest)


class IndexProxy(CSEProxy):
    """Tells the kernel whether the size was added to a negative index: errors name what the program gave."""

    def load(self, name: str, index: sympy.Expr) -> CSEVariable:
        """Also what the kernel has just stored: rounded, as whoever reads the buffer finds it."""
        value: CSEVariable = super().load(name, index)
        kernel: Any = self.kernel
        dtype = V.graph.get_dtype(name)
        if dtype not in dtypes.NARROW or name not in kernel.cse.store_cache:
            return value
        rounded: CSEVariable = kernel.generate(dtypes.cast(value, dtype, rounds=True), dtypes.computed(dtype))
        return rounded

    def indirect_indexing(
        self, var: CSEVariable, size: sympy.Expr | int, check: bool = True, wrap_neg: bool = True
    ) -> sympy.Symbol:
        kernel: Any = self.kernel
        kernel.wraps = wrap_neg and bool(var.bounds.lower < 0)
        return super().indirect_indexing(var, size, check, wrap_neg)
