"""The lint of the kernel dialect: what some compiler would refuse, or take for something else (docs/dialect.md, Rules).

It reads the text before any preprocessor does, so it sees every branch of ``#if``, and macros where they are defined.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

RULES = {
    "type": "types are i8 .. u64, f32 and f64: C's own differ between compilers",
    "half": "halves are u16 in memory and f32 in registers: no compiler's type of them",
    "keyword": "a keyword of C++ or OpenCL C cannot be a name",
    "function": "a function or a macro of the name of one of OpenCL C, CUDA or the C library hides it, or is refused",
    "compiler": "words of one compiler belong into its prelude",
    "suffix": "constants of f32 end with f: without it they are doubles, which a target may not support",
    "maximum": "fmax and fmin drop a NaN; compare",
    "index": "BP_ITEM, BP_GROUP_ID, BP_GROUPS and bp_arg are parameters of the kernel: pass what a function needs",
    "local": "BP_LOCAL_ARRAY is at the top of a kernel's body",
    "pointer": "a function's pointer parameter says BP_GLOBAL or BP_LOCAL",
    "cast": "a cast to a pointer says BP_GLOBAL or BP_LOCAL: to an item's own variables there are no pointers",
    "null": "there is no null pointer to local memory: pass a number that says whether there is something",
    "literal": "there are no compound literals: declare a variable, or use BP_VECTOR_ZERO",
    "params": "members of a kernel's struct are i32, u32, i64, u64, f32 or f64, and no pointers",
    "size": "the size of a kernel's struct is a multiple of 8: fill it up",
    "pointers": "the second argument of BP_KERNEL is how many pointers follow",
    "recursion": "a function does not call itself",
    "function-pointer": "there are no pointers to functions",
    "goto": "there is no goto",
}
"""What each rule says, by its name: docs/dialect.md has the compilers that force them."""

_TYPES = frozenset(
    "int long short char unsigned signed float double bool _Bool size_t ssize_t ptrdiff_t int8_t int16_t int32_t "
    "int64_t uint8_t uint16_t uint32_t uint64_t uchar ushort uint ulong".split()
)
_HALVES = frozenset("half __half _Float16 float16 bfloat16 __bf16 nv_bfloat16".split())
_KEYWORDS = frozenset(
    "local kernel global constant private generic pipe uniform asm restrict inline register class template this "
    "new delete operator namespace typename using virtual public protected friend explicit mutable export try "
    "catch throw typeid and or not xor bitand bitor compl".split()
)
_FUNCTIONS = frozenset(
    "step mix sign select clamp degrees radians distance dot cross length normalize smoothstep rotate any all abs "
    "min max mad popcount clz ctz exp exp2 exp10 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh "
    "cosh tanh asinh acosh atanh pow sqrt rsqrt cbrt hypot floor ceil round trunc rint fabs fma fmod remainder "
    "copysign ldexp frexp modf isnan isinf isfinite signbit erf erfc erfinv lgamma tgamma gamma j0 j1 jn y0 y1 yn "
    "index random rand div upsample shuffle shuffle2 bitselect vec_step hadd rhadd mad_hi mad_sat mad24 mul_hi mul24 "
    "add_sat sub_sat abs_diff acospi asinpi atanpi atan2pi cospi sinpi tanpi fdim fract ilogb logb maxmag minmag nan "
    "nextafter pown powr remquo rootn sincos isequal isnotequal isgreater isless isordered isunordered isnormal "
    "prefetch barrier mem_fence printf".split()
)
_INDICES = frozenset("BP_ITEM BP_GROUP_ID BP_GROUPS BP_AT BP_TAIL bp_arg".split())
_MEMBERS = {"i32": 4, "u32": 4, "f32": 4, "i64": 8, "u64": 8, "f64": 8}
_OF_A_COMPILER = re.compile(r"__\w*|get_(global|local|group)_\w+|threadIdx|blockIdx|blockDim|gridDim")
_TOKEN = re.compile(
    r"(?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?\w*)|(?P<word>[A-Za-z_]\w*)|(?P<mark>##|->|[^\s\w])"
)


@dataclass(frozen=True)
class Problem:
    """A line that breaks a rule."""

    line: int
    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.line}: {self.rule}: {self.what}; {RULES[self.rule]}"


@dataclass(frozen=True)
class _Token:
    text: str
    line: int
    macro: bool
    """In a preprocessor's line."""
    defined: bool
    """The name of a macro, where it is defined."""
    wide: bool
    """Where f64 is known to be there, or the type is f64's."""


@dataclass
class _Function:
    name: str
    line: int
    head: list[_Token]
    """Between the parentheses."""
    body: list[_Token]
    is_kernel: bool


