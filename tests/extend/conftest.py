"""Builds examples/extend once, and runs code on it, in separate processes: torch supports one such device."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "extend"

PRELUDE = """
import io, json, os, sys, tempfile
import torch, extdevice
ops = torch.ops.extdevice
def report(**values):
    print(json.dumps(values))
"""


def run_cmake(*arguments: str | Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # cmake and ninja come from pip
    env = {**os.environ, "PATH": path}
    run = subprocess.run(["cmake", *map(str, arguments)], env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]


@pytest.fixture(scope="session")
def extdevice() -> Path:
    """The folder to put on the path, built or brought up to date. Parallel test processes wait for one another."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with open(BUILD / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run_cmake(
            *("-S", ROOT / "examples" / "extend", "-B", BUILD, "-G", "Ninja"),
            *(f"-Dbackplane_DIR={ROOT / 'cmake'}", f"-DPython_EXECUTABLE={sys.executable}"),
        )
        run_cmake("--build", BUILD, "--target", "extdevice", "extdevice_C", "extdevice_emulate")
    return BUILD


@pytest.fixture
def on_extdevice(extdevice: Path) -> Callable[..., dict[str, Any]]:
    """Runs Python code in a new process that has the device; returns what it passed to ``report(name=value)``."""

    def run(code: str, *arguments: str | Path) -> dict[str, Any]:
        path = os.pathsep.join([str(extdevice), str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, "-c", PRELUDE + textwrap.dedent(code), *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": path, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        assert "Overriding a previously registered kernel" not in done.stderr
        values: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return values

    return run
