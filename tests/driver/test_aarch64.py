"""The drivers and the checker on another processor, by a cross compiler and an emulator (``make cross``)."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from checker import ROOT, compile_checker, compile_library, compile_sdk_driver, run
from programs import PROGRAMS, build, run_program

CXX, CC = "aarch64-linux-gnu-g++", "aarch64-linux-gnu-gcc"
QEMU = ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu")
ABSENT = [name for name in (CXX, CC, QEMU[0]) if shutil.which(name) is None]

ALL = "CROSS" in os.environ  # make cross

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(platform.machine() == "aarch64", reason="every other test runs on this processor"),
    pytest.mark.skipif(bool(ABSENT), reason=f"no {', '.join(ABSENT)}: apt-get install g++-aarch64-linux-gnu qemu-user"),
]


@pytest.fixture(scope="module", autouse=True)
def compilers() -> object:
    """Also of the simulated device, which compiles kernels with $CC."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", CXX)
        patch.setenv("CC", CC)
        yield


def is_aarch64(file: Path) -> bool:
    header = file.read_bytes()[:20]
    return header[:4] == b"\x7fELF" and int.from_bytes(header[18:20], "little") == 183


def test_V04_the_drivers_programs_pass(tmp_path: Path) -> None:
    build(tmp_path)
    for program in PROGRAMS:
        assert is_aarch64(tmp_path / program)
        run_program(tmp_path, program, *QEMU)


def test_the_interface_is_laid_out_as_everywhere(tmp_path: Path) -> None:
    """Sizes, offsets and numbers of driver.h, in C and in C++."""
    for source, compiler in (("layout.c", [CC, "-std=c11"]), ("layout.cpp", [CXX, "-std=c++17"])):
        words = [*compiler, "-I", str(ROOT / "include"), "-fsyntax-only", str(Path(__file__).with_name(source))]
        assert subprocess.run(words, check=False, capture_output=True).returncode == 0


@pytest.mark.parametrize("driver", ["sim", "minimal"])
def test_V04_the_checker_passes_a_simulated_device_and_a_vendors_first(tmp_path: Path, driver: str) -> None:
    """The emulator starts a process in seconds, and each rule has one: all rules are held by `make cross`."""
    checker = compile_checker(tmp_path)
    assert is_aarch64(checker)
    library = tmp_path / "libdriver.so"
    if driver == "sim":
        compile_sdk_driver(library, "sim")
    else:
        compile_library(library, ROOT / "examples" / "minimal_driver" / "minimal_driver.c")
    part = [] if ALL else [word for family in ("load.*", "copy.*", "fill.*") for word in ("--only", family)]
    if driver == "sim":
        part += ["--options", "memory=256MiB"]  # QEMU keeps 300 bytes of each page that was ever mapped
    done = run([*QEMU, str(checker), str(library), "--time-limit=300", *part], check=False, timeout=1100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall("^  ok ", done.stdout, re.MULTILINE)) > 10
