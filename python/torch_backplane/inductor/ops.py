"""Inductor's operators as expressions of the dialect: a text or a method for each.

An operator that is not here is a call of the device's own operator (fallbacks.py). Uses a private class of torch,
``OpOverrides``; tested on torch 2.11, 2.12, 2.13 and 2.15.
"""
# Operands are names of variables, which torch types as numbers or as text.
# mypy: disable-error-code="override,arg-type,union-attr,operator,index"

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import sympy
import torch
from torch._inductor.codegen.common import CSEVariable, OpOverrides
from torch._inductor.ops_handler import OpsHandler
from torch._inductor.virtualized import OpsWrapper, V, ops

from torch_backplane.inductor import dtypes
from torch_backplane.inductor.dtypes import cast, computed, literal

# Functions of a real number that the dialect has for f32 (bp_<name>) and f64 (bp_<name>64).
REAL = (
    "acos acosh asin asinh atan atanh cos cosh erf erfc exp exp2 expm1 lgamma log log10 log1p log2 sin sinh sqrt tan "
    "tanh atan2 copysign fma fmod hypot"
).split()
# Functions that it only has for f32, by Inductor's name.
SPECIAL = {name: name for name in "digamma erfinv i0 i0e i1 i1e log_ndtr ndtri".split()} | {"ndtr": "normal_cdf"}


def function(name: str, dtype: torch.dtype | None) -> str:
    """The dialect's function of a real number."""
    if dtype != torch.float64:
        return f"bp_{name}"
    return f"bp_{name}{'_' if name[-1].isdigit() else ''}64"


def _promoted(*values: Any) -> torch.dtype:
    known = [computed(value.dtype) for value in values if isinstance(value, CSEVariable) and value.dtype is not None]
    return reduce(torch.promote_types, known)


class _Words(dict[str, Any]):
    """The words of a text: the operands, and what follows from their dtype, which not all texts need."""

    def __missing__(self, word: str) -> Any:
        dtype = _promoted(*self.values())
        facts = {"kind": dtypes.REGISTER[dtype], "bits": 8 * dtype.itemsize}
        return facts.get(word) or function(word, dtype)


def _text(text: str, others: str | None = None, *, divides: bool = False) -> Any:
    """An operator by its text, in which {a}, {b} and {c} are the operands.

    {kind} is the register type of their common dtype, {bits} its width, any other word the dialect's function for it.

    Args:
        text: for all dtypes, or with ``others`` for floating-point dtypes.
        others: for other dtypes.
        divides: report a second operand that is an integer and 0.
    """

    def write(*operands: Any) -> str:
        is_other = (divides or others is not None) and not _promoted(*operands).is_floating_point
        if is_other and divides:
            V.kernel.check_divisor(operands[1])
        chosen = others if is_other and others is not None else text
        return chosen.format_map(_Words(zip("abc", operands, strict=False)))

    return staticmethod(write)


def _rounded(name: str) -> Any:
    """An operator that converts a rounded number to an integer dtype."""
    return staticmethod(lambda x, dtype: cast(getattr(DialectOps, name)(x), dtype))


