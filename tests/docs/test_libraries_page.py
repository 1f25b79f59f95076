"""docs/libraries.md: what it shows runs, and prints what it says."""

import subprocess
import sys

import pytest
from pages import blocks, text_of


@pytest.mark.usefixtures("backend_package")
def test_the_pages_programs(tmp_path):
    page = "docs/libraries.md"
    program = tmp_path / "program.py"
    program.write_text("\n".join(block.content for block in blocks(page) if block.language == "python"))
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    said = [line.partition("  # ")[2] for line in text_of(page).splitlines() if line.strip().startswith("print(")]
    assert done.stdout.splitlines() == said
