"""Libraries from the package index, arranged for the device: ``make test-ecosystem``. Nothing is downloaded: models are
made here, small and the same each time."""

import json
import os
import subprocess
import sys
from pathlib import Path

os.environ["MYDEVICE_INTEGRATIONS"] = "auto"  # before torch, and so before the backend
os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1", TRANSFORMERS_VERBOSITY="error", WANDB_DISABLED="1")
os.environ.update(OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", CI="")

import pytest
import torch

torch.set_num_threads(1)


def pytest_configure(config):
    config.addinivalue_line("markers", "sample: quick, and stands by itself: what CI may run of this folder")


@pytest.fixture
def name(device):
    return device.type


@pytest.fixture(autouse=True)
def new_state(device_module):
    """Accelerate, where it is imported, has one state a process."""
    torch.manual_seed(0)
    yield
    if state := sys.modules.get("accelerate.state"):
        state.AcceleratorState._reset_state(True)
        state.GradientState._reset_state()
    device_module.set_device(0)


@pytest.fixture
def run(tmp_path):
    """``run(code_or_path, *arguments, launcher=[...], **environment)``: the text that a program prints."""

    def start(program, *arguments, launcher=(), **environment):
        path = Path(program)
        if "\n" in str(program):
            path = tmp_path / "program.py"
            path.write_text(program)
        env = {**os.environ, **environment}
        for unset in [key for key, value in env.items() if value is None]:
            del env[unset]
        command = [sys.executable, *launcher, str(path), *map(str, arguments)]
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=280)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        start.errors = done.stderr
        return done.stdout

    return start


@pytest.fixture
def answer(run):
    """As ``run``: what the program has printed last, read as JSON."""
    return lambda *args, **kwargs: json.loads(run(*args, **kwargs).strip().splitlines()[-1])
