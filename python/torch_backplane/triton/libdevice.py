"""CUDA's libdevice (``triton.language.extra.libdevice``) in the dialect's words.

Symbols are ``__nv_<name>``, with an f behind it for f32, or with the rounding or the types in it. Functions that are
correctly rounded in a direction other than to nearest, but for quotients toward zero, have no word, and raise.
"""

from __future__ import annotations

import re

from torch_backplane.triton import words
from torch_backplane.triton.ttir import Type
from torch_backplane.triton.words import Unsupported, register

_FUNCTIONS = (
    "acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh erf erfc exp exp2 expm1 fabs floor fma fmod hypot "
    "lgamma log log10 "
    "log1p log2 pow rint sin sinh sqrt tan tanh trunc"
).split()
"""Those that the dialect has for f32 and f64 by the same name."""
_ONLY_F32 = {
    "erfinv": "bp_erfinv({a})",
    "erfcinv": "({a} > 0.5f ? bp_erfinv(1.0f - {a}) : -0.707106781f * bp_ndtri(0.5f * {a}))",
    "cyl_bessel_i0": "bp_i0({a})",
    "cyl_bessel_i1": "bp_i1({a})",
    "normcdf": "bp_normal_cdf({a})",
    "normcdfinv": "bp_ndtri({a})",
}
_OTHER_NAMES = {"nearbyint": "rint", "llrint": "rint"}
_TEXTS = {
    "abs": "({a} < 0 ? -{a} : {a})",
    "llabs": "({a} < 0 ? -{a} : {a})",
    "fmax": "(({b} != {b}) | ({a} > {b}) ? {a} : {b})",
    "fmin": "(({b} != {b}) | ({a} < {b}) ? {a} : {b})",
    "fdim": "({a} <= {b} ? ({T})0 : {a} - {b})",
    "saturate": "({a} > ({T})0 ? {a} < ({T})1 ? {a} : ({T})1 : ({T})0)",
    "rsqrt": "(({T})1 / {sqrt}({a}))",
    "rcp": "(({T})1 / {a})",
    "exp10": "{pow}(({T})10, {a})",
    "cbrt": "{copysign}({pow}({fabs}({a}), ({T})0.33333333333333333), {a})",
    "rcbrt": "(({T})1 / {copysign}({pow}({fabs}({a}), ({T})0.33333333333333333), {a}))",
    "rhypot": "(({T})1 / {hypot}({a}, {b}))",
    "norm3d": "{hypot}({hypot}({a}, {b}), {c})",
    "rnorm3d": "(({T})1 / {hypot}({hypot}({a}, {b}), {c}))",
    "norm4d": "{hypot}({hypot}({a}, {b}), {hypot}({c}, {d}))",
    "rnorm4d": "(({T})1 / {hypot}({hypot}({a}, {b}), {hypot}({c}, {d})))",
    "sinpi": "bt_sinpi_{T}({a})",
    "cospi": "bt_cospi_{T}({a})",
    "round": "{copysign}({floor}({fabs}({a}) + ({T})0.5), {a})",
    "llround": "((i64){copysign}({floor}({fabs}({a}) + ({T})0.5), {a}))",
    "remainder": "bt_remainder_{T}({a}, {b})",
    "nextafter": "bp_nextafter_{T}({a}, {b})",
    "ldexp": "{ldexp}({a}, {b})",
    "scalbn": "{ldexp}({a}, {b})",
    "powi": "{copysign}({pow}({fabs}({a}), ({T}){b}), ({b} & 1) != 0 ? {a} : ({T})1)",
    "ilogb": "(({a} == 0) | ({a} != {a}) ? -2147483647 - 1 : {fabs}({a}) == ({T})BP_INFINITY ? 2147483647 : "
    "bp_exponent_{T}({a}) - 1)",
    "logb": "({a} == 0 ? -({T})BP_INFINITY : {fabs}({a}) < ({T})BP_INFINITY ? ({T})(bp_exponent_{T}({a}) - 1) "
    ": {a} * {a})",
    "isnan": "({a} != {a})",
    "isinf": "({fabs}({a}) == ({T})BP_INFINITY)",
    "finite": "({fabs}({a}) < ({T})BP_INFINITY)",
    "isfinite": "({fabs}({a}) < ({T})BP_INFINITY)",
    "signbit": "({copysign}(({T})1, {a}) < 0)",
    "mulhi": "((i32)((i64){a} * (i64){b} >> 32))",
    "umulhi": "((i32)((u64)(u32){a} * (u64)(u32){b} >> 32))",
    "umul64hi": "((i64)bt_high_product((u64){a}, (u64){b}))",
    "mul64hi": "((i64)(bt_high_product((u64){a}, (u64){b}) - ({a} < 0 ? (u64){b} : 0) - ({b} < 0 ? (u64){a} : 0)))",
    "mul24": "((({a} << 8) >> 8) * (({b} << 8) >> 8))",
    "umul24": "(({a} & 0xffffff) * ({b} & 0xffffff))",
    "hadd": "((i32)((i64){a} + {b} >> 1))",
    "rhadd": "((i32)((i64){a} + {b} + 1 >> 1))",
    "uhadd": "((i32)((u64)(u32){a} + (u32){b} >> 1))",
    "urhadd": "((i32)((u64)(u32){a} + (u32){b} + 1 >> 1))",
    "sad": "(({a} > {b} ? {a} - {b} : {b} - {a}) + {c})",
    "usad": "(((u32){a} > (u32){b} ? {a} - {b} : {b} - {a}) + {c})",
    "popc": "bt_population({a}, 32)",
    "popcll": "bt_population({a}, 64)",
    "clz": "bt_leading_zeros({a}, 32)",
    "clzll": "bt_leading_zeros({a}, 64)",
    "ffs": "bt_first_set({a}, 32)",
    "ffsll": "bt_first_set({a}, 64)",
    "brev": "((i32)bt_reversed((u32){a}, 32))",
    "brevll": "((i64)bt_reversed((u64){a}, 64))",
    "fdivide": "({a} / {b})",
    "byte_perm": "bt_byte_perm((u32){a}, (u32){b}, (u32){c})",
    "hiloint2double": "bp_as_f64((u64)(u32){a} << 32 | (u32){b})",
    "double2hiint": "((i32)(u32)(bp_as_u64({a}) >> 32))",
    "double2loint": "((i32)(u32)bp_as_u64({a}))",
}
"""By their texts: {T} is the operands' register type, {pow} and the like the dialect's function of it."""
_DIRECTED = re.compile(r"_r[duz]$")
_TO_NEAREST = re.compile(r"[fd](add|sub|mul|div|rcp|sqrt|ma)_rn$")
_OPERATORS = {"add": "({a} + {b})", "sub": "({a} - {b})", "mul": "({a} * {b})", "div": "({a} / {b})"}
_CONVERSION = re.compile(r"(double|float|int|uint|ll|ull)2(double|float|int|uint|ll|ull)(_r[dnuz])$")
_ROUNDINGS = {"_rn": "rint", "_rd": "floor", "_ru": "ceil", "_rz": "trunc"}
_BITS = re.compile(r"(double|float|int|uint|longlong)_as_(double|float|int|uint|longlong)$")


