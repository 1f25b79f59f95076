"""Keeps docs/contract.md and the tests together: a row has tests that carry its name, and a test's row is there."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "site"))

from contract import ROW, found_by_row, with_tests  # noqa: E402

PAGE = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")
ROWS = [row[1] for row in ROW.finditer(PAGE)]


def test_rows_are_in_order():
    assert len(ROWS) > 300
    letters = sorted({row[0] for row in ROWS})
    assert [f"{a}{i:02}" for a in letters for i in range(1, 1 + sum(row[0] == a for row in ROWS))] == ROWS
    assert re.findall(r"^## ([A-Z])\. ", PAGE, re.MULTILINE) == letters


def test_every_row_has_tests_and_every_test_its_row():
    tests = found_by_row()
    assert set(tests) == set(ROWS), set(tests) ^ set(ROWS)


def test_the_site_lists_the_tests_of_each_row():
    listed = [row[2] for row in re.finditer(r"^\| ([A-IKPSTV]\d\d) \| .+ \| (.*) \|$", with_tests(PAGE), re.MULTILINE)]
    assert len(listed) == len(ROWS)
    assert all(tests.startswith("`") and "::test_" in tests for tests in listed)
