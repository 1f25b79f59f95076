"""The gallery's program that trains with kernels of Triton has the losses of torch's operators on the CPU."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def losses(*options):
    command = [sys.executable, ROOT / "examples/triton/train.py", "--steps", "30", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout, [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", done.stdout)]


def test_the_gallerys_program_learns_what_torchs_operators_learn():
    said, found = losses()
    _, expected = losses("--plain", "--device", "cpu")
    assert re.search(r"trained by kernels of Triton \S+ on mydevice:0", said)
    assert found[-1] < found[0] / 2
    assert found == pytest.approx(expected, abs=2e-3)