def lint(text: str) -> list[Problem]:
    """The problems of a file's text, in its order."""
    tokens = list(_tokens(text))
    functions = list(_functions(tokens))
    found = [problem for check in _CHECKS for problem in check(tokens, functions)]
    return sorted(set(found), key=lambda problem: (problem.line, problem.rule, problem.what))


def _tokens(text: str) -> Iterator[_Token]:
    code = re.sub(r"/\*.*?\*/|//[^\n]*", lambda comment: re.sub(r"[^\n]", " ", comment[0]), text, flags=re.DOTALL)
    lines = code.split("\n")
    conditions: list[str] = []
    continued = False
    for number, line in enumerate(lines, 1):
        is_macro = continued or line.lstrip().startswith("#")
        directive = re.match(r"\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b(.*)", line)
        if directive:
            _follow(conditions, directive[1], directive[2])
        continued = is_macro and line.endswith("\\")
        wide = "f64" in conditions or "f64" in line or re.search(r"\bLIT\(", line) is not None
        if directive or re.match(r"\s*#\s*(error|include|undef|line|pragma)\b", line):
            continue
        defines = re.match(r"\s*#\s*define\b", line) is not None
        for match in _TOKEN.finditer(re.sub(r"^\s*#\s*define\b|\\$", "", line)):
            yield _Token(match[0], number, is_macro, defines, wide)
            defines = False


def _follow(conditions: list[str], word: str, condition: str) -> None:
    """Which float the branches of ``#if`` are about: one of two if ``#else`` is the other one's."""
    other = {"f32": "f64", "f64": "f32", "": ""}
    about = next((float_ for float_ in other if float_ and float_ in condition.lower()), "")
    if word == "ifndef" or re.match(r"\s*!", condition):
        about = other[about]
    if word in ("if", "ifdef", "ifndef"):
        conditions.append(about)
    elif word == "endif":
        if conditions:
            conditions.pop()
    elif conditions:
        conditions[-1] = about if word == "elif" else other[conditions[-1]]


def _functions(tokens: list[_Token]) -> Iterator[_Function]:
    code = [token for token in tokens if not token.macro]
    i = 0
    while i < len(code):
        if code[i].text not in ("BP_FN", "BP_KERNEL"):
            i += 1
            continue
        is_kernel = code[i].text == "BP_KERNEL"
        while i < len(code) and code[i].text != "(":
            i += 1
        name, line = code[i - 1].text, code[i - 1].line
        end = _closing(code, i)
        head = code[i + 1 : end]
        if is_kernel and head:
            name = head[0].text
        i = end + 1
        if i < len(code) and code[i].text == "{":
            end = _closing(code, i)
            yield _Function(name, line, head, code[i + 1 : end], is_kernel)
            i = end + 1


def _closing(code: list[_Token], at: int) -> int:
    """Where what opens at ``at`` is closed; the end of the text if it is not."""
    depth = 0
    for i in range(at, len(code)):
        depth += (code[i].text in "([{") - (code[i].text in ")]}")
        if depth == 0:
            return i
    return len(code)


_Found = Iterator[Problem]
_CHECKS: list[Callable[[list[_Token], list[_Function]], _Found]] = []


def _check(function: Callable[[list[_Token], list[_Function]], _Found]) -> Callable[..., _Found]:
    _CHECKS.append(function)
    return function


@_check
def _words(tokens: list[_Token], functions: list[_Function]) -> _Found:
    for i, token in enumerate(tokens):
        word = token.text
        after = [token.text for token in tokens[i + 1 : i + 5]]
        if word in _TYPES:
            yield Problem(token.line, "type", f"'{word}'")
        elif word in _HALVES:
            yield Problem(token.line, "half", f"'{word}'")
        elif word in _KEYWORDS:
            yield Problem(token.line, "keyword", f"'{word}'")
        elif token.defined and word in _FUNCTIONS:
            yield Problem(token.line, "function", f"the macro '{word}'")
        elif word in ("fmax", "fmin", "fmaxf", "fminf"):
            yield Problem(token.line, "maximum", f"'{word}'")
        elif word == "goto":
            yield Problem(token.line, "goto", "a goto")
        elif word == "(" and after[:1] == ["*"] and after[2:] == [")", "("] and after[1].isidentifier():
            yield Problem(token.line, "function-pointer", f"'{after[1]}'")
        elif word == "(" and _is_of_an_expression(tokens, i):
            end = _closing(tokens, i)
            words = [one.text for one in tokens[i + 1 : end]]
            operand = [one.text for one in tokens[end + 1 : end + 2]]
            kept = [one for one in words if one != "const"]
            if len(kept) == 2 and kept[0].isidentifier() and kept[1] == "*":
                yield Problem(token.line, "cast", f"'({' '.join(words)})'")
            elif kept[:1] == ["BP_LOCAL"] and kept[-1] == "*" and operand == ["0"]:
                yield Problem(token.line, "null", f"'({' '.join(words)})0'")
            elif len(kept) == 1 and kept[0].isidentifier() and operand == ["{"]:
                yield Problem(token.line, "literal", f"'({kept[0]}){{'")
        elif word != "__VA_ARGS__" and _OF_A_COMPILER.fullmatch(word):
            yield Problem(token.line, "compiler", f"'{word}'")


