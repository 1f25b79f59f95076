"""What the tests of custom operators share."""

import importlib
import sys

import pytest
from checked_operators import operators


@pytest.fixture
def operator(name):
    """``operator(schema, **parts)``: an operator that ``check_op`` is called on (checked_operators.py)."""
    with operators("check_op_test", name) as define:
        yield define


@pytest.fixture
def load_module(tmp_path, monkeypatch):
    """``load_module(text)``: the module of that text; again, the same module with another text, reloaded."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def load(text):
        (tmp_path / "bp_module_of_a_test.py").write_text(text)
        module = sys.modules.get("bp_module_of_a_test")
        return importlib.reload(module) if module else importlib.import_module("bp_module_of_a_test")

    yield load
    sys.modules.pop("bp_module_of_a_test", None)
