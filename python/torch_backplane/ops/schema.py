"""Checks of an operator's name and schema before torch gets them: it would accept some and misinterpret them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import torch

from torch_backplane.ops import signature

RESERVED = ("aten", "at", "prim", "prims", "pytorch", "torch")
"""Namespaces that are PyTorch's own."""

# In schemas, by their C++ (or Python) spelling.
_SPELLINGS = {
    r"(?:std::)?u?int(?:8|16|32|64)_t": "int",
    r"double": "float",
    r"(?:std::|c10::)?string(?:_view)?": "str",
    r"(?:at::|torch::)Tensor": "Tensor",
    r"(?:at::|c10::)?I?TensorList(?:Ref)?": "Tensor[]",
    r"(?:std::vector|(?:c10::)?ArrayRef)<(?:at::|torch::)?Tensor>|[Ll]ist\[(?:torch\.)?Tensor\]": "Tensor[]",
    r"(?:at::|c10::)?OptionalIntArrayRef": "int[]?",
    r"(?:at::|c10::)?IntArrayRef|std::vector<int64_t>|[Ll]ist\[int\]": "int[]",
    r"(?:std::|c10::)?optional<.+?>|Optional\[.+?\]": "with '?' after the type, Tensor?",
    r"torch\.Tensor": "Tensor",
}


def split(name: str) -> tuple[str, str]:
    """The namespace and the rest of a qualified name, ``"vendor::name"`` or ``"vendor::name.overload"``.

    Raises:
        ValueError: it is none, or the namespace is PyTorch's own.
    """
    namespace, colons, rest = name.partition("::")
    if not colons or not rest:
        raise ValueError(f"the name of an operator is 'namespace::name', and this is '{name}': write 'vendor::{name}'")
    if "." in namespace:
        raise ValueError(
            f"a namespace has no dot, and '{namespace}' of '{name}' has: write '{namespace.replace('.', '_')}::{rest}'"
        )
    if namespace in RESERVED:
        raise ValueError(
            f"'{namespace}' is PyTorch's own namespace ({', '.join(RESERVED)} are): give '{name}' your own, "
            f"'vendor::{rest}'. A kernel for an operator of PyTorch's is registered by torch_backplane.kernel"
        )
    words = (namespace, *rest.split(".", 1))
    if not all(word.isascii() and word.isidentifier() for word in words):
        raise ValueError(f"'{name}' is no name of an operator: letters, digits and '_', as 'vendor::name.overload'")
    return namespace, rest


def parse(name: str, text: str) -> Any:
    """A schema from text.

    Args:
        name: of the operator, without the namespace.
        text: ``"(Tensor x, int n=1) -> Tensor"``.

    Raises:
        ValueError: it is no schema; for a C++ type the message names the schema's type.
    """
    if not text.lstrip().startswith("("):
        raise ValueError(f"a schema begins with '(' and has no name: '{text[text.find('(') :]}', and not '{text}'")
    try:
        schema = torch._C.parse_schema(name + text)
    except RuntimeError as error:
        _refuse_spelling(text)
        reason = str(error).strip()
        raise ValueError(f"'{text}' is no schema, it is written '(Tensor x, int n=1) -> Tensor': {reason}") from None
    if any(_is_variable(one.type) for one in (*schema.arguments, *schema.returns)):
        _refuse_spelling(text)
    return schema


def _is_variable(kind: Any) -> bool:
    """Whether it is, or contains, a type variable: torch reads an unknown word in lower case as one."""
    return kind.kind() == "VarType" or any(map(_is_variable, kind.containedTypes()))


def _refuse_spelling(text: str) -> None:
    arguments_and_returns = re.sub(r"=\s*\"[^\"]*\"", "", text)  # without default texts
    for spelling, right in _SPELLINGS.items():
        if found := re.search(rf"(?<![\w:.\[<])(?:const )?({spelling})(?!\w)", arguments_and_returns):
            raise ValueError(f"'{found[1]}' is no type of a schema: write {right}, in '{text}'")


def mutated(schema: Any) -> list[str]:
    """Names of the arguments that a schema says are written."""
    return [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]


def check_given(schema: Any, function: Callable[..., Any], mutates_args: str | Iterable[str]) -> None:
    """Refuse a schema, given as text, that contradicts ``mutates_args`` or the function.

    Raises:
        ValueError: it contradicts ``mutates_args``.
        TypeError: it contradicts the function's signature.
    """
    written = mutated(schema)
    if mutates_args != "unknown" and set(mutates_args) != set(written):
        raise ValueError(
            f"mutates_args={_names(mutates_args)} and the schema '{schema}' differ: it writes {_names(written)}. "
            f"Write mutates_args={_names(written)}, or mark what is written as Tensor(a!)"
        )
    signature.check(schema, function)


def _names(given: Iterable[str]) -> str:
    names = [given] if isinstance(given, str) else sorted(given)
    return "{" + ", ".join(f"'{name}'" for name in names) + "}" if names else "()"
