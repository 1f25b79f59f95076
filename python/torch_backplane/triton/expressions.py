"""The dialect's expressions of TTIR's elementwise operations: of one element, from the names of the operands' elements.

Each handler takes the operation and its operands' texts, which are names or literals and may be repeated.
"""

from __future__ import annotations

from collections.abc import Callable

from torch_backplane.triton import libdevice, words
from torch_backplane.triton.ttir import Op, Type
from torch_backplane.triton.words import NARROW, Unsupported, register, rounded, unsigned

Handler = Callable[[Op, list[str]], str]
HANDLERS: dict[str, Handler] = {}

_SIGNED = {"eq": "==", "ne": "!=", "slt": "<", "sle": "<=", "sgt": ">", "sge": ">="}
_UNSIGNED = {"ult": "<", "ule": "<=", "ugt": ">", "uge": ">="}
_FLOAT = {
    "oeq": "{a} == {b}",
    "olt": "{a} < {b}",
    "ole": "{a} <= {b}",
    "ogt": "{a} > {b}",
    "oge": "{a} >= {b}",
    "one": "(({a} < {b}) | ({a} > {b}))",
    "ord": "(({a} == {a}) & ({b} == {b}))",
    "une": "{a} != {b}",
    "ult": "!({a} >= {b})",
    "ule": "!({a} > {b})",
    "ugt": "!({a} <= {b})",
    "uge": "!({a} < {b})",
    "ueq": "!(({a} < {b}) | ({a} > {b}))",
    "uno": "(({a} != {a}) | ({b} != {b}))",
    "true": "1",
    "false": "0",
}

COSTLY = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh atan2 erf powf "
    "sqrt rsqrt "
    "divf remf divsi remsi divui remui precise_sqrt precise_divf extern_elementwise mulhiui map_elementwise".split()
)
"""Operations whose value is worth an array where it would be computed twice."""


def expression(op: Op, operands: list[str]) -> str:
    """The value of one element of the operation's first result."""
    handler = HANDLERS.get(op.name)
    if handler is None:
        raise Unsupported(op.name)
    return handler(op, operands)


