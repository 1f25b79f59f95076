"""Keeps the list of what an older torch skips (tests/older_torch.py) and the tests together."""

import re
from pathlib import Path

import older_torch
import pytest

TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("test", [test for tests in older_torch.NEEDS.values() for test in tests])
def test_what_is_skipped_is_a_test(test):
    file, _, name = test.partition("::")
    (path,) = TESTS.rglob(file)
    function = name.partition("[")[0]
    assert not function or re.search(rf"^def {function}\(", path.read_text(), re.MULTILINE)
    assert older_torch.reason(f"tests/{path.parent.name}/{test}")
    assert not older_torch.reason(f"tests/{path.parent.name}/test_{file}::another")
