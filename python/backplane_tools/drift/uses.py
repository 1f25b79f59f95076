"""What the SDK's sources name of torch: private names in Python; base classes and headers in C++."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import backplane_sdk
import backplane_tools
import torch_backplane

_TORCH_NAMESPACES = ("at", "c10", "c10d", "torch", "libkineto", "caffe2")
_BASE = re.compile(
    r"\b(?:class|struct)\s+\w+(?:\s+final)?\s*:\s*(?:public\s+)?((?:" + "|".join(_TORCH_NAMESPACES) + r")::[\w:]+)"
)
_INCLUDE = re.compile(r"include\s*\(?\s*<((?:ATen|c10|torch|caffe2)/[^>]+|libkineto\.h)>")  # or __has_include


def is_private(name: str) -> bool:
    """Whether a part of a dotted name begins with one underscore."""
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def python_files(compat: bool = True) -> list[Path]:
    """Return the files of the runtime and the tools; ``compat`` may name what only some versions have."""
    runtime, tools = (Path(str(package.__file__)).parent for package in (torch_backplane, backplane_tools))
    paths = (path for root in (runtime, tools) for path in root.rglob("*.py"))
    return sorted(path for path in paths if compat or path.parent != runtime / "compat")


@dataclass
class PythonUses:
    """What Python files name of torch."""

    names: set[str] = field(default_factory=set)
    """Private names, up to the first public part behind the last private one."""
    attributes: set[str] = field(default_factory=set)
    """One part more, where the name may be a module or a class; and what the SDK's classes take from a private base."""


def python_uses(sources: Iterable[str]) -> PythonUses:
    """Read Python sources, which are one package: a class may derive from a class of another."""
    uses = PythonUses()
    bases: dict[str, set[str]] = {}  # of the SDK's classes: names of torch, and of other classes of the SDK
    members: dict[str, set[str]] = {}
    for source in sources:
        tree = ast.parse(source)
        aliases = dict(_imported(tree, uses))
        inner: set[ast.expr] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node not in inner:
                inner.update(part for part in ast.walk(node) if isinstance(part, ast.Attribute))
                _add_chain(node, aliases, uses)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "replaces":
                owner, attribute = node.args  # of torch_backplane.compat
                _add_chain(ast.Attribute(owner, ast.literal_eval(attribute)), aliases, uses)
            elif isinstance(node, ast.ClassDef):
                plain = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
                named = [_full(base, aliases) for base in plain]
                bases.setdefault(node.name, set()).update(name for name in named if name)
                members.setdefault(node.name, set()).update(_members(node))
    for name, used in members.items():
        for base in _torch_bases(name, bases):
            uses.attributes.update(f"{base}.{member}" for member in used if is_private(f"{base}.{member}"))
    return uses


def _imported(tree: ast.Module, uses: PythonUses) -> Iterator[tuple[str, str]]:
    """Yield local name and name in torch; private ones are added to the names."""
    yield "torch", "torch"
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "torch":
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if is_private(name):
                    uses.names.add(name)
                yield alias.asname or alias.name, name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("torch.") and is_private(alias.name):
                    uses.names.add(alias.name)
                if alias.name.startswith("torch.") and alias.asname:
                    yield alias.asname, alias.name


def _full(node: ast.expr, aliases: dict[str, str]) -> str | None:
    """``torch._C.f`` of the expression ``torch._C.f``; the bare word of a name that is not torch's."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id, node.id)
    if isinstance(node, ast.Attribute) and (value := _full(node.value, aliases)) is not None:
        return f"{value}.{node.attr}"
    return None


def _add_chain(node: ast.Attribute, aliases: dict[str, str], uses: PythonUses) -> None:
    name = _full(node, aliases)
    if name is None or not name.startswith("torch.") or not is_private(name):
        return
    parts = name.split(".")
    last = max(i for i, part in enumerate(parts) if part.startswith("_") and not part.startswith("__"))
    uses.names.add(".".join(parts[: last + 2]))
    if len(parts) > last + 2:
        uses.attributes.add(".".join(parts[: last + 3]))


def _members(node: ast.ClassDef) -> Iterator[str]:
    """Yield what a class defines, and what it reads of itself."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef):
            yield item.name
        elif isinstance(item, ast.Assign):
            yield from (target.id for target in item.targets if isinstance(target, ast.Name))
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute):
            value = part.value
            is_super = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "super"
            if is_super or (isinstance(value, ast.Name) and value.id in ("self", "cls")):
                yield part.attr


def _torch_bases(name: str, bases: dict[str, set[str]], seen: frozenset[str] = frozenset()) -> set[str]:
    found: set[str] = set()
    for base in bases.get(name, set()) - seen:
        if base.startswith("torch."):
            found.add(base)
        else:
            found |= _torch_bases(base.split(".")[-1], bases, seen | {name})
    return found


@functools.cache
def _cpp() -> tuple[str, ...]:
    """Return the sources that include torch."""
    root = backplane_sdk.source_dir()
    files = [path for part in ("backend", "include") for path in sorted((root / part).rglob("*"))]
    return tuple(
        re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))
        for path in files
        if path.suffix in (".cpp", ".h", ".hpp")
    )


def cpp_classes() -> set[str]:
    """Return the classes of torch that the core derives from."""
    return {name for text in _cpp() for name in _BASE.findall(text)}


def cpp_headers() -> set[str]:
    """Return the headers of torch that the core includes, or asks for."""
    return {name for text in _cpp() for name in _INCLUDE.findall(text)}
