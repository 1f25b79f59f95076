# tests/driver/test_engine.py: runs the C++ tests of the drivers under two sanitizers.
"""Builds the programs without CMake: the drivers need nothing but a compiler and the public headers."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import PROGRAMS, build, run_program


@pytest.mark.long
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_drivers(tmp_path: Path, sanitizer: str) -> None:
    build(tmp_path, f"-fsanitize={sanitizer}")
    for program in PROGRAMS:
        run_program(tmp_path, program, TSAN_OPTIONS="halt_on_error=1", UBSAN_OPTIONS="halt_on_error=1")
