"""Numbers that a call computes for its kernel: tensors of one number on the CPU, and fractions of sizes.

A size divided by another, the square root of one, ``x.sum().item()`` rounded: the module computes it with Python's
doubles, as eager mode does, whether or not the device has float64. A kernel takes a float as an integer of its bits.
"""

from __future__ import annotations

from collections.abc import Callable

import sympy
import torch
from sympy.core.relational import Relational
from sympy.logic.boolalg import BooleanFunction
from torch._inductor.virtualized import V
from torch.utils._sympy import functions
from torch.utils._sympy.symbol import SymT, symbol_is_type

from torch_backplane.inductor.fallbacks import has_float64

_FLOATS = SymT.FLOAT, SymT.UNBACKED_FLOAT
_KNOWN_TO_A_CALL = SymT.SIZE, SymT.UNBACKED_INT, SymT.PRECOMPUTED_SIZE, *_FLOATS
_MAKE_FRACTIONS = (
    functions.ToFloat,
    functions.IntTrueDiv,
    functions.FloatTrueDiv,
    functions.FloatPow,
    functions.TruncToFloat,
    functions.RoundDecimal,
)


class FloatOfBits(sympy.Function):
    """In an expression of a kernel: the float with the bits of an integer; arguments are the integer and the width."""

    is_real = True


def is_host_number(name: str) -> bool:
    """Whether a buffer is a number on the CPU, whose bits a call passes: an optimizer's step, a learning rate."""
    buffer = V.graph.try_get_buffer(name)
    return buffer is not None and buffer.get_device() == torch.device("cpu") and not buffer.get_size()


def take_fractions(expr: sympy.Basic, take: Callable[[sympy.Expr], sympy.Expr]) -> sympy.Basic:
    """Replace by ``take`` the parts of an expression that have fractions and that a call can compute."""
    if not any(map(_is_of_fractions, sympy.preorder_traversal(expr))) or not expr.free_symbols:
        return expr
    known = all(symbol_is_type(one, _KNOWN_TO_A_CALL) for one in expr.free_symbols)
    if known and not isinstance(expr, (Relational, BooleanFunction)):
        return take(expr)
    return expr.func(*(take_fractions(arg, take) for arg in expr.args))


def _is_of_fractions(expr: sympy.Basic) -> bool:
    if isinstance(expr, sympy.Symbol):
        return symbol_is_type(expr, _FLOATS)
    is_number = isinstance(expr, (sympy.Float, sympy.Rational)) and not isinstance(expr, sympy.Integer)
    return is_number or isinstance(expr, _MAKE_FRACTIONS) or type(expr).__name__.startswith("OpaqueUnaryFn_")


def text_of(expr: sympy.Expr, device: torch.device) -> str:
    """The text of the integer that a call passes for a number."""
    text = str(V.graph.wrapper_code.codegen_sizevar(expr))
    return text if expr.is_integer else f"bits_of_float{_width(device)}({text})"


def value_of(number: sympy.Symbol, expr: sympy.Expr, device: torch.device) -> sympy.Expr:
    """The value of that integer in the kernel."""
    return number if expr.is_integer else FloatOfBits(number, _width(device))


def _width(device: torch.device) -> int:
    return 64 if has_float64(device) else 32