def call(symbol: str, source: Type, result: Type, operands: list[str]) -> str:
    """The value of a function of libdevice: `source` is its first operand's type, `result` its own."""
    name = symbol.removeprefix("__nv_").removeprefix("fast_").replace("fmaf_", "fma_")
    if _BITS.match(name):
        return words.from_bits(result, words.to_bits(source, operands[0]))
    if found := _CONVERSION.match(name):
        return _conversion(found, source, result, operands[0])
    if found := _TO_NEAREST.match(name):
        kind = found.group(1)
        text = _OPERATORS.get(kind) or _TEXTS.get(kind) or {"sqrt": "{sqrt}({a})", "ma": "{fma}({a}, {b}, {c})"}[kind]
        return _formatted(text, source, operands)
    if name == "frsqrt_rn":
        return _formatted(_TEXTS["rsqrt"], source, operands)
    if name == "fma_rn":
        return _formatted("{fma}({a}, {b}, {c})", source, operands)
    if name in ("fdiv_rz", "ddiv_rz"):
        return f"bt_quotient_toward_zero_{register(source)}({operands[0]}, {operands[1]})"
    if _DIRECTED.search(name):
        raise Unsupported(
            f"{symbol}: results are rounded to nearest; write the operator, or the function that ends with _rn"
        )
    for base in (name, *(name[:-1] for _ in [0] if name[-1] in "fd")):
        base = _OTHER_NAMES.get(base, base)
        if base in _FUNCTIONS:
            text = f"{{{base}}}({', '.join('{' + letter + '}' for letter, _ in zip('abc', operands, strict=False))})"
            value = _formatted(text, source, operands)
            return value if result.is_float else f"(({register(result)}){value})"
        if base in _TEXTS:
            return _formatted(_TEXTS[base], source, operands)
        if base in _ONLY_F32 and register(source) == "f32":
            return _formatted(_ONLY_F32[base], source, operands)
        if base == "normcdf":
            return _formatted("(0.5 * {erfc}({a} * -0.70710678118654752))", source, operands)
    raise Unsupported(f"{symbol} of libdevice; write it with functions of tl.math")


class _Words(dict[str, str]):
    """The operands, and the dialect's function of the operands' type for any other word."""

    def __missing__(self, word: str) -> str:
        if self["T"] == "f64":
            word += f"{'_' if word[-1].isdigit() else ''}64"
        return f"bp_{word}"


def _formatted(text: str, source: Type, operands: list[str]) -> str:
    return text.format_map(_Words(zip("abcd", operands, strict=False), T=register(source)))


