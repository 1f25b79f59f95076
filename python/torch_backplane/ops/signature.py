"""Python functions for the dispatcher: whether they match a schema, where they are, which are the same."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def check(schema: Any, function: Callable[..., Any], role: str = "kernel") -> None:
    """Refuse a function that the dispatcher could not call, naming each difference.

    Args:
        schema: the operator's.
        function: a function of the operator's arguments. One without an inspectable signature is accepted.
        role: its role for the operator, for the message.

    Raises:
        TypeError: they differ.
    """
    P = inspect.Parameter
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # written in C
        return
    any_position = any(p.kind is P.VAR_POSITIONAL for p in parameters.values())
    any_keyword = any(p.kind is P.VAR_KEYWORD for p in parameters.values())
    positional = [p for p in parameters.values() if p.kind in (P.POSITIONAL_ONLY, P.POSITIONAL_OR_KEYWORD)]
    by_keyword = {p.name: p for p in parameters.values() if p.kind in (P.KEYWORD_ONLY, P.POSITIONAL_OR_KEYWORD)}
    wrong, matched = [], set()
    for i, argument in enumerate(schema.arguments):
        if argument.kwarg_only:
            parameter, swallowed = by_keyword.get(argument.name), any_keyword
        else:
            parameter, swallowed = (positional[i] if i < len(positional) else None), any_position
        if parameter is None:
            if not swallowed:
                wrong.append(f"'{argument.name}' is missing")
            continue
        matched.add(parameter.name)
        if parameter.name != argument.name:
            wrong.append(f"argument {i + 1} is '{parameter.name}' and should be '{argument.name}'")
        elif argument.has_default_value():  # the dispatcher leaves out arguments that have their default value
            if parameter.default is P.empty:
                wrong.append(f"'{argument.name}' has no default and needs the schema's, {argument.default_value!r}")
            elif _differ(parameter.default, argument.default_value):
                wrong.append(
                    f"'{argument.name}' has the default {parameter.default!r} and the schema's is "
                    f"{argument.default_value!r}"
                )
    named = [p.name for p in parameters.values() if p.kind not in (P.VAR_POSITIONAL, P.VAR_KEYWORD)]
    wrong += [f"'{name}' is not in the schema" for name in named if name not in matched]
    if wrong:
        raise TypeError(
            f"the {role} at {site(function)} does not match {schema}: {'; '.join(wrong)}. "
            f"Write: {line(function, schema)}"
        )


def _differ(given: Any, wanted: Any) -> bool:
    plain = (bool, int, float, str, type(None))
    return isinstance(given, plain) and isinstance(wanted, plain) and given != wanted


def parameters_of(schema: Any) -> str:
    """The parameters of a Python function that match a schema."""
    words, keyword_only = [], False
    for argument in schema.arguments:
        if argument.kwarg_only and not keyword_only:
            words.append("*")
            keyword_only = True
        words.append(argument.name + (f"={argument.default_value!r}" if argument.has_default_value() else ""))
    return ", ".join(words)


def line(function: Callable[..., Any], schema: Any) -> str:
    """The line that a function for a schema begins with, ``def scale(x, factor=2.0)``."""
    name = getattr(function, "__name__", "kernel")
    return f"def {name if name.isidentifier() else 'kernel'}({parameters_of(schema)})"


def same(old: Callable[..., Any], new: Callable[..., Any]) -> bool:
    """Whether it is the same function of a module that has been loaded again."""
    old_name, new_name = getattr(old, "__qualname__", "<"), getattr(new, "__qualname__", "<")
    return old_name == new_name and "<" not in new_name and old.__module__ == new.__module__


def site(function: Callable[..., Any]) -> str:
    """``file:line`` of a function, below its decorators."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)
