"""A setuid process takes no driver, shim or option from its environment."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_secure_processes_read_no_variables(tmp_path: Path) -> None:
    program = tmp_path / "secure_env"
    sources = [ROOT / "backend" / "runtime" / "options.cpp", Path(__file__).with_name("secure_env_test.cpp")]
    defines = ['-DBACKPLANE_DEVICE_NAME="dev"', '-DBACKPLANE_ENV_PREFIX="DEV"']
    compiler = shlex.split(os.environ.get("CXX", "g++"))
    include = ["-I", str(ROOT / "backend"), "-I", str(ROOT / "include")]
    subprocess.run([*compiler, "-std=c++20", *defines, *include, *map(str, sources), "-o", str(program)], check=True)
    names = {"DEV_DRIVER": "/a.so", "DEV_SHIMS": "b", "DEV_OPTIONS": "c=1", "DEV_LAUNCH_BLOCKING": "1"}
    environment = {**os.environ, **names}
    said = [
        subprocess.run([program, *words], env=environment, capture_output=True, text=True, check=True).stdout.split()
        for words in ([], ["secure"])
    ]
    assert said == [["/a.so", "b", "c=1", "1"], ["unset", "unset", "unset", "0"]]
