# tests/driver/test_shims_modules.py: bp.compiler and bp.module through the shims emulate and fault.
"""Runs shims_modules_test.cpp as it is; test_engine.py runs it under the sanitizers."""

from __future__ import annotations

import os
import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from checker import ROOT, run


def build_program(program: Path, drivers: tuple[str, ...]) -> Path:
    """Compile the test of that name and drivers of the SDK into one program, where each has an entry of its own."""
    compiler = [*shlex.split(os.environ.get("CXX", "g++")), "-std=c++20", "-O0", f"-I{ROOT / 'include'}"]

    def compile_one(name: str) -> str:
        unit, symbol = program.parent / f"{Path(name).name}.cpp", f"bp_{Path(name).name}_get"
        unit.write_text("".join(f'#include "{path}"\n' for path in sorted((ROOT / "drivers" / name).glob("*.cpp"))))
        run([*compiler, f"-Dbp_driver_get={symbol}", "-c", str(unit), "-o", str(unit.with_suffix(".o"))])
        return str(unit.with_suffix(".o"))

    with ThreadPoolExecutor(max_workers=2) as pool:
        objects = list(pool.map(compile_one, ("engine", *drivers)))
    source = Path(__file__).with_name(f"{program.name}.cpp")
    run([*compiler, str(source), *objects, "-o", str(program), "-pthread", "-ldl"])
    return program


def run_program(program: Path, cases: int) -> None:
    """Run a test that prints a line for each case."""
    done = run([str(program)], check=False)
    assert [line for line in done.stdout.splitlines() if line.startswith("FAIL")] == []
    assert done.returncode == 0, done.stdout + done.stderr
    assert sum(line.startswith("ok ") for line in done.stdout.splitlines()) >= cases, done.stdout


def test_modules_through_the_shims(tmp_path: Path) -> None:
    run_program(build_program(tmp_path / "shims_modules_test", ("sim", "shims/emulate", "shims/fault")), 35)
