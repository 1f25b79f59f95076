"""The virtual functions of C++ classes, as the installed headers declare them.

Read, not compiled: a class body's declarations with ``virtual``, ``override`` or ``final``, in order. That is what a
derived class has to match, and the order of a virtual table.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_NOISE = re.compile(
    r"//[^\n]*|/\*.*?\*/|^[ \t]*#(?:[^\n\\]|\\.)*|\"(?:[^\"\\\n]|\\.)*\"|\[\[[^\]]*\]\]", re.DOTALL | re.MULTILINE
)
_MACROS = r"(?:[A-Z][A-Z0-9_]*(?:\([^()]*\))?\s+)*"
_SCOPE = re.compile(r"\bnamespace\s*([\w:]*)\s*$")
_CLASS = re.compile(
    rf"(?:^|[\s>])(?:class|struct)\s+{_MACROS}([\w:]+)(?:\s+final)?\s*(?::(?!:)(.*))?$",
    re.DOTALL,
)
_VIRTUAL = re.compile(r"\bvirtual\b|\)[^()]*\b(?:override|final)\b")
_ACCESS = re.compile(r"^\s*(?:(?:public|protected|private)\s*:(?!:)\s*)+")
_STUB = re.compile(r"^DECLARE_DISPATCH\((?:[^;{}]*?),\s*(\w+)\s*\)\s*;?\s*(?://.*)?$", re.MULTILINE)
# Folders of torch's headers where classes to derive from are.
_FOLDERS = ("c10", "ATen", "torch/csrc", "torch/library.h", "kineto")


@dataclass
class Class:
    """A class definition."""

    bases: tuple[str, ...]
    virtual: list[str] = field(default_factory=list)
    """Declarations, without bodies, each on one line."""


@functools.lru_cache(maxsize=64)
def read_classes(text: str) -> dict[str, Class]:
    """Return the class definitions of a header, by qualified name, nested ones too."""
    found: dict[str, Class] = {}
    stack: list[tuple[str, Class | None]] = []  # of each open brace: qualified name, its class
    head, begin, inside = (
        "",
        0,
        0,
    )  # since the last brace or semicolon; braces inside of parentheses: a default argument
    text = _NOISE.sub(" ", text)
    for match in re.finditer(r"[{};]", text):
        head += text[begin : match.start()]
        begin = match.end()
        if inside or head.count("(") > head.count(")"):
            inside += {"{": 1, "}": -1, ";": 0}[match[0]]
            head += match[0]
            continue
        scope, current = stack[-1] if stack else ("", None)
        if match[0] == "}":
            if stack:
                stack.pop()
        elif match[0] == "{" and (named := _SCOPE.search(head)):
            stack.append(("::".join(filter(None, (scope, named[1]))), None))
        elif match[0] == "{" and "enum" not in head.split() and "=" not in head and (named := _CLASS.search(head)):
            name = "::".join(filter(None, (scope, named[1])))
            found[name] = Class(tuple(_base_names(named[2] or "")))
            stack.append((name, found[name]))
        else:
            if current is not None and _VIRTUAL.search(head):
                current.virtual.append(_one_line(head))
            if match[0] == "{":
                stack.append((scope, None))
        head = ""
    return found


def _base_names(text: str) -> Iterator[str]:
    while "<" in text and (shorter := re.sub(r"<[^<>]*>", "", text)) != text:
        text = shorter
    for base in text.split(","):
        words = [word for word in base.split() if word not in ("public", "protected", "private", "virtual")]
        if words:
            yield words[-1]


def _one_line(head: str) -> str:
    """Return a declaration with one way of spacing."""
    head = re.sub(r"\s*([(){},&*<>=])\s*", r"\1", _ACCESS.sub("", " ".join(head.split())))
    return re.sub(r",|=|[)}>&*](?=\w)", lambda match: {"=": " = "}.get(match[0], f"{match[0]} "), head).strip()


def virtual_functions(include: Path, names: set[str]) -> dict[str, str]:
    """Look classes up in torch's headers, with those that they derive from.

    Returns:
        For each that is there its virtual functions, one per line.
    """
    texts = dict(_candidates(include))
    found: dict[str, str] = {}
    wanted = sorted(names)
    while wanted:
        name = wanted.pop()
        if name in found:
            continue
        for classes in _definitions(texts, name):
            found[name] = "\n".join(classes[name].virtual)
            for base in classes[name].bases:
                wanted.append(_resolve(texts, name, base) or name)
            break
    return {name: text for name, text in found.items() if text or name in names}


def dispatch_stubs(include: Path) -> set[str]:
    """Return the tables of functions by device type that torch's headers declare.

    A kernel of torch's for all devices that asks one which has no function for a device ends in an internal assert:
    backend/aten/dispatch_stubs.cpp has those that a call of the device can reach.
    """
    headers = (include / "ATen" / "native").rglob("*.h")
    return {name for path in headers for name in _STUB.findall(path.read_text(encoding="utf-8", errors="replace"))}


def _candidates(include: Path) -> Iterator[tuple[Path, str]]:
    for folder in _FOLDERS:
        root = include / folder
        for path in sorted(root.rglob("*.h*")) if root.is_dir() else [root] if root.is_file() else []:
            if "ATen/ops/" not in path.as_posix():
                yield path, path.read_text(encoding="utf-8", errors="replace")


def _definitions(texts: dict[Path, str], name: str) -> Iterator[dict[str, Class]]:
    """Yield the classes of each file that defines this one."""
    short = name.split("::")[-1]
    word = re.compile(rf"\b(?:class|struct)\s+{_MACROS}(?:\w+::)*{short}\b")
    for text in texts.values():
        if short in text and word.search(text) and name in (classes := read_classes(text)):
            yield classes


def _resolve(texts: dict[Path, str], derived: str, base: str) -> str | None:
    """Return a base's qualified name, looked for from the derived class's namespace outwards; None if not torch's."""
    scope = derived.split("::")[:-1]
    while True:
        name = "::".join((*scope, base.lstrip(":")))
        if next(_definitions(texts, name), None) is not None:
            return name
        if not scope:
            return None
        scope.pop()
