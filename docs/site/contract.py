"""The tests of each row of the contract, found by their names: `test_E12_...`."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2] / "tests"
ROW = re.compile(r"^\| ([A-IKPSTV]\d\d) \| (.+) \|$", re.MULTILINE)  # R01 and on are rules of the linter


def found_by_row() -> dict[str, list[str]]:
    """``{"E12": ["device/test_copy.py::test_E12_strides", ...]}``, for every test function whose name has a row."""
    found = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for part in node.name.upper().split("_"):
                    if re.fullmatch(r"[A-IKPSTV]\d\d", part):
                        found[part].append(f"{path.relative_to(TESTS).as_posix()}::{node.name}")
    return found


def with_tests(text: str) -> str:
    """The page, whose tables have a column of tests."""
    tests = found_by_row()
    text = text.replace("| row | behavior |\n|---|---|", "| row | behavior | tests |\n|---|---|---|")
    return ROW.sub(lambda row: f"{row[0]} {'<br>'.join(f'`{test}`' for test in sorted(tests[row[1]]))} |", text)
