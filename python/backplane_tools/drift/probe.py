"""Run by the Python that has the torch to look at, alone: reads names from stdin, writes what they are to stdout.

It needs nothing but that torch: the other environment has no SDK.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import json
import re
import sys
import types
from typing import Any


class Unknown(Exception):
    """A name that cannot be looked up because another package is missing."""


def find(name: str) -> tuple[Any, Any]:
    """The object of a dotted name, and the object that has it; raises AttributeError."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError as error:
            if (error.name or "torch").split(".")[0] != "torch":
                raise Unknown(str(error)) from error
            continue
        except Exception as error:  # a module of torch's that this machine cannot have
            raise Unknown(f"{type(error).__name__}: {error}") from error
        parent: Any = None
        for part in parts[end:]:
            parent, found = found, getattr(found, part)
        return found, parent
    raise AttributeError(name)


def parameters(value: Any) -> str:
    """The parameters of a callable with their defaults, without annotations."""
    signature = inspect.signature(value)
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()]
    text = str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    return re.sub(r"<([^<>]*?)(?: at 0x[0-9a-f]+)?>", r"<\1>", text)


def pybind_parameters(line: str) -> str:
    """The parameters in the first line that pybind11 gives a docstring; how it spells types depends on its version."""
    if not re.match(r"\w+\(.*\) -> ", line):
        return ""
    line = line[line.index("(") : line.rindex(") -> ") + 1]
    while (shorter := re.sub(r"\[[^\[\]]*\]", "", line)) != line:
        line = shorter
    return re.sub(r":[^,=)]*?(?= = |,|\)$)", "", line)


C_FUNCTIONS = (types.BuiltinFunctionType, types.MethodDescriptorType)


def text(value: Any) -> str:
    """What there is to compare."""
    if isinstance(value, types.ModuleType):
        return "module"
    if isinstance(value, type) and issubclass(value, enum.Enum):
        return "enum " + ", ".join(member.name for member in value)
    kind = "class" if isinstance(value, type) else ""
    if isinstance(value, property):
        return "property"
    if not callable(value):
        return type(value).__name__
    try:
        found = parameters(value)
    except (TypeError, ValueError):
        documented = pybind_parameters((getattr(value, "__doc__", None) or "").strip().split("\n")[0])
        return documented or kind or type(value).__name__
    # From 3.13 on Python reports that a C function has no parameters, documented or not.
    if found in ("()", "(self, /)") and isinstance(value, C_FUNCTIONS):
        return "builtin_function_or_method" if isinstance(value, types.BuiltinFunctionType) else "method_descriptor"
    return kind + found


def main() -> None:
    """Answer one request: names, attributes, operators."""
    asked = json.load(sys.stdin)
    sys.path[:1] = [asked["folder"]] if asked["folder"] else []  # not this file's folder
    import torch

    python: dict[str, str] = {}
    unknown: dict[str, str] = {}
    for name in asked["names"] + asked["attributes"]:
        try:
            value, parent = find(name)
        except Unknown as error:
            unknown[name] = str(error)
        except AttributeError:
            continue
        else:
            # The attributes of an object are no surface, but what it holds at the moment.
            if name in asked["names"] or isinstance(parent, (types.ModuleType, type)) or parent is None:
                python[name] = text(value)
    operators: dict[str, str] = {}
    for name in asked["operators"]:
        base, _, overload = name.partition(".")
        try:
            operators[name] = str(torch._C._get_schema(base, overload))
        except RuntimeError:
            continue
    answer = {
        "version": torch.__version__,
        "folder": torch.__path__[0],
        "python": python,
        "unknown": unknown,
        "operators": operators,
    }
    print("\n" + json.dumps(answer))  # behind what imports may have printed


if __name__ == "__main__":
    main()
