"""Contract E34, kernels' side: the Philox engine in <backplane/philox.h>, compiled and run without a device."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
COMPILER = os.environ.get("CXX") or shutil.which("c++") or "g++"


@pytest.mark.long  # torch's header is compiled
def test_engine_equals_published_vectors_and_torch(tmp_path: Path) -> None:
    program = tmp_path / "philox_test"
    flags = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-I", ROOT / "include"]
    flags += ["-isystem", Path(torch.__file__).parent / "include"]
    subprocess.run([COMPILER, *flags, Path(__file__).with_name("philox_test.cpp"), "-o", program], check=True)
    run = subprocess.run([program], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


def test_header_needs_nothing_of_torch(tmp_path: Path) -> None:
    source = tmp_path / "alone.cpp"
    source.write_text("#include <backplane/philox.h>\nint main() { return backplane::Philox(1)() == 0; }\n")
    subprocess.run([COMPILER, "-std=c++17", "-I", ROOT / "include", source, "-o", tmp_path / "alone"], check=True)
