"""Text in the dialect for dtypes, constants, casts, sizes and places.

Uses a private class of torch, ``ExprPrinter``; tested on torch 2.11, 2.12, 2.13 and 2.15.
"""

from __future__ import annotations

import math
from typing import Any

import sympy
import torch
from sympy.printing.precedence import PRECEDENCE
from torch.utils._sympy.printers import ExprPrinter

HALVES = {torch.float16: "f16", torch.bfloat16: "bf16"}
FLOAT8 = {
    torch.float8_e4m3fn: "f8e4m3",
    torch.float8_e5m2: "f8e5m2",
    torch.float8_e4m3fnuz: "f8e4m3fnuz",
    torch.float8_e5m2fnuz: "f8e5m2fnuz",
    torch.float8_e8m0fnu: "f8e8m0",
}
NARROW = {**HALVES, **FLOAT8}
"""Dtypes that are float32 in a register."""
MEMORY = {
    torch.bool: "u8",
    **{getattr(torch, f"int{bits}"): f"i{bits}" for bits in (8, 16, 32, 64)},
    **{getattr(torch, f"uint{bits}"): f"u{bits}" for bits in (8, 16, 32, 64)},
    **{dtype: f"u{8 * dtype.itemsize}" for dtype in NARROW},
    torch.float32: "f32",
    torch.float64: "f64",
}
"""A dtype's type in memory; bp_load_<name> and bp_store_<name> convert elements."""
NAMES = {**MEMORY, torch.bool: "bool", **NARROW}
REGISTER = {**MEMORY, **dict.fromkeys(NARROW, "f32")}
WORDS = {"i32": 4, "u32": 4, "f32": 4, "i64": 8, "u64": 8, "f64": 8}  # their bytes

# BP_DTYPE_* and BP_ATOMIC_* of a target.
FLOAT64 = 1 << 9
_ADD_I32, _ADD_F32, _CAS_32, _ADD_I64, _CAS_64 = (1 << bit for bit in range(5))
ATOMICS = {
    torch.int32: _ADD_I32,
    torch.float32: _ADD_F32,
    torch.int64: _ADD_I64,
    torch.float64: _CAS_64,
    **dict.fromkeys((torch.int8, torch.uint8, torch.int16, torch.uint16, torch.float16, torch.bfloat16), _CAS_32),
}
"""The atomic that a sum into repeated places needs of a target; other dtypes have no such sum in a kernel."""


def name_of(dtype: torch.dtype) -> str:
    """The dialect's name of a dtype. Raises NotImplementedError for one that generated code does not support."""
    if dtype not in NAMES:
        raise NotImplementedError(f"kernels of torch.compile do not support {dtype}")
    return NAMES[dtype]


