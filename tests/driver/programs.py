"""The C++ tests of the drivers: what they are made of, and how they are built without CMake and run."""

from __future__ import annotations

import os
import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from checker import ROOT, hold_cases, run

# Programs, and how many cases each has at least.
PROGRAMS = {
    "collective_test": 32,
    "engine_test": 90,
    "fault_test": 16,
    "graph_test": 33,
    "module_test": 35,
    "profile_test": 28,
    "shims_modules_test": 20,
    "trace_test": 10,
}
DRIVERS = ROOT / "drivers"
FLAGS = ["-O1", "-g1", "-fno-omit-frame-pointer", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}"]


def sources() -> list[tuple[Path, str]]:
    """Every source, with the name that its bp_driver_get takes in the one program that holds them all."""
    found = [(path, "") for path in (DRIVERS / "engine").glob("*.cpp")]
    for driver in ("sim", "shims/emulate", "shims/fault", "shims/trace"):
        found += [(path, f"bp_{Path(driver).name}_get") for path in (DRIVERS / driver).glob("*.cpp")]
    found.append((ROOT / "examples" / "minimal_driver" / "minimal_driver.c", "bp_minimal_get"))
    found.append((Path(__file__).with_name("handle_driver.cpp"), "bp_handle_get"))
    found += [(Path(__file__).with_name(f"{name}.cpp"), "") for name in PROGRAMS]
    return found


def build(folder: Path, *more_flags: str) -> None:
    """Compile and link the programs with the compilers of CXX and CC."""
    cxx, cc = (shlex.split(os.environ.get(name, default)) for name, default in (("CXX", "c++"), ("CC", "cc")))
    flags = [*FLAGS, *more_flags]

    def compile_one(item: tuple[int, tuple[Path, str]]) -> str:
        number, (path, symbol) = item
        compiler = [*cc, "-std=c11"] if path.suffix == ".c" else [*cxx, "-std=c++20"]
        rename = [f"-Dbp_driver_get={symbol}"] if symbol else []
        target = str(folder / f"{path.stem if path.stem in PROGRAMS else number}.o")
        run([*compiler, *flags, *rename, "-c", str(path), "-o", target])
        return target

    with ThreadPoolExecutor(max_workers=2) as pool:
        objects = list(pool.map(compile_one, enumerate(sources())))
    shared = [target for target in objects if Path(target).stem not in PROGRAMS]
    for program in PROGRAMS:
        run([*cxx, *flags, *shared, str(folder / f"{program}.o"), "-o", str(folder / program), "-pthread"])


def run_program(folder: Path, program: str, *before: str, **environment: str) -> None:
    """Run a program, behind other words if there are any: all its cases hold, and there are as many as it has."""
    words = [*before, str(folder / program)]
    assert hold_cases(run(words, check=False, timeout=240, **environment)) > PROGRAMS[program]
