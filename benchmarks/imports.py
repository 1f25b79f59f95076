"""What the package adds to `import torch`, each time in a fresh interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from statistics import median

from benchmarks.row import HOST, Result, Row

PROGRAM = """
import importlib, time, torch
start = time.perf_counter()
importlib.import_module({module!r})
print(time.perf_counter() - start)
"""


def import_row(module: str, budget: float = 50, runs: int = 9) -> Row:
    """The row for one module, its budget in ms; autoload is off, so that torch's import does not already contain it."""

    def measure(device: str) -> Result:
        environment = os.environ | {
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
            f"{device.upper()}_LINT": "off",
        }  # as in a release
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
        command = [sys.executable, "-c", PROGRAM.format(module=module)]
        times = []
        for _ in range(runs):
            run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if run.returncode != 0:
                raise RuntimeError(f"import {module} failed: {run.stderr.strip().splitlines()[-1]}")
            times.append(float(run.stdout) * 1e3)
        return Result(best=min(times), median=median(times), unit="ms")

    return Row(f"import {module} over import torch", measure, budget=budget, configurations=(HOST,))
