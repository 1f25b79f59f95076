"""A short soak; ``make soak`` runs it for longer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).resolve().parents[2] / "soak.py"


@pytest.mark.once
@pytest.mark.long
def test_some_random_work_loses_nothing(name):
    drop = (f"{name.upper()}_DRIVER", f"{name.upper()}_OPTIONS", f"{name.upper()}_SHIMS")
    env = {key: value for key, value in os.environ.items() if key not in drop}
    words = [sys.executable, str(SOAK), "--seconds", "20", "--device", name]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "queued" in done.stdout
