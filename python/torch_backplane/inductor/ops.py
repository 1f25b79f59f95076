"""Inductor's operators as expressions of the dialect: one method, or one line of a table, for each.

What is not here is a call of the device's own operator: fallbacks.py. A private class of torch stands behind it:
``OpOverrides``; tried on torch 2.11, 2.12, 2.13 and 2.15.
"""
# Operands are names of variables, which torch types as numbers or as text.
# mypy: disable-error-code="override,arg-type,union-attr,operator,index"

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, NoReturn

import sympy
import torch
from torch._inductor.codegen.common import CSEVariable, OpOverrides
from torch._inductor.ops_handler import OpsHandler
from torch._inductor.virtualized import OpsWrapper, V, ops

from torch_backplane.inductor import dtypes
from torch_backplane.inductor.dtypes import cast, computed, is_real, literal

# Functions of a real number that the dialect has for f32 (bp_<name>) and f64 (bp_<name>64).
REAL = (
    "acos acosh asin asinh atan atanh cos cosh erf erfc exp exp2 expm1 lgamma log log10 log1p log2 sin sinh sqrt tan "
    "tanh atan2 copysign fma fmod hypot"
).split()
# Those that it has for f32 alone.
SPECIAL = "digamma erfinv i0 i0e i1 i1e log_ndtr ndtri".split()
# Their dialect's name where it is another one.
RENAMED = {"ndtr": "normal_cdf"}


def suffix(dtype: torch.dtype | None) -> str:
    """Of a real function's name."""
    return "64" if dtype == torch.float64 else ""


def function(name: str, dtype: torch.dtype | None) -> str:
    """The dialect's function of a real number."""
    separator = "_" if dtype == torch.float64 and name[-1].isdigit() else ""
    return f"bp_{name}{separator}{suffix(dtype)}"


def _promoted(*values: Any) -> torch.dtype:
    known = [computed(value.dtype) for value in values if isinstance(value, CSEVariable) and value.dtype is not None]
    return reduce(torch.promote_types, known)


