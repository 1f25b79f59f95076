"""LoRA of a Llama by Transformers and PEFT, compiled: the example of the gallery has the CPU's losses."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ("transformers", "peft")


def run(*options):
    command = [sys.executable, ROOT / "examples/lora/train.py", "--steps", "12", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", done.stdout)]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", [[], ["--eager"]], ids=["compiled", "eager"])
def test_the_adapters_learn_on_the_device_what_they_learn_on_the_cpu(mode):
    said, losses = run(*mode)
    _, expected = run("--eager", "--device", "cpu")
    assert "parameters learn on mydevice" in said
    assert "saved adapters" in said
    assert losses[-1] < losses[0] - 0.2  # a base of random numbers stays as it is
    assert losses == pytest.approx(expected, rel=2e-3)
