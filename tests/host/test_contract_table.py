"""Keeps docs/contract.md and the tests together: a row that holds names its tests, and a test's rows name it."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
SECTIONS = {"A": 21, "B": 26, "C": 85, "D": 43, "E": 62, "F": 22, "G": 7, "H": 6, "I": 10, "K": 14, "P": 6, "V": 5}
EVERY_ID = [f"{letter}{number:02}" for letter, count in SECTIONS.items() for number in range(1, count + 1)]


def table():
    """ID -> (behaviour, tests, state)."""
    rows = re.findall(
        r"^\| ([ABCDEFGHIKPV]\d\d) \| (.+?) \| (.+?) \| (.+?) \|$",
        (ROOT / "docs" / "contract.md").read_text(),
        re.MULTILINE,
    )
    return [
        (row, text, [] if tests == "-" else re.findall(r"`(.+?)`", tests), state) for row, text, tests, state in rows
    ]


def named_tests():
    """'device/test_copy.py::test_E12_strides' -> {'E12'}, for every test function whose name has a row's ID."""
    found = {}
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
                continue
            if ids := {part for part in node.name.upper().split("_") if re.fullmatch(r"[ABCDEFGHIKPV]\d\d", part)}:
                found[f"{path.relative_to(TESTS).as_posix()}::{node.name}"] = ids
    return found


def test_every_row_is_there_once_and_in_order():
    assert [row for row, *_ in table()] == EVERY_ID


@pytest.mark.parametrize("letter", SECTIONS)
def test_every_row_holds_by_its_tests(letter):
    for row, _, tests, state in table():
        if row.startswith(letter):
            assert (state, bool(tests)) == ("holds", True), row


def test_rows_name_existing_tests_that_carry_their_id():
    existing = named_tests()
    listed = [(row, test) for row, _, tests, _ in table() for test in tests]
    assert [(row, test) for row, test in listed if row not in existing.get(test, ())] == []


def test_tests_that_carry_an_id_are_in_that_row():
    listed = {(row, test) for row, _, tests, _ in table() for test in tests}
    wanted = {(row, test) for test, ids in named_tests().items() for row in ids}
    assert wanted - listed == set()
