"""The shim trace under the contract checker; trace_test.cpp, which test_engine.py runs, has what it writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from checker import ROOT, Built, check

LINE = re.compile(r"\[trace\] \d+\.\d \+\d+\.\d \d+ ([a-z_.]+)( .*)? -> [A-Z_]+.*")


@pytest.mark.long
@pytest.mark.parametrize("shims", [["trace"], ["emulate", "trace"]], ids=" over ".join)
def test_a_traced_driver_keeps_the_contract(built: Built, tmp_path: Path, shims: list[str]) -> None:
    trace = built.sdk_driver("shims/trace")
    driver = built.sim if shims == ["trace"] else built.minimal
    only = [f"--only={family}.*" for family in ("error", "fork", "life", "memory", "copy", "stream", "ext", "module")]
    stack = [f"--shim={trace if shim == 'trace' else shim}" for shim in shims]
    plain = check(built, driver, *only, *[shim for shim in stack if "trace" not in shim])
    written = tmp_path / "calls"
    traced = check(built, driver, *only, *stack, f"--options=trace.file={written}")
    assert (traced.code, traced.failed) == (0, {}), traced.out + traced.err
    assert (traced.passed, traced.not_offered) == (plain.passed, plain.not_offered)
    lines = written.read_text().splitlines()
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    assert {"open", "alloc", "copy", "close"} <= {match[1] for line in lines if (match := LINE.fullmatch(line))}


def test_the_page_names_the_options() -> None:
    page = (ROOT / "docs" / "trace.md").read_text(encoding="utf-8")
    source = (ROOT / "drivers" / "shims" / "trace" / "trace.cpp").read_text(encoding="utf-8")
    known = set(re.findall(r'options\.\w+\("(\w+)"', source))
    assert known
    assert known == set(re.findall(r"^\| `trace\.(\w+)", page, re.MULTILINE))
