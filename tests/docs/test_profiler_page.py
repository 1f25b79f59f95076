"""docs/profiler.md: its program runs, and its table and its trace have what the page says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pages import blocks

PAGE = "docs/profiler.md"


@pytest.mark.requires("profile")
def test_the_program_of_the_page(backend_package, tmp_path):
    block, _ = blocks(PAGE)
    assert block.language == "python"
    command = [sys.executable, "-c", block.content]
    environment = {**os.environ, "MYDEVICE_KERNELS": "wait"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Self MYDEVICE" in done.stdout
    rows = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {row["name"] for row in rows}
    kernels = {row["name"] for row in rows if row.get("cat") == "kernel"}
    assert {"step", "Memset", "launch kernel"} <= names
    assert any(name.startswith("aten::") for name in kernels)
    spans = [row for row in rows if row.get("cat") == "gpu_user_annotation"]
    assert [row["name"] for row in spans] == ["step"] * 3


@pytest.mark.requires("profile")
def test_the_command_of_the_page(backend_package, tmp_path):
    _, block = blocks(PAGE)
    assert block.language == "sh"
    (tmp_path / "train.py").write_text("import torch\ntorch.empty(64, device='mydevice').fill_(1)\n")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["bash", "-e", "-c", block.content]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "costliest kernels" in done.stdout
    assert "Memset" in (tmp_path / "trace.html").read_text()
    assert "Memset" in (tmp_path / "trace.json").read_text()