def _is_of_an_expression(tokens: list[_Token], at: int) -> bool:
    """Whether a parenthesis is not that of a call, of a macro or of a statement."""
    before = tokens[at - 1].text if at else ""
    return before == "return" or (before in tuple("=(,+-*/?:&|<>{;") and not tokens[at - 1].defined)


@_check
def _constants(tokens: list[_Token], functions: list[_Function]) -> _Found:
    for token in tokens:
        text = token.text
        is_float = re.match(r"(\d+\.\d*|\.\d+|\d+[eE])", text) and not text.lower().startswith("0x")
        if is_float and not text.endswith("f") and not token.wide:
            yield Problem(token.line, "suffix", f"{text}")


@_check
def _function_bodies(tokens: list[_Token], functions: list[_Function]) -> _Found:
    for function in functions:
        if function.name in _FUNCTIONS:
            yield Problem(function.line, "function", f"the function '{function.name}'")
        if function.is_kernel:
            continue
        for token in function.body:
            if token.text in _INDICES:
                yield Problem(token.line, "index", f"'{token.text}' in the function {function.name}")
            elif token.text == function.name:
                yield Problem(token.line, "recursion", f"{function.name} calls itself")
            elif token.text == "BP_LOCAL_ARRAY":
                yield Problem(token.line, "local", f"a local array in the function {function.name}")
        for parameter in _split(function.head):
            words = [token.text for token in parameter]
            if "*" in words and not {"BP_GLOBAL", "BP_LOCAL"} & set(words):
                yield Problem(parameter[0].line, "pointer", f"'{' '.join(words)}' of {function.name}")


@_check
def _kernels(tokens: list[_Token], functions: list[_Function]) -> _Found:
    structs = dict(_structs(tokens))
    for function in functions:
        if not function.is_kernel:
            continue
        depth = 0
        for token in function.body:
            depth += (token.text == "{") - (token.text == "}")
            if token.text == "BP_LOCAL_ARRAY" and depth > 0:
                yield Problem(token.line, "local", f"a local array in a block of {function.name}")
        arguments = _split(function.head)
        count = arguments[1][0] if len(arguments) > 1 and arguments[1] else None
        pointers = arguments[3:]
        is_macro = any(len(pointer) == 1 for pointer in pointers)
        if count and count.text.isdigit() and not is_macro and int(count.text) != len(pointers):
            yield Problem(count.line, "pointers", f"{function.name} says {count.text}, and has {len(pointers)}")
        members = structs.get(arguments[2][0].text, []) if len(arguments) > 2 and arguments[2] else []
        for member in members:
            words = [token.text for token in member]
            if "*" in words[: words.index("[") if "[" in words else None] or (
                words[0].islower() and words[0] not in _MEMBERS
            ):
                yield Problem(member[0].line, "params", f"'{' '.join(words)}'")
        size = _size(members)
        if size is not None and size % 8:
            yield Problem(members[-1][-1].line, "size", f"{arguments[2][0].text} has {size} bytes")


def _size(members: list[list[_Token]]) -> int | None:
    """Bytes of a struct; None where a macro has a word in it."""
    size = widest = 0
    for member in members:
        if member[0].text not in _MEMBERS:
            return None
        bytes_ = _MEMBERS[member[0].text]
        widest = max(widest, bytes_)
        for name in _split(member[1:]):
            words = [token.text for token in name]
            if len(words) not in (1, 4) or (len(words) == 4 and not words[2].isdigit()):
                return None
            size += -size % bytes_ + bytes_ * (int(words[2]) if len(words) == 4 else 1)
    return size + (-size % widest if widest else 0)


def _structs(tokens: list[_Token]) -> Iterator[tuple[str, list[list[_Token]]]]:
    """Name and members of each ``typedef struct { ... } Name;``."""
    code = [token for token in tokens if not token.macro]
    for i, token in enumerate(code[:-2]):
        if token.text == "typedef" and code[i + 1].text == "struct":
            begin = i + 2 if code[i + 2].text == "{" else i + 3
            end = _closing(code, begin)
            if end + 1 < len(code):
                yield code[end + 1].text, _split(code[begin + 1 : end], ";")


def _split(tokens: list[_Token], mark: str = ",") -> list[list[_Token]]:
    parts: list[list[_Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.text in "([{") - (token.text in ")]}")
        if token.text == mark and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]
