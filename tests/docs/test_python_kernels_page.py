"""docs/python-kernels.md: what it shows runs."""

import subprocess
import sys

import pytest
from pages import blocks


@pytest.mark.usefixtures("backend_package")
def test_the_pages_program(tmp_path):
    first, second = (block.content for block in blocks("docs/python-kernels.md") if block.language == "python")
    program = tmp_path / "program.py"
    program.write_text(first.replace('kernel("aten::gelu")', 'kernel("aten::gelu", override=True)') + second)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{program}:6 tensor([0.8413")