class DialectOps(OpOverrides):
    """Text of an operator, given the names of its operands."""

    erfcx = OpsHandler.erfcx  # a call: torch's expression for any backend is infinite from 10 on, and NaN

    # ---- constants, types, places

    @staticmethod
    def constant(value: Any, dtype: torch.dtype) -> str:
        return literal(value, dtype)

    @staticmethod
    def to_dtype(
        x: Any, dtype: torch.dtype, src_dtype: torch.dtype | None = None, use_compute_types: bool = True
    ) -> str:
        return cast(x, dtype, rounds=not use_compute_types)

    @staticmethod
    def to_dtype_bitcast(x: Any, dtype: torch.dtype, src_dtype: torch.dtype) -> str:
        if dtype.itemsize != src_dtype.itemsize:
            raise NotImplementedError(f"a view of {src_dtype} as {dtype} in a kernel")
        return dtypes.from_bits(dtypes.to_bits(x, src_dtype), dtype)

    @staticmethod
    def index_expr(expr: sympy.Expr, dtype: torch.dtype) -> str:
        kernel = V.kernel
        text = kernel.index_to_str(kernel.prepare_indexing(expr))
        if not expr.is_integer:
            return cast(f"({text})", dtype)
        return cast(f"(i64)({text})", dtype) if dtype != torch.int64 else f"((i64)({text}))"

    @staticmethod
    def value_expr(expr: sympy.Expr, dtype: torch.dtype) -> str:
        return DialectOps.index_expr(expr, dtype)

    @staticmethod
    def indirect_indexing(
        var: CSEVariable, size: sympy.Expr | int, check: bool = True, wrap_neg: bool = True
    ) -> sympy.Symbol:
        return V.kernel.checked_place(var, sympy.sympify(size), check)

    @staticmethod
    def masked(mask: CSEVariable, body: Callable[[], CSEVariable], other: Any) -> Any:
        with V.kernel.mask_loads(mask, other) as both:
            value = OpsWrapper._unwrap(body())
        return OpsWrapper._unwrap(ops.where(both, value, literal_of(other, value)))

    @staticmethod
    def where(condition: Any, yes: Any, no: Any) -> str:
        return f"{condition} ? {yes} : {no}"

    @staticmethod
    def identity(x: Any) -> Any:
        return x

    # ---- numbers

    @staticmethod
    def abs(x: CSEVariable) -> str:
        if is_real(x.dtype):
            return f"{function('fabs', x.dtype)}({x})"
        return f"{x} < 0 ? -{x} : {x}" if x.dtype.is_signed else f"{x}"

    @staticmethod
    def neg(x: CSEVariable) -> str:
        return f"-{x}"

    @staticmethod
    def sign(x: CSEVariable) -> str:
        return f"({dtypes.REGISTER[x.dtype]})(({x} > 0) - ({x} < 0))"

    @staticmethod
    def signbit(x: CSEVariable) -> str:
        if is_real(x.dtype):
            return f"{function('copysign', x.dtype)}(({dtypes.REGISTER[x.dtype]})1, {x}) < 0"
        return f"{x} < 0"

    @staticmethod
    def reciprocal(x: CSEVariable) -> str:
        return f"({dtypes.REGISTER[x.dtype]})1 / {x}"

    @staticmethod
    def rsqrt(x: CSEVariable) -> str:
        return f"({dtypes.REGISTER[x.dtype]})1 / {function('sqrt', x.dtype)}({x})"

    @staticmethod
    def sigmoid(x: CSEVariable) -> str:
        one = f"({dtypes.REGISTER[x.dtype]})1"
        return f"{one} / ({one} + {function('exp', x.dtype)}(-{x}))"

    @staticmethod
    def relu(x: CSEVariable) -> str:
        return f"{x} <= 0 ? ({dtypes.REGISTER[x.dtype]})0 : {x}"

    @staticmethod
    def square(x: CSEVariable) -> str:
        return f"{x} * {x}"

    @staticmethod
    def isnan(x: CSEVariable) -> str:
        return f"{x} != {x}"

    @staticmethod
    def isinf(x: CSEVariable) -> str:
        return f"{function('fabs', x.dtype)}({x}) == BP_INFINITY" if is_real(x.dtype) else "0"

    @staticmethod
    def frexp(x: CSEVariable) -> tuple[CSEVariable, CSEVariable]:
        kind, generate = dtypes.REGISTER[x.dtype], V.kernel.generate
        return generate(f"bp_mantissa_{kind}({x})", x.dtype), generate(f"bp_exponent_{kind}({x})", torch.int32)

    @staticmethod
    def ldexp(x: CSEVariable, n: CSEVariable) -> str:
        return f"{function('ldexp', x.dtype)}({x}, {n})"

    @staticmethod
    def nextafter(x: CSEVariable, y: CSEVariable) -> str:
        return f"bp_nextafter_{dtypes.REGISTER[_promoted(x, y)]}({x}, {y})"

    @staticmethod
    def maximum(a: CSEVariable, b: CSEVariable) -> str:
        return f"bp_max_{extreme(_promoted(a, b))}({a}, {b})"

    @staticmethod
    def minimum(a: CSEVariable, b: CSEVariable) -> str:
        return f"bp_min_{extreme(_promoted(a, b))}({a}, {b})"

    @staticmethod
    def truediv(a: CSEVariable, b: CSEVariable) -> str:
        return f"{a} / {b}" if is_real(_promoted(a, b)) else f"(f32){a} / (f32){b}"

    @staticmethod
    def div_rn(a: CSEVariable, b: CSEVariable) -> str:
        return f"{a} / {b}"

    @staticmethod
    def mul_rn(a: CSEVariable, b: CSEVariable) -> str:
        return f"{a} * {b}"

    @staticmethod
    def int_truediv(a: CSEVariable, b: CSEVariable) -> str:
        return f"(f32)((f64){a} / (f64){b})"

    @staticmethod
    def truncdiv(a: CSEVariable, b: CSEVariable) -> str:
        V.kernel.check_divisor(b)
        return f"bp_quotient({a}, {b})"

    @staticmethod
    def floordiv(a: CSEVariable, b: CSEVariable) -> str:
        dtype = _promoted(a, b)
        if is_real(dtype):
            return f"bp_floor_quotient_{dtypes.REGISTER[dtype]}({a}, {b})"
        V.kernel.check_divisor(b)
        return f"({dtypes.REGISTER[dtype]})bp_floor_quotient({a}, {b})"

    @staticmethod
    def mod(a: CSEVariable, b: CSEVariable) -> str:
        dtype = _promoted(a, b)
        if is_real(dtype):
            return f"{function('fmod', dtype)}({a}, {b})"
        V.kernel.check_divisor(b)
        return f"bp_rest({a}, {b})"

    @staticmethod
    def fmod(a: CSEVariable, b: CSEVariable) -> str:
        return DialectOps.mod(a, b)

    @staticmethod
    def remainder(a: CSEVariable, b: CSEVariable) -> str:
        dtype = _promoted(a, b)
        if is_real(dtype):
            return f"{function('remainder', dtype)}({a}, {b})"
        V.kernel.check_divisor(b)
        return f"({dtypes.REGISTER[dtype]})bp_floor_rest({a}, {b})"

    @staticmethod
    def pow(a: CSEVariable, b: CSEVariable) -> str:
        dtype = _promoted(a, b)
        if is_real(dtype):
            kind = dtypes.REGISTER[dtype]
            return f"{function('pow', dtype)}(({kind}){a}, ({kind}){b})"
        return f"({dtypes.REGISTER[dtype]})bp_int_power({a}, {b})"

    # ---- rounding

    @staticmethod
    def floor(x: CSEVariable) -> str:
        return _rounded("floor", x)

    @staticmethod
    def ceil(x: CSEVariable) -> str:
        return _rounded("ceil", x)

    @staticmethod
    def trunc(x: CSEVariable) -> str:
        return _rounded("trunc", x)

    @staticmethod
    def round(x: CSEVariable) -> str:
        return _rounded("rint", x)

    @staticmethod
    def floor_to_int(x: CSEVariable, dtype: torch.dtype) -> str:
        return cast(_rounded("floor", x), dtype)

    @staticmethod
    def ceil_to_int(x: CSEVariable, dtype: torch.dtype) -> str:
        return cast(_rounded("ceil", x), dtype)

    @staticmethod
    def trunc_to_int(x: CSEVariable, dtype: torch.dtype) -> str:
        return cast(_rounded("trunc", x), dtype)

    @staticmethod
    def round_to_int(x: CSEVariable, dtype: torch.dtype) -> str:
        return cast(_rounded("rint", x), dtype)

    # ---- comparisons and bits

    @staticmethod
    def logical_and(a: Any, b: Any) -> str:
        return f"({a} != 0) & ({b} != 0)"

    @staticmethod
    def logical_or(a: Any, b: Any) -> str:
        return f"({a} != 0) | ({b} != 0)"

    @staticmethod
    def logical_xor(a: Any, b: Any) -> str:
        return f"({a} != 0) != ({b} != 0)"

    @staticmethod
    def logical_not(a: Any) -> str:
        return f"{a} == 0"

    @staticmethod
    def bitwise_not(x: CSEVariable) -> str:
        return f"{x} == 0" if x.dtype == torch.bool else f"~{x}"

    @staticmethod
    def bitwise_left_shift(a: CSEVariable, b: CSEVariable) -> str:
        dtype = _promoted(a, b)
        return f"({dtypes.REGISTER[dtype]})bp_left({a}, {b}, {8 * dtype.itemsize})"

    @staticmethod
    def bitwise_right_shift(a: CSEVariable, b: CSEVariable) -> str:
        dtype = _promoted(a, b)
        return f"({dtypes.REGISTER[dtype]})bp_right({a}, {b}, {8 * dtype.itemsize})"

    # ---- random numbers: by a seed and a place in its sequence (kernels/portable/random/random.cpp)

    @staticmethod
    def rand(seed: CSEVariable, offset: CSEVariable) -> str:
        return f"bp_philox_uniform(bp_philox_number({offset}, {V.kernel.random_block(seed, offset)}))"

    @staticmethod
    def randn(seed: CSEVariable, offset: CSEVariable) -> str:
        return V.kernel.random_normal(seed, offset)

    @staticmethod
    def randint64(seed: CSEVariable, offset: CSEVariable, low: CSEVariable, high: CSEVariable) -> str:
        return f"bp_philox_between({offset}, {low}, {high}, {V.kernel.random_block(seed, offset)})"

    # ---- what Inductor offers to backends that say so, which this does not

    @staticmethod
    def inline_asm_elementwise(*inputs: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError("inline assembly is another compiler's")


def literal_of(value: Any, like: CSEVariable) -> Any:
    """A number as a constant of another value's dtype."""
    return value if isinstance(value, CSEVariable) else ops.constant(value, like.dtype)


def extreme(dtype: torch.dtype) -> str:
    """The ending of bp_max_ and bp_min_."""
    return dtypes.REGISTER[dtype] if is_real(dtype) else "int"


def _rounded(name: str, x: CSEVariable) -> str:
    return f"{function(name, x.dtype)}({x})" if is_real(x.dtype) else f"{x}"


def _real(name: str) -> Callable[..., str]:
    def call(*operands: CSEVariable) -> str:
        dtype = _promoted(*operands)
        if not is_real(dtype):
            dtype = torch.float32
        kind = dtypes.REGISTER[dtype]
        return f"{function(name, dtype)}({', '.join(f'({kind}){operand}' for operand in operands)})"

    return call


def _special(name: str) -> Callable[[CSEVariable], str]:
    def call(x: CSEVariable) -> str:
        if x.dtype == torch.float64:
            raise NotImplementedError(f"{name} of float64 in a kernel")
        return f"bp_{RENAMED.get(name, name)}((f32){x})"

    return call


for _name in REAL:
    setattr(DialectOps, _name, staticmethod(_real(_name)))
for _name in (*SPECIAL, "ndtr"):
    setattr(DialectOps, _name, staticmethod(_special(_name)))
