"""Random kernels write what they write by Triton's interpreter, and a wrong lowering is found.

``make fuzz-triton`` runs more of them, new ones each time. Here they are the same each time, so a failure comes from a
change.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def fuzz(*words, **variables):
    command = [sys.executable, "-m", "random_kernels", *map(str, words)]
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, **variables}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=290)


def test_T01_random_kernels_write_what_the_interpreter_writes():
    done = fuzz("--programs", 6, "--seed", 1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 programs of seed 1, 0 that the interpreter refuses" in done.stdout


@pytest.mark.long
def test_T01_a_wrong_lowering_is_found_and_reduced(tmp_path):
    words = ["--programs", 1, "--seed", 2, "--prepare", "random_kernels.planted:least_is_largest"]
    done = fuzz(*words, TRITON_CACHE_DIR=str(tmp_path), MYDEVICE_OPTIONS="items=1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"^---- program 0 of seed 2, .* tensor \d+: ", done.stdout, re.MULTILINE), done.stdout
    kernel = done.stdout.partition("def kernel(")[2].partition("1 programs")[0]
    assert "tl.minimum" in kernel
    assert len(kernel.splitlines()) < 20
