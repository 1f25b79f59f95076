"""Private names of torch are used where private_names.py says so, and are in the torch that is installed."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch  # noqa: F401 (first, because it loads the installed backends)
from private_names import PRIVATE_NAMES

ROOT = Path(__file__).resolve().parents[2] / "python" / "torch_backplane"
FILES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT / "compat")


def is_private(parts: list[str]) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in parts)


def chain(node: ast.expr) -> list[str] | None:
    """``["torch", "_C", "f"]`` of the expression ``torch._C.f``."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute) and (parts := chain(node.value)) is not None:
        return [*parts, node.attr]
    return None


def private_names(source: str) -> Iterator[str]:
    """The private names of torch in a file, up to the first public part behind the private one."""
    inner: set[ast.expr] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "torch":
            for alias in node.names:
                if is_private([*node.module.split("."), alias.name]):
                    yield f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("torch.") and is_private(a.name.split(".")))
        elif isinstance(node, ast.Attribute) and node not in inner:
            inner.update(part for part in ast.walk(node) if isinstance(part, ast.Attribute))
            parts = chain(node)
            if parts and parts[0] == "torch" and is_private(parts):
                last = max(i for i, part in enumerate(parts) if part.startswith("_"))
                yield ".".join(parts[: last + 2])


def find(name: str) -> object:
    """What a name stands for; raises AttributeError."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise AttributeError(name)


def test_what_is_found() -> None:
    imports = "import torch._inductor.x\nfrom torch._ops import A\nfrom torch.amp import _cast, b"
    source = f"{imports}\ntorch._C.f(torch.nn._q.r.s, torch.x)"
    assert sorted(private_names(source)) == [
        "torch._C.f",
        "torch._inductor.x",
        "torch._ops.A",
        "torch.amp._cast",
        "torch.nn._q.r",
    ]


def test_all_are_listed() -> None:
    used = {name for path in FILES for name in private_names(path.read_text(encoding="utf-8"))}
    assert used - set(PRIVATE_NAMES) == set(), "list them in tests/host/private_names.py, or use a public name"
    assert set(PRIVATE_NAMES) - used == set(), "no longer used"
    assert list(PRIVATE_NAMES) == sorted(PRIVATE_NAMES)


@pytest.mark.parametrize("name", PRIVATE_NAMES)
def test_torch_has_it(name: str) -> None:
    find(name)