def _handles(*names: str) -> Callable[[Handler], Handler]:
    def register_handler(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return register_handler


def _text(name: str, text: str, *, rounds: bool = False) -> None:
    """An operation by its text.

    {a}, {b} and {c} are the operands, {T} the result's register type, {U} the same unsigned, {S} the operands'.
    """

    def handler(op: Op, operands: list[str]) -> str:
        type = op.result.type
        found = text.format(
            **dict(zip("abc", operands, strict=False)),
            T=register(type),
            U="" if type.is_float else unsigned(type),
            S="" if op.operands[0].type.is_float or op.operands[0].type.is_pointer else unsigned(op.operands[0].type),
            mask=type.bits - 1,
        )
        return rounded(type, f"({found})") if rounds else f"({found})"

    HANDLERS[name] = handler


for _name, _sign in {"addf": "+", "subf": "-", "mulf": "*", "divf": "/"}.items():
    _text(f"arith.{_name}", f"{{a}} {_sign} {{b}}", rounds=True)
for _name, _sign in {"andi": "&", "ori": "|", "xori": "^"}.items():
    _text(f"arith.{_name}", f"{{a}} {_sign} {{b}}")
_text("arith.negf", "-{a}")
_text("arith.select", "{a} ? {b} : {c}")
_text("arith.shli", "({T})(({U}){a} << ({b} & {mask}))")
_text("arith.shrsi", "({T})({a} >> ({b} & {mask}))")
_text("arith.shrui", "({T})(({U}){a} >> ({b} & {mask}))")
_text("arith.divsi", "({T})bp_quotient({a}, {b})")
_text("arith.remsi", "({T})bp_rest({a}, {b})")
_text("arith.divui", "{b} == 0 ? ({T})0 : ({T})(({U}){a} / ({U}){b})")
_text("arith.remui", "{b} == 0 ? ({T})0 : ({T})(({U}){a} % ({U}){b})")
_text("arith.floordivsi", "({T})bp_floor_quotient({a}, {b})")
_text("arith.ceildivsi", "({T})-bp_floor_quotient(-(i64){a}, {b})")
for _name, _sign in {"max": ">", "min": "<"}.items():
    _text(f"arith.{_name}si", f"{{a}} {_sign} {{b}} ? {{a}} : {{b}}")
    _text(f"arith.{_name}ui", f"({{U}}){{a}} {_sign} ({{U}}){{b}} ? {{a}} : {{b}}")
    _text(f"arith.{_name}numf", f"bt_{_name}num_{{T}}({{a}}, {{b}})")
    _text(f"arith.{_name}imumf", f"bp_{_name}_{{T}}({{a}}, {{b}})")
_text("tt.precise_divf", "{a} / {b}")
_text("math.absi", "({T})({a} < 0 ? -{a} : {a})")
_text("tt.addptr", "{a} + (i64){b}")
_text("tt.ptr_to_int", "(i64)(u64){a}")
_text("tt.int_to_ptr", "({T})(u64){a}")
_text("arith.extui", "({T})({S}){a}")
_text("arith.index_castui", "({T})({S}){a}")
_text("arith.fptosi", "({T}){a}")
_text("ub.poison", "({T})0")


def _wrapping(sign: str) -> Handler:
    def handler(op: Op, operands: list[str]) -> str:
        text, type = f"({operands[0]} {sign} {operands[1]})", op.result.type
        if type.elem == "i1":
            return f"({text} & 1)"
        return f"(({type.elem}){text})" if type.bits < 32 else text

    return handler


for _name, _sign in {"addi": "+", "subi": "-", "muli": "*"}.items():
    HANDLERS[f"arith.{_name}"] = _wrapping(_sign)


def _predicate(op: Op) -> str:
    return op.body.split(",")[0].strip()


@_handles("arith.cmpi")
def _compare_integers(op: Op, operands: list[str]) -> str:
    predicate = _predicate(op)
    a, b = operands
    if predicate in _SIGNED:
        return f"({a} {_SIGNED[predicate]} {b})"
    kind = unsigned(op.operands[0].type)
    return f"(({kind}){a} {_UNSIGNED[predicate]} ({kind}){b})"


@_handles("arith.cmpf")
def _compare_floats(op: Op, operands: list[str]) -> str:
    return f"({_FLOAT[_predicate(op)].format(a=operands[0], b=operands[1])})"


@_handles("tt.clampf")
def _clamp(op: Op, operands: list[str]) -> str:
    x, low, high = operands
    within = f"({x} < {low} ? {low} : {x} > {high} ? {high} : {x})"
    return within if "all" in op.body else f"({x} != {x} ? {low} : {within})"


@_handles("arith.extsi", "arith.trunci", "arith.index_cast")
def _cast_integer(op: Op, operands: list[str]) -> str:
    kind = register(op.result.type)
    if op.operands[0].type.elem == "i1":
        return f"(({kind})-({operands[0]}))"
    return f"({operands[0]} & 1)" if op.result.type.elem == "i1" else f"(({kind}){operands[0]})"


@_handles("arith.extf", "arith.truncf", "tt.fp_to_fp")
def _cast_float(op: Op, operands: list[str]) -> str:
    source, to = op.operands[0].type, op.result.type
    if to.elem == "f64":
        return f"((f64){operands[0]})"
    value = f"((f32){operands[0]})" if source.elem == "f64" else operands[0]
    if to.elem not in NARROW or to.elem == source.elem:
        return value
    if "rtz" in op.body:
        return words.from_bits(to, f"bt_toward_zero({value}, {words.to_bits(to, value)}, {words.rounded(to, value)})")
    return rounded(to, value)


@_handles("arith.sitofp")
def _signed_to_float(op: Op, operands: list[str]) -> str:
    value = f"(-{operands[0]})" if op.operands[0].type.elem == "i1" else operands[0]
    return rounded(op.result.type, f"(({register(op.result.type)}){value})")


@_handles("arith.uitofp")
def _unsigned_to_float(op: Op, operands: list[str]) -> str:
    return rounded(op.result.type, f"(({register(op.result.type)})({unsigned(op.operands[0].type)}){operands[0]})")


@_handles("arith.fptoui")
def _float_to_unsigned(op: Op, operands: list[str]) -> str:
    type, source = op.result.type, register(op.operands[0].type)
    value = f"bp_to_u64_{source}({operands[0]})" if type.bits == 64 else f"(i64){operands[0]}"
    return f"(({register(type)}){value})"


@_handles("arith.bitcast", "tt.bitcast")
def _bitcast(op: Op, operands: list[str]) -> str:
    source, to = op.operands[0].type, op.result.type
    if source.is_pointer or to.is_pointer:
        return f"(({register(to)}){operands[0]})"
    if source.elem == to.elem:
        return operands[0]
    return words.from_bits(to, words.to_bits(source, operands[0]))


@_handles("tt.mulhiui")
def _high_product(op: Op, operands: list[str]) -> str:
    a, b = operands
    if op.result.type.bits == 64:
        return f"((i64)bt_high_product((u64){a}, (u64){b}))"
    return f"((i32)((u64)(u32){a} * (u64)(u32){b} >> 32))"


@_handles("tt.extern_elementwise")
def _extern(op: Op, operands: list[str]) -> str:
    source = op.operands[0].type if op.operands else op.result.type
    return libdevice.call(op.attributes["symbol"], source, op.result.type, operands)


def _math(name: str) -> Handler:
    return lambda op, operands: rounded(op.result.type, function(name, op.result.type, operands))


def function(name: str, type: Type, operands: list[str]) -> str:
    """A call of the dialect's function of real numbers, in the type's register type."""
    if register(type) == "f64":
        name = f"{name}{'_' if name[-1].isdigit() else ''}64"
    return f"bp_{name}({', '.join(operands)})"


for _name in (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc sqrt "
    "floor ceil trunc "
    "atan2 fma copysign"
).split():
    HANDLERS[f"math.{_name}"] = _math(_name)
for _name, _other in {"absf": "fabs", "powf": "pow", "roundeven": "rint"}.items():
    HANDLERS[f"math.{_name}"] = _math(_other)
HANDLERS["arith.remf"] = _math("fmod")
HANDLERS["tt.precise_sqrt"] = _math("sqrt")


@_handles("math.rsqrt")
def _reciprocal_root(op: Op, operands: list[str]) -> str:
    kind = register(op.result.type)
    return rounded(op.result.type, f"(({kind})1 / {function('sqrt', op.result.type, operands)})")


HELPERS = {
    **{
        f"bt_{name}num_{kind}": f"""/* A NaN loses. */
BP_FN {kind} bt_{name}num_{kind}({kind} a, {kind} b) {{
  const {kind} found = a {sign} b ? a : b;
  return b == b ? found : a;
}}
"""
        for name, sign in {"max": ">", "min": "<"}.items()
        for kind in ("f32", "f64")
    },
    "bt_high_product": """BP_FN u64 bt_high_product(u64 a, u64 b) {
  const u64 low = (a & 0xffffffffu) * (b & 0xffffffffu);
  const u64 middle = (a >> 32) * (b & 0xffffffffu) + (low >> 32);
  const u64 other = (a & 0xffffffffu) * (b >> 32) + (middle & 0xffffffffu);
  return (a >> 32) * (b >> 32) + (middle >> 32) + (other >> 32);
}
""",
    "bt_toward_zero": """/* The bits of a small float, one step down where it was rounded away from zero. */
BP_FN u32 bt_toward_zero(f32 x, u32 bits, f32 rounded) { return bp_fabs(rounded) > bp_fabs(x) ? bits - 1u : bits; }
""",
}
"""Functions that expressions call, written into a kernel whose text has the name."""
