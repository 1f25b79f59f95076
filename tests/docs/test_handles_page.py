"""docs/handles.md: its blocks are the members of one driver, which compiles as C++17."""

import shutil
import subprocess
from pathlib import Path

from pages import blocks

import backplane_sdk


def test_the_blocks_are_a_driver(tmp_path):
    shown = [block.content for block in blocks("docs/handles.md") if block.language == "cpp"]
    assert len(shown) > 4
    source = tmp_path / "handles.cpp"
    declared = (Path(__file__).parent / "cpp" / "handles.cpp").read_text()
    source.write_text(declared + "\n".join(shown) + "};\nBP_DEFINE_DRIVER(Page)\n")
    command = [shutil.which("c++") or "g++", "-std=c++17", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    done = subprocess.run(
        [*command, f"-I{backplane_sdk.include_dir()}", source], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
