"""Holds the arrows between the Python packages: tools import the runtime, the runtime the SDK's; and no circle.

An import in a function counts as one at the top, one for types alone does not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PYTHON = Path(__file__).resolve().parents[2] / "python"

# package -> the packages that it may import, beside itself
ARROWS: dict[str, set[str]] = {
    "backplane_sdk": set(),
    "torch_backplane": {"backplane_sdk"},
    "backplane_tools": {"backplane_sdk", "torch_backplane"},
}


def modules(root: Path) -> dict[str, Path]:
    """The modules of the packages, by name."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def statements(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that happen when a program runs."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from statements(child)


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of ours that a file imports: of a name in a package, the module of that name, or the package."""
    found = set()
    for statement in statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(statement, ast.Import):
            found |= {alias.name for alias in statement.names}
        else:
            assert not statement.level, f"{path}:{statement.lineno}: a relative import"
            source = str(statement.module)
            found |= {name if (name := f"{source}.{alias.name}") in known else source for alias in statement.names}
    return found & known.keys()


def graph(root: Path) -> dict[str, set[str]]:
    """What each module imports of the others."""
    known = modules(root)
    return {name: imports(path, known) - {name} for name, path in known.items()}


def wrong(arrows: dict[str, set[str]]) -> list[str]:
    """Arrows between packages that point the other way."""
    found = []
    for name, others in arrows.items():
        here = name.partition(".")[0]
        allowed = {here, *ARROWS[here]}
        found += [f"{name} imports {other}" for other in sorted(others) if other.partition(".")[0] not in allowed]
    return found


def circle(arrows: dict[str, set[str]]) -> list[str]:
    """Modules that import each other, the first one again at the end; none if there is no such circle."""
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_tools_import_the_runtime_and_never_the_other_way() -> None:
    arrows = graph(PYTHON)
    assert {name.partition(".")[0] for name in arrows} == ARROWS.keys()
    assert arrows["torch_backplane"] == {"backplane_sdk", "torch_backplane.ops.kernels"}
    assert wrong(arrows) == []


def test_no_modules_import_each_other() -> None:
    assert circle(graph(PYTHON)) == []


@pytest.mark.parametrize(
    ("line", "is_wrong"),
    [
        ("def f():\n    from backplane_tools import b", True),
        ("import backplane_tools.b", True),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from backplane_tools import b", False),
        ("from backplane_sdk import c", False),
    ],
)
def test_an_arrow_that_points_the_other_way_is_found(tmp_path: Path, line: str, is_wrong: bool) -> None:
    texts = {"torch_backplane/a.py": line, "backplane_tools/b.py": "import torch_backplane.a", "backplane_sdk/c.py": ""}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
        (tmp_path / name).with_name("__init__.py").touch()
    arrows = graph(tmp_path)
    assert bool(wrong(arrows)) == bool(circle(arrows)) == is_wrong
