"""Runs docs/install.md as it is written, offline: torch and the tools are in the environment, the SDK is beside it."""

import re
import shutil

import pytest
from pages import ROOT, table_rows
from projects import Environment
from reader import Reader

PAGE = "docs/install.md"


@pytest.mark.long
def test_every_step_works(tmp_path):
    reader = Reader(tmp_path)
    not_copied = shutil.ignore_patterns(".venv", "build", "dist", ".git", "__pycache__", ".*_cache")
    shutil.copytree(ROOT, tmp_path / "backplane", ignore=not_copied)
    done = reader.read(PAGE)
    assert done == ["sh"] * 6
    assert "npu is written" in reader.printed
    environment = reader.environment
    import backplane_sdk

    assert environment.run("python", "-m", "backplane_sdk", "--version").strip() == backplane_sdk.__version__
    source = environment.run("python", "-m", "backplane_sdk", "--source-dir").strip()
    assert source == str(environment.site / "backplane_sdk" / "source")  # the wheel's, not the checkout's
    # What the project asks for is there now, and is found without an index.
    sdk = re.search(r"^SDK \?= (.*)$", (tmp_path / "npu" / "Makefile").read_text(), re.MULTILINE)[1]
    assert sdk == "torch-backplane ~= 0.1"
    environment.pip("install", "--dry-run", sdk, "-r", tmp_path / "npu" / "requirements-dev.txt")
    assert list((tmp_path / "npu").rglob("*.pyc")) == []


@pytest.mark.long
def test_what_pip_says_without_the_needs_of_a_build_is_on_the_page(tmp_path):
    """Each first phrase of the table that can be provoked offline."""
    phrases = [row[0].strip("`") for row in table_rows(PAGE)]
    environment = Environment(tmp_path / "venv", without=("scikit_build_core",))
    said = environment.run(
        "bash", "-c", f"python -m pip install --no-build-isolation '{ROOT}' && exit 1 || true", cwd=tmp_path
    )
    assert any(phrase in said for phrase in phrases), said
    said = environment.run("bash", "-c", "python -m pip install torch-backplane && exit 1 || true", cwd=tmp_path)
    assert any(phrase in said for phrase in phrases), said
