"""Shim drivers that tests put over the driver, each of one C file."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import backplane_sdk


def compiled(source: Path, folder: Path, **defines: object) -> str:
    """The path of the shim, in that folder; compiled with these macros if it is not there."""
    path = folder / f"lib{'_'.join([source.stem, *map(str, defines.values())])}.so"
    if not path.exists():
        command = [os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-shared", "-fPIC", "-pthread"]
        command += [f"-D{name}={value}" for name, value in defines.items()]
        subprocess.run([*command, f"-I{backplane_sdk.include_dir()}", str(source), "-o", str(path)], check=True)
    return str(path)
