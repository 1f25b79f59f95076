"""docs/coverage.md: the command and the model that it shows give a table of the form that it shows: which kernels
there are, and so the numbers, differ."""

import re
import subprocess
import sys

import pytest
from pages import blocks

PAGE = "docs/coverage.md"


@pytest.mark.usefixtures("backend_package")
def test_the_run_that_the_page_shows(tmp_path):
    content = {block.language: block.content for block in blocks(PAGE)}
    (tmp_path / "models.py").write_text(content["python"])
    command = content["sh"].splitlines()[1].split()
    assert command[:2] == ["torch-backplane", "coverage"]
    program = [sys.executable, "-m", "backplane_tools", *command[1:]]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    heading, *rows = content["text"].splitlines()
    assert done.stdout.splitlines()[0].split() == heading.split()
    shown = {row.split()[0] for row in rows if row.startswith("aten::")}
    assert len(shown) > 5
    assert shown - set(re.findall(r"^(aten::\S+) ", done.stdout, re.MULTILINE)) == set()
    assert re.search(r"^\d+ operators: 0 refused, \d+ fallback", done.stdout, re.MULTILINE)
