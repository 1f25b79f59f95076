"""Backward operators of forward operators, for the lint.

They are read from the derivatives that come with torch (``torchgen``).
"""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path


@cache
def table() -> dict[str, tuple[str, ...]]:
    """Forward operator -> the functions of a gradient's name that its own gradient calls. Names without overload."""
    return {op: tuple(sorted(others)) for op, others in _derivatives().items()}


def gradient_of(op: str) -> tuple[str, ...] | None:
    """What the formula of an operator's gradient calls, as in :func:`table`; None if torch has no formula for it."""
    known = table()
    return known.get(op.partition(".")[0].removesuffix("_"), None if known else ())


def _derivatives() -> dict[str, set[str]]:
    """From torch's ``derivatives.yaml``; empty if it is not installed.

    It has functions named ``..._backward``; some are not operators, but functions inside torch.
    """
    spec = importlib.util.find_spec("torchgen")
    if spec is None or spec.origin is None:
        return {}
    path = Path(spec.origin).parent / "packaged" / "autograd" / "derivatives.yaml"
    if not path.is_file():
        return {}
    text = re.sub(r"^ *#.*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found: dict[str, set[str]] = {}
    for entry in re.split(r"^- name: ", text, flags=re.MULTILINE)[1:]:
        schema, _, formulas = entry.partition("\n")
        if not re.search(r"^ +(?!result|output_diff|dispatch)[\w, ]+: (?!non_diff|not_impl)", formulas, re.MULTILINE):
            continue  # no argument has a gradient
        op = "aten::" + re.split(r"[.(]", schema)[0]
        called = {f"aten::{name.removesuffix('_symint')}" for name in re.findall(r"\b(\w*_backward\w*)\(", formulas)}
        found.setdefault(op, set()).update(called - {op})
    return found