def computed(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which values of a dtype are computed."""
    return torch.float32 if dtype in NARROW else dtype


def literal(value: Any, dtype: torch.dtype) -> str:
    """A constant of a dtype's register type."""
    kind = REGISTER[dtype]
    if kind in ("f32", "f64"):
        value = float(value)
        if math.isnan(value):
            return f"({kind})BP_NAN"
        if math.isinf(value):
            return f"({kind}){'-' if value < 0 else ''}BP_INFINITY"
        if kind == "f64":
            return repr(value)
        rounded = float(torch.tensor(value, dtype=torch.float32))
        return literal(rounded, dtype) if math.isinf(rounded) else f"{rounded!r}f"
    if value in (math.inf, -math.inf):  # the least and the largest integer, the initial values of reductions
        value = (torch.iinfo(dtype).max if value > 0 else torch.iinfo(dtype).min) if dtype != torch.bool else value > 0
    value = int(value)
    if dtype == torch.bool:  # unlike the text of a byte: a kernel has one variable for equal texts
        return f"({value} != 0)"
    if value == -(2**63):
        return "(-9223372036854775807 - 1)"
    return f"(({kind}){value}{'u' if value >= 2**63 else ''})"


def cast(value: Any, dtype: torch.dtype, rounds: bool = False) -> str:
    """A value in a register as one of another dtype, rounded to it; a half only with ``rounds``."""
    name = name_of(dtype)
    if dtype in HALVES and not rounds:
        return f"((f32)({value}))"
    if dtype == torch.uint64:
        source = getattr(value, "dtype", torch.int64)
        return f"bp_to_u64_{REGISTER[source]}({value})" if source.is_floating_point else f"((u64)({value}))"
    return f"bp_to_{name}({value})"


def from_bits(bits: str, dtype: torch.dtype) -> str:
    """The value of a dtype with the bits of an integer."""
    if dtype in NARROW:
        return f"bp_{name_of(dtype)}_to_f32(({MEMORY[dtype]})({bits}))"
    if dtype.is_floating_point:
        return f"bp_as_{name_of(dtype)}((u{8 * dtype.itemsize})({bits}))"
    return f"(({REGISTER[dtype]})({bits}))"


def to_bits(value: Any, dtype: torch.dtype) -> str:
    """An integer with the bits of a value of a dtype."""
    if dtype in NARROW:
        return f"bp_f32_to_{name_of(dtype)}({value})"
    return f"bp_as_u{8 * dtype.itemsize}({value})" if dtype.is_floating_point else f"{value}"


def _template(text: str) -> Any:
    """Prints a function as text around its arguments."""
    return lambda printer, expr: text.format(*map(printer._print, expr.args))


class SizePrinter(ExprPrinter):
    """Sizes and places: sums, products and quotients of 64-bit integers, not negative unless sympy says so.

    Fractions of sizes are computed by the call (host_numbers.py).
    """

    _print_Abs = _template("(({0}) < 0 ? -({0}) : ({0}))")
    _print_FloatOfBits = _template("bp_as_f{1}((u{1}){0})")
    _print_Infinity = _template("9223372036854775807")
    _print_NegativeInfinity = _template("(-9223372036854775807 - 1)")
    _print_Not = _template("!({0})")
    _print_PowByNatural = _template("bp_int_power({0}, {1})")
    _print_PythonMod = _template("bp_floor_rest({0}, {1})")
    _print_Where = _template("(({0}) ? ({1}) : ({2}))")
    _print_ceiling = _template("((i64)bp_ceil64((f64)({0})))")
    _print_floor = _template("((i64)bp_floor64((f64)({0})))")
    _print_IntInfinity, _print_NegativeIntInfinity = _print_Infinity, _print_NegativeInfinity

    def _print_Integer(self, expr: sympy.Integer) -> str:
        return str(int(expr)) if abs(int(expr)) < 2**31 else f"(i64){int(expr)}"

    def _print_FloorDiv(self, expr: sympy.Expr) -> str:
        x, divisor = (self.parenthesize(arg, PRECEDENCE["Atom"] - 0.5) for arg in expr.args)
        if expr.args[0].is_nonnegative and expr.args[1].is_positive:
            return f"({x} / {divisor})"
        return f"bp_floor_quotient({x}, {divisor})"

    def _print_ModularIndexing(self, expr: sympy.Expr) -> str:
        x, divisor, modulus = expr.args
        text = self.parenthesize(x, PRECEDENCE["Atom"] - 0.5)
        if divisor != 1:
            text = f"({text} / {self.parenthesize(divisor, PRECEDENCE['Atom'] - 0.5)})"
        return f"({text} % {self.parenthesize(modulus, PRECEDENCE['Atom'] - 0.5)})"

    def _extreme(self, expr: sympy.Expr, function: str) -> str:
        first, *rest = (self._print(arg) for arg in expr.args)
        for one in rest:
            first = f"{function}({first}, {one})"
        return first

    def _print_Min(self, expr: sympy.Expr) -> str:
        return self._extreme(expr, "bp_min_int")

    def _print_Max(self, expr: sympy.Expr) -> str:
        return self._extreme(expr, "bp_max_int")

    def _print_Rational(self, expr: sympy.Expr) -> str:
        return f"({expr.p}.0 / {expr.q}.0)"

    def _print_Piecewise(self, expr: sympy.Expr) -> str:
        *most, (last, _) = expr.args
        text = f"({self._print(last)})"
        for value, condition in reversed(most):
            text = f"(({self._print(condition)}) ? ({self._print(value)}) : {text})"
        return text

    def _print_And(self, expr: sympy.Expr) -> str:
        return "(" + " && ".join(f"({self._print(arg)})" for arg in expr.args) + ")"

    def _print_Or(self, expr: sympy.Expr) -> str:
        return "(" + " || ".join(f"({self._print(arg)})" for arg in expr.args) + ")"


sizes = SizePrinter().doprint
