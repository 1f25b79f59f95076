"""Which torch `make` installs, and when."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in {"TORCH", "MAKEFLAGS", "MAKELEVEL"}}


@pytest.fixture
def installed(tmp_path):
    """Makes the environment as the words say; gives the torch that pip was asked for, if it was asked."""
    for name in ("Makefile", "requirements-dev.txt", "pyproject.toml"):
        shutil.copy2(ROOT / name, tmp_path)
    asked = tmp_path / "asked"
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" | grep "^torch" >> "{asked}" || true\n')
    python.chmod(0o755)

    def make(*words: str, **variables: str) -> list[str]:
        asked.write_text("")
        command = ["make", "-C", tmp_path, "venv", *words]
        subprocess.run(command, check=True, capture_output=True, env=ENVIRONMENT | variables)
        return asked.read_text().split()

    return make


def test_torch_is_pinned_and_installed_once(installed):
    assert installed() == ["torch==2.13.0"]
    assert installed() == []


def test_a_torch_that_was_chosen_stays(installed):
    assert installed("TORCH=torch==2.12.*") == ["torch==2.12.*"]
    assert installed() == []
    assert installed("--always-make") == ["torch==2.12.*"]
    assert installed(TORCH="torch==2.15.0") == ["torch==2.15.0"]  # by the environment
    assert installed("--always-make") == ["torch==2.15.0"]
    assert installed("TORCH=2.14.1") == ["torch==2.14.1"]
    assert installed("TORCH=torch==2.14.1") == []


def test_a_torch_is_installed_again_after_another(installed):
    for torch in ("torch==2.14.1", "torch==2.13.0", "torch==2.14.1"):
        assert installed(f"TORCH={torch}") == [torch]


def test_another_torch_is_tried_in_a_separate_checkout(tmp_path):
    """With what has changed since the last commit, each time."""
    environment = {name: value for name, value in ENVIRONMENT.items() if not name.startswith("GIT_")}
    environment |= {f"GIT_{role}_{what}": "x@y" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    file = tmp_path / "file"
    checkout = tmp_path / "build" / "torch" / "2.15.0"

    def call(*words: str) -> None:
        done = subprocess.run(words, cwd=tmp_path, check=False, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr

    shutil.copy2(ROOT / "Makefile", tmp_path)
    file.write_text("first")
    call("git", "init")
    call("git", "add", ".")
    call("git", "commit", "-m", "first")
    for text in ("first", "second", "third"):
        file.write_text(text)
        call("make", "test-torch", "TORCH=2.15.0", "MAKE=true")
        assert (checkout / "file").read_text() == text
    assert file.read_text() == "third"
