"""The table of `make test-torch-all`, over a `make` that passes, fails, or does not come to the tests."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def torches(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("torches", ROOT / "tests" / "torches.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    make = tmp_path / "bin" / "make"
    make.parent.mkdir()
    make.write_text(
        "#!/bin/sh\ncase $4 in\n"
        "*2.1) echo 'No matching distribution'; exit 2;;\n"
        "*2.2) printf '==== summary\\npassed  1 s  early\\n==== a\\n\\n==== summary\\n';"
        " printf 'passed  9 s  one\\nFAILED (1)  8 s  two\\n'; exit 2;;\n"
        "*) printf '\\n==== summary\\npassed       9 s  one\\npassed       8 s  two\\n';;\nesac\n"
    )
    make.chmod(0o755)
    monkeypatch.setenv("PATH", str(make.parent), prepend=":")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]


def test_each_version_has_a_row_and_its_log(torches, tmp_path, capsys):
    assert torches.main(["2.1", "2.2", "2.3"]) == 1
    assert rows(capsys.readouterr().out) == [
        ["2.1", "FAILED before the tests", "0", "-", "-"],
        ["2.2", "FAILED", "0", "passed", "FAILED (1)"],
        ["2.3", "passed", "0", "passed", "passed"],
    ]
    assert (tmp_path / "build" / "torch" / "2.1.log").read_text() == "No matching distribution\n"


def test_all_that_pass_are_a_success(torches, capsys):
    assert torches.main(["2.3"]) == 0
    assert len(rows(capsys.readouterr().out)) == 1
