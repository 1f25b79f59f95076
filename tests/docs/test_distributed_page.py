"""docs/distributed.md: its programs run as it says, and print what it shows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pages import blocks

PAGE = "docs/distributed.md"


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.requires("collective")
def test_the_programs_of_the_page(backend_package, tmp_path):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "MYDEVICE_OPTIONS": "devices=4"}
    done, printed = [], ""
    for block in blocks(PAGE):
        done.append(block.language)
        if block.language == "python":
            name, _, program = block.content.partition("\n")
            (tmp_path / name.removeprefix("# ")).write_text(program)
        elif block.language == "sh":
            command = ["bash", "-e", "-c", block.content]
            run = subprocess.run(
                command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200, check=False
            )
            assert run.returncode == 0, f"{PAGE}, line {block.line}\n{run.stdout}\n{run.stderr}"
            printed = run.stdout
        else:
            for line in block.content.splitlines():
                assert line in printed, f"{PAGE}, line {block.line}: not printed: {line}\n{printed}"
    assert [done.count(language) for language in ("python", "sh", "text")] == [4, 5, 4]
