"""The variables of a kernel: their types, and where they are declared.

Uses private classes of torch, ``CSE`` and ``CSEProxy``; tested on torch 2.11, 2.12, 2.13 and 2.15.
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

# Not functions, which are followed by a parenthesis.
_NAMES = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?!\w|\()")
# Names in expressions that do not depend on an axis.
SAME_EVERYWHERE = {*dtypes.REGISTER.values(), *dtypes.MEMORY.values(), "BP_INFINITY", "BP_NAN"}


def names_in(expression: str) -> list[str]:
    """The names in an expression, except those of functions."""
    return _NAMES.findall(expression)


class TypedCSE(CSE[Any, Any]):
    """Declares each variable with the type of its dtype; those that do not depend on an axis before the loops.

    Compilers do not move calls of functions out of loops: an optimizer's step would compute a power of the step's
    number for each element.
    """

    kernel: GroupKernel | None = None  # None for code that is generated separately

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
            # two numbers may be rounded to the same text, with different bounds
            rest["bounds"] = ValueRanges.unknown()
        return super().generate(buffer, expr, dtype=dtype, **rest)


class IndexProxy(CSEProxy):
    """Passes to the kernel whether the size was added to a negative index: errors name the program's index."""

    def load(self, name: str, index: sympy.Expr) -> CSEVariable:
        """Load a value; one that the kernel has just stored is rounded, as in memory."""
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