def _conversion(name: re.Match[str], source: Type, result: Type, x: str) -> str:
    before, after, rounding = name.groups()
    kind = register(result)
    if not source.is_float:
        if before[0] == "u":
            x = f"({words.unsigned(source)}){x}"
        if rounding != "_rn":
            raise Unsupported(
                "conversions of integers to floats are rounded to nearest: use the function that ends with _rn"
            )
        return f"(({kind}){x})"
    if result.is_float:
        if rounding != "_rn":
            raise Unsupported("conversions to f32 are rounded to nearest: use double2float_rn")
        return f"(({kind}){x})"
    rounded = _formatted("{" + _ROUNDINGS[rounding] + "}({a})", source, [x])
    if after == "ull":
        return f"((i64)bp_to_u64_{register(source)}({rounded}))"
    return f"(({kind})(i64){rounded})" if after == "uint" else f"(({kind}){rounded})"


HELPERS = {
    **{
        f"bt_quotient_toward_zero_{kind}": f"""/* The rest is exact: its sign says whether the quotient is too large. */
BP_FN {kind} bt_quotient_toward_zero_{kind}({kind} a, {kind} b) {{
  const {kind} quotient = a / b;
  const {kind} rest = {fma}(-quotient, b, a);
  return (a > 0 && rest < 0) || (a < 0 && rest > 0) ? bp_nextafter_{kind}(quotient, ({kind})0) : quotient;
}}
"""
        for kind, fma in {"f32": "bp_fma", "f64": "bp_fma64"}.items()
    },
    "bt_population": """BP_FN i32 bt_population(i64 x, i32 bits) {
  i32 count = 0;
  for (i32 i = 0; i < bits; ++i) count += (i32)((u64)x >> i & 1u);
  return count;
}
""",
    "bt_leading_zeros": """BP_FN i32 bt_leading_zeros(i64 x, i32 bits) {
  i32 count = bits;
  for (i32 i = 0; i < bits; ++i) count = ((u64)x >> i & 1u) != 0 ? bits - 1 - i : count;
  return count;
}
""",
    "bt_first_set": """BP_FN i32 bt_first_set(i64 x, i32 bits) {
  i32 found = 0;
  for (i32 i = bits - 1; i >= 0; --i) found = ((u64)x >> i & 1u) != 0 ? i + 1 : found;
  return found;
}
""",
    "bt_reversed": """BP_FN u64 bt_reversed(u64 x, i32 bits) {
  u64 result = 0;
  for (i32 i = 0; i < bits; ++i) result |= (x >> i & 1u) << (bits - 1 - i);
  return result;
}
""",
    "bt_byte_perm": """BP_FN i32 bt_byte_perm(u32 low, u32 high, u32 selector) {
  const u64 bytes = (u64)high << 32 | low;
  u32 result = 0;
  for (u32 i = 0; i < 4; ++i) result |= (u32)(bytes >> ((selector >> (4 * i) & 7u) * 8) & 255u) << (8 * i);
  return (i32)result;
}
""",
}
"""Functions that the texts call, written into a kernel whose text has the name."""


def _of_reals(kind: str, largest: str) -> dict[str, str]:
    """Functions of a kind of floats, whose largest number is given."""
    of = _Words(T=kind)
    return {
        f"bt_sinpi_{kind}": f"""BP_FN {kind} bt_sinpi_{kind}({kind} x) {{
  const {kind} r = x - 2 * {of["rint"]}(x / 2), a = {of["fabs"]}(r);
  const {kind} found = {of["sin"]}(({kind})3.14159265358979323846 * (a * 2 > 1 ? 1 - a : a));
  return {of["copysign"]}(found, found == 0 ? x : r);
}}
""",
        f"bt_cospi_{kind}": f"""BP_FN {kind} bt_cospi_{kind}({kind} x) {{
  const {kind} a = {of["fabs"]}(x - 2 * {of["rint"]}(x / 2));
  return {of["sin"]}(({kind})3.14159265358979323846 * (({kind})0.5 - a));
}}
""",
        f"bt_remainder_{kind}": f"""/* Exact, of the nearest quotient, the even one of two. */
BP_FN {kind} bt_remainder_{kind}({kind} x, {kind} y) {{
  const {kind} p = {of["fabs"]}(y), half = ({kind})0.5 * p;
  {kind} r = {of["fabs"]}(x);
  if (!(r < ({kind})BP_INFINITY) | (p != p)) return ({kind})BP_NAN;
  if (p <= {largest} / 2) r = {of["fmod"]}(r, p + p);
  if (half * 2 != p) {{ /* half of a subnormal number was rounded */
    if (r + r > p) {{
      r -= p;
      if (r + r >= p) r -= p;
    }}
  }} else if (r > half) {{
    r -= p;
    if (r >= half) r -= p;
  }}
  return {of["copysign"]}((({kind})1), x) < 0 ? -r : r;
}}
""",
    }


HELPERS.update(_of_reals("f32", "3.40282347e38f"))
HELPERS.update(_of_reals("f64", "1.7976931348623157e308"))
