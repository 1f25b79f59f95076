"""Shim drivers that tests put over the driver, each of one C file."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import backplane_sdk


def compiled(source: Path, folder: Path) -> str:
    """The path of the shim, in that folder; compiled if it is not there."""
    path = folder / f"lib{source.stem}.so"
    if not path.exists():
        command = [os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-shared", "-fPIC", "-pthread"]
        subprocess.run([*command, f"-I{backplane_sdk.include_dir()}", str(source), "-o", str(path)], check=True)
    return str(path)
