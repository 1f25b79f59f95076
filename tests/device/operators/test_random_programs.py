"""Random programs compute on each kind of device what they compute on the CPU, and the fuzzer finds wrong kernels.

``make fuzz`` runs more of them, new ones each time. Here they are the same each time, so a failure comes from a change.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

TESTS = Path(__file__).resolve().parents[2]
KINDS = ["unified-async", "unified-inline", "discrete-async", "discrete-inline", "minimal"]
KINDS += ["compiled-async", "compiled-inline"]


def fuzz(name, findings, *words):
    command = [sys.executable, "-m", "fuzz", "--device", name, "--findings", str(findings), *map(str, words)]
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=290, check=False)


@pytest.mark.long_after_first
@pytest.mark.parametrize("kind", KINDS)
def test_random_programs_do_what_they_do_on_the_cpu(name, tmp_path, kind):
    programs = 100 if kind == KINDS[0] else 300
    done = fuzz(name, tmp_path, "--programs", programs, "--seed", 1, "--kinds", kind)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"fuzz: {kind}: {programs} programs" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("kernel", "category", "operator", "steps"),
    [
        ("wrong_flip", "value", "torch.flip", 5),
        ("wrong_strides", "meta", "torch.roll", 5),
        ("kept", "leak", "torch.floor", 5),
        ("crash", "crash", "torch.trunc", 5),
        ("no_waits", r"\w+", "", 12),
    ],
)
def test_a_wrong_kernel_is_found_and_reduced(name, tmp_path, kernel, category, operator, steps):
    kind = "unified-async"
    done = fuzz(name, tmp_path, "--kinds", kind, "--seed", 1, "--most", 1, "--prepare", f"fuzz.planted:{kernel}")
    assert done.returncode == 1, done.stdout + done.stderr
    found = re.search(rf"^{kind}, seed (\d+): {category} ", done.stdout, re.MULTILINE)
    assert found, done.stdout
    program = json.loads((tmp_path / f"{kind}-{found[1]}.json").read_text())["program"]
    left = [step for part in (program["steps"], *program["threads"], program["after"]) for step in part]
    assert len(left) <= steps  # of no_waits, whose finding is a race, some may be a thread's
    assert any(step["fn"].startswith(operator) for step in left)
    assert "def program(side):" in (tmp_path / f"{kind}-{found[1]}.py").read_text()


def compiled(name, findings, kind, programs, *words):
    options = ["--kinds", kind, "--programs", programs, "--seed", 0, "--most", 1]
    return fuzz(name, findings, "--compiled", *options, *words)


@pytest.mark.long
def test_kernels_of_torch_compile_stay_inside_their_tensors(name, tmp_path):
    done = compiled(name, tmp_path, "address", 8)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fuzz: address: 8 programs" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "text"), [("address", r"crash: .*AddressSanitizer: use-after-poison"), ("item", "value: ")]
)
def test_a_kernel_that_reads_beyond_its_tensor_is_found_and_reduced(name, tmp_path, kind, text):
    done = compiled(name, tmp_path, kind, 1, "--prepare", "fuzz.planted:reads_beyond")
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(rf"^{kind}, seed 0: {text}", done.stdout, re.MULTILINE), done.stdout
    steps = (tmp_path / f"{kind}-0.py").read_text().partition("steps = [\n")[2].partition("]\n")[0]
    assert len(steps.splitlines()) <= 2
