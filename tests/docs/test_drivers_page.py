"""Runs the shell block of docs/drivers.md as it is written: the OpenCL driver under the installed backend."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import text_of

PAGE = "docs/drivers.md"


@pytest.mark.long
def test_another_driver_runs_under_any_project(tmp_path):
    (block,) = re.findall(r"^```sh\n(.*?)^```$", text_of(PAGE), re.DOTALL | re.MULTILINE)
    clean = {key: value for key, value in os.environ.items() if not key.startswith("MYDEVICE_")}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["bash", "-ec", block]
    done = subprocess.run(
        command, cwd=tmp_path, env=clean | {"PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert str(tmp_path / "libopencl_driver.so") in "".join(done.stdout.split())
    assert "compiler" in done.stdout