class DialectOps(OpOverrides):
    """Text of an operator, given the names of its operands."""

    where = _text("{a} ? {b} : {c}")
    neg = _text("-{a}")
    sign = _text("({kind})(({a} > 0) - ({a} < 0))")
    signbit = _text("{copysign}(({kind})1, {a}) < 0", "{a} < 0")
    reciprocal = _text("({kind})1 / {a}")
    rsqrt = _text("({kind})1 / {sqrt}({a})")
    sigmoid = _text("({kind})1 / (({kind})1 + {exp}(-{a}))")
    relu = _text("{a} <= 0 ? ({kind})0 : {a}")
    square = _text("{a} * {a}")
    isnan = _text("{a} != {a}")
    isinf = _text("{fabs}({a}) == BP_INFINITY", "0")
    ldexp = _text("{ldexp}({a}, {b})")
    nextafter = _text("bp_nextafter_{kind}({a}, {b})")
    maximum = _text("bp_max_{kind}({a}, {b})", "bp_max_int({a}, {b})")
    minimum = _text("bp_min_{kind}({a}, {b})", "bp_min_int({a}, {b})")
    truediv = _text("{a} / {b}", "(f32){a} / (f32){b}")
    div_rn = _text("{a} / {b}")
    mul_rn = _text("{a} * {b}")
    int_truediv = _text("(f32)((f64){a} / (f64){b})")
    truncdiv = _text("bp_quotient({a}, {b})", divides=True)
    floordiv = _text("bp_floor_quotient_{kind}({a}, {b})", "({kind})bp_floor_quotient({a}, {b})", divides=True)
    mod = _text("{fmod}({a}, {b})", "bp_rest({a}, {b})", divides=True)
    remainder = _text("{remainder}({a}, {b})", "({kind})bp_floor_rest({a}, {b})", divides=True)
    pow = _text("{pow}(({kind}){a}, ({kind}){b})", "({kind})bp_int_power({a}, {b})")
    floor = _text("{floor}({a})", "{a}")
    ceil = _text("{ceil}({a})", "{a}")
    trunc = _text("{trunc}({a})", "{a}")
    round = _text("{rint}({a})", "{a}")
    logical_and = _text("({a} != 0) & ({b} != 0)")
    logical_or = _text("({a} != 0) | ({b} != 0)")
    logical_xor = _text("({a} != 0) != ({b} != 0)")
    logical_not = _text("{a} == 0")
    bitwise_left_shift = _text("({kind})bp_left({a}, {b}, {bits})")
    bitwise_right_shift = _text("({kind})bp_right({a}, {b}, {bits})")
    floor_to_int = _rounded("floor")
    ceil_to_int = _rounded("ceil")
    trunc_to_int = _rounded("trunc")
    round_to_int = _rounded("round")

    erfcx = OpsHandler.erfcx  # a call: torch's expression for any backend is infinite from 10 on, and NaN

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

    value_expr = index_expr

    @staticmethod
    def indirect_indexing(
        var: CSEVariable, size: sympy.Expr | int, check: bool = True, wrap_neg: bool = True
    ) -> sympy.Symbol:
        return V.kernel.checked_place(var, sympy.sympify(size), check)

    @staticmethod
    def masked(mask: CSEVariable, body: Callable[[], CSEVariable], other: Any) -> Any:
        with V.kernel.mask_loads(mask, other) as both:
            value = OpsWrapper._unwrap(body())
        other = other if isinstance(other, CSEVariable) else ops.constant(other, value.dtype)
        return OpsWrapper._unwrap(ops.where(both, value, other))

    @staticmethod
    def identity(x: Any) -> Any:
        return x

    @staticmethod
    def abs(x: CSEVariable) -> str:
        if x.dtype.is_floating_point:
            return f"{function('fabs', x.dtype)}({x})"
        return f"{x} < 0 ? -{x} : {x}" if x.dtype.is_signed else f"{x}"

    @staticmethod
    def bitwise_not(x: CSEVariable) -> str:
        return f"{x} == 0" if x.dtype == torch.bool else f"~{x}"

    @staticmethod
    def frexp(x: CSEVariable) -> tuple[CSEVariable, CSEVariable]:
        kind, generate = dtypes.REGISTER[x.dtype], V.kernel.generate
        return generate(f"bp_mantissa_{kind}({x})", x.dtype), generate(f"bp_exponent_{kind}({x})", torch.int32)

    # Random numbers by a seed and a place in its sequence (kernels/portable/random/random.cpp).

    @staticmethod
    def rand(seed: CSEVariable, offset: CSEVariable) -> str:
        return f"bp_philox_uniform(bp_philox_number({offset}, {V.kernel.random_block(seed, offset)}))"

    @staticmethod
    def randn(seed: CSEVariable, offset: CSEVariable) -> str:
        return V.kernel.random_normal(seed, offset)

    @staticmethod
    def randint64(seed: CSEVariable, offset: CSEVariable, low: CSEVariable, high: CSEVariable) -> str:
        return f"bp_philox_between({offset}, {low}, {high}, {V.kernel.random_block(seed, offset)})"


def _real(name: str) -> Callable[..., str]:
    def call(*operands: CSEVariable) -> str:
        dtype = _promoted(*operands)
        if not dtype.is_floating_point:
            dtype = torch.float32
        kind = dtypes.REGISTER[dtype]
        return f"{function(name, dtype)}({', '.join(f'({kind}){operand}' for operand in operands)})"

    return call


def _special(name: str) -> Callable[[CSEVariable], str]:
    def call(x: CSEVariable) -> str:
        if x.dtype == torch.float64:
            raise NotImplementedError(f"{name} of float64 in a kernel")
        return f"bp_{SPECIAL[name]}((f32){x})"

    return call


for _name in REAL:
    setattr(DialectOps, _name, staticmethod(_real(_name)))
for _name in SPECIAL:
    setattr(DialectOps, _name, staticmethod(_special(_name)))
