"""Arguments of steps as JSON, as Python objects and as source.

``{"r": "t3"}`` is a tensor of the program, ``{"storage": "t3"}`` its storage, ``{"dtype": "int32"}``, ``{"where": 0}``
a device of the program, ``{"fn": "torch.mm"}`` a function, ``{"slice": [0, 2, 1]}``, ``{"tuple": [...]}``,
``{"format": "channels_last"}``; numbers, strings, None and lists are themselves.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from fuzz import helpers

ON_CPU = {0: "cpu", 1: "cpu", "host": "cpu", "pinned": "cpu"}
"""The devices of a program, where the CPU runs it."""


@functools.cache
def function(name: str) -> Callable[..., Any]:
    """The function of a step: of torch, a method of tensors, of functional, an aten operator, or a helper."""
    space, _, rest = name.partition(".")
    root: Any = {
        "torch": torch,
        "Tensor": torch.Tensor,
        "F": torch.nn.functional,
        "aten": torch.ops.aten,
        "helpers": helpers,
    }[space]
    return functools.reduce(getattr, rest.split("."), root)


def tensors(value: Any) -> Iterator[str]:
    """The names of the tensors in an argument."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("r", "storage"):
                yield inner
            elif key in ("tuple", "slice"):
                yield from tensors(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from tensors(inner)


def decode(value: Any, registers: Mapping[str, torch.Tensor], places: Mapping[Any, str]) -> Any:
    """The object. ``places`` gives each device of the program its name."""
    if isinstance(value, list):
        return [decode(inner, registers, places) for inner in value]
    if not isinstance(value, dict):
        return value
    ((key, inner),) = value.items()
    if key == "r":
        return registers[inner]
    if key == "storage":
        return registers[inner].untyped_storage()
    if key == "dtype":
        return getattr(torch, inner)
    if key == "where":
        return places[inner]
    if key == "fn":
        return function(inner)
    if key == "format":
        return getattr(torch, inner)
    decoded = decode(inner, registers, places)
    return slice(*decoded) if key == "slice" else tuple(decoded)


def decode_all(keywords: Mapping[str, Any], registers: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Keyword arguments, on the CPU."""
    return {name: decode(value, registers, ON_CPU) for name, value in keywords.items()}


def source(value: Any) -> str:
    """Python source for the object, in a script."""
    if isinstance(value, list):
        return f"[{', '.join(map(source, value))}]"
    if not isinstance(value, dict):
        return repr(value)
    ((key, inner),) = value.items()
    if key == "r":
        return inner
    if key == "storage":
        return f"{inner}.untyped_storage()"
    if key in ("dtype", "format"):
        return f"torch.{inner}"
    if key == "where":
        return f"place[{inner!r}]"
    if key == "fn":
        return name(inner)
    parts = ", ".join(map(source, inner))
    return f"slice({parts})" if key == "slice" else f"({parts}{',' if len(inner) == 1 else ''})"


def name(function_name: str) -> str:
    """How a script calls a function."""
    space, _, rest = function_name.partition(".")
    return {"F": f"torch.nn.functional.{rest}", "aten": f"torch.ops.aten.{rest}", "helpers": rest}.get(
        space, f"torch.{function_name}" if space == "Tensor" else function_name
    )


def call(step: Mapping[str, Any]) -> str:
    """Python source for a step's call."""
    args = [source(value) for value in step["args"]]
    keywords = [f"{key}={source(value)}" for key, value in step.get("kw", {}).items()]
    space, _, rest = step["fn"].partition(".")
    if space == "Tensor":
        return f"{args[0]}.{rest}({', '.join(args[1:] + keywords)})"
    return f"{name(step['fn'])}({', '.join(args + keywords)})"
