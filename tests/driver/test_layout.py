# tests/driver/test_layout.py: the driver ABI's layout is frozen, in C11, C++17 and C++20, and the freeze can fail.
"""Compiles layout.c and layout.cpp, which hold nothing but static assertions."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
STRICT = ["-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
DIALECTS = [("c11", "layout.c"), ("c++17", "layout.cpp"), ("c++20", "layout.cpp")]


def compile_layout(standard: str, source: str, include: Path) -> subprocess.CompletedProcess[str]:
    """Check the assertions of ``source`` against the headers under ``include``."""
    compiler = os.environ.get("CC", "cc") if source.endswith(".c") else os.environ.get("CXX", "c++")
    command = [compiler, f"-std={standard}", *STRICT, f"-I{include}", str(HERE / source)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("standard", "source"), DIALECTS)
def test_layout_is_frozen(standard: str, source: str) -> None:
    result = compile_layout(standard, source, ROOT / "include")
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("  uint32_t reserved;\n  void* self;", "  void* self;\n  uint32_t reserved;", "offset of bp_driver.reserved"),
        ("int32_t (*host_free)(void* self, void* ptr);", "", "offset of bp_driver.host_register"),
        ("  uint64_t reserved[8];", "  uint64_t reserved[7];", "size of bp_device_properties"),
        ("BP_FAULT = 6,", "BP_FAULT = 16,", "value of BP_FAULT"),
    ],
)
def test_a_changed_header_is_noticed(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    include = tmp_path / "include"
    shutil.copytree(ROOT / "include", include)
    header = include / "backplane" / "driver.h"
    text = header.read_text()
    assert old in text
    header.write_text(text.replace(old, new, 1))
    result = compile_layout("c11", "layout.c", include)
    assert result.returncode != 0
    assert complaint in result.stderr


def test_public_cpp_headers_stand_alone() -> None:
    headers = sorted((ROOT / "include" / "backplane" / "driver" / "cxx").glob("*.hpp"))
    assert len(headers) > 8
    compiler = [os.environ.get("CXX", "c++"), "-std=c++17", *STRICT, f"-I{ROOT / 'include'}"]
    for header in headers:
        # Included, not compiled by itself: an include guard that is missing shows, too.
        text = f'#include "{header}"\n' * 2
        result = subprocess.run([*compiler, "-x", "c++", "-"], input=text, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
