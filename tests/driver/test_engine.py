# tests/driver/test_engine.py: runs engine_test.cpp (engine, sim, emulate, minimal driver) under two sanitizers.
"""Builds the program without CMake: the drivers need nothing but a compiler and the public headers."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DRIVERS = ROOT / "backend" / "drivers"
FLAGS = ["-O1", "-g1", "-fno-omit-frame-pointer", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}"]


def sources() -> list[tuple[Path, str]]:
    """Every source, with the name that its bp_driver_get takes in the one program that holds them all."""
    found = [(path, "") for path in (DRIVERS / "common").glob("*.cpp")]
    for driver in ("sim", "emulate"):
        found += [(path, f"bp_{driver}_get") for path in (DRIVERS / driver).glob("*.cpp")]
    found.append((ROOT / "examples" / "minimal_driver" / "minimal_driver.c", "bp_minimal_get"))
    found.append((Path(__file__).with_name("handle_driver.cpp"), "bp_handle_get"))
    found.append((Path(__file__).with_name("engine_test.cpp"), ""))
    return found


def run(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def build(folder: Path, sanitizer: str) -> Path:
    """Compile and link the program with one sanitizer (or several, comma-separated)."""
    cxx, cc = os.environ.get("CXX", "c++"), os.environ.get("CC", "cc")
    flags = [*FLAGS, f"-fsanitize={sanitizer}"]

    def compile_one(item: tuple[int, tuple[Path, str]]) -> str:
        number, (path, symbol) = item
        compiler = [cc, "-std=c11"] if path.suffix == ".c" else [cxx, "-std=c++20"]
        rename = [f"-Dbp_driver_get={symbol}"] if symbol else []
        target = str(folder / f"{number}.o")
        run([*compiler, *flags, *rename, "-c", str(path), "-o", target])
        return target

    with ThreadPoolExecutor(max_workers=2) as pool:
        objects = list(pool.map(compile_one, enumerate(sources())))
    program = folder / "engine_test"
    run([cxx, *flags, *objects, "-o", str(program), "-pthread"])
    return program


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_engine(tmp_path: Path, sanitizer: str) -> None:
    program = build(tmp_path, sanitizer)
    environment = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1", "UBSAN_OPTIONS": "halt_on_error=1"}
    result = subprocess.run([str(program)], capture_output=True, text=True, timeout=240, env=environment, check=False)
    failed = [line for line in result.stdout.splitlines() if line.startswith("FAIL")]
    assert not failed, "\n".join(failed)
    assert result.returncode == 0, result.stderr
    passed = [line for line in result.stdout.splitlines() if line.startswith("ok")]
    assert len(passed) > 120, result.stdout
