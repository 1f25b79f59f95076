"""The contract checker and the drivers that its tests compile, and what a run of it said."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BROKEN = ROOT / "tests" / "driver" / "broken"


@dataclass(frozen=True)
class Built:
    """What the session compiled."""

    program: Path
    sim: Path
    minimal: Path
    minimal_cpp: Path
    broken: Path
    no_driver: Path


def compile_checker(cache: Path) -> Path:
    code = "from torch_backplane.cli.check_driver import compiled_program; print(compiled_program())"
    return Path(run([sys.executable, "-c", code], XDG_CACHE_HOME=str(cache)).stdout.strip())


def compile_sdk_driver(out: Path, name: str) -> None:
    """Compile a driver of the SDK as one unit, like a build: the headers cost more than the code."""
    drivers = ROOT / "drivers"
    unit = out.with_suffix(".cpp")
    unit.write_text(
        "".join(f'#include "{path}"\n' for part in ("engine", name) for path in drivers.glob(f"{part}/*.cpp"))
    )
    compile_library(out, [unit])


def compile_library(out: Path, sources: list[Path]) -> None:
    include = ["-I", str(ROOT / "include")]
    flags = ["-O0", "-shared", "-fPIC", *include]
    if sources[0].suffix == ".c":
        compiler = [*shlex.split(os.environ.get("CC", "cc")), "-std=c11"]
    else:
        compiler = [*shlex.split(os.environ.get("CXX", "g++")), "-std=c++20"]
    run([*compiler, *flags, *map(str, sorted(sources)), "-o", str(out) + ".new", "-lpthread"])
    os.rename(str(out) + ".new", out)


def run(
    words: list[str], check: bool = True, cwd: Path | None = None, timeout: int = 300, **env: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        errors="replace",
        cwd=cwd,
        env={**os.environ, **env},
        timeout=timeout,
        check=False,
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


@dataclass(frozen=True)
class Report:
    """One run of the checker."""

    code: int
    out: str
    err: str
    passed: set[str]
    failed: dict[str, str]
    not_offered: dict[str, str]
    left_out: dict[str, str]  # not run, skipped, or failed as expected


def check(built: Built, driver: Path, *words: str) -> Report:
    junit = Path(os.environ["PYTEST_TMP"]) / "result.xml"
    junit.unlink(missing_ok=True)
    done = run([str(built.program), str(driver), f"--junit={junit}", *words], check=False)
    passed, failed, not_offered, left_out = set(), {}, {}, {}
    if junit.exists():
        for case in ElementTree.parse(junit).getroot().iter("testcase"):
            name = case.get("name") or ""
            assert case.get("classname") == name.split(".")[0]
            if (failure := case.find("failure")) is not None:
                failed[name] = f"{failure.get('message')}\n{failure.text}"
            elif (skipped := case.find("skipped")) is not None:
                why = skipped.get("message") or ""
                (not_offered if why.startswith("not offered: ") else left_out)[name] = why
            else:
                passed.add(name)
    return Report(done.returncode, done.stdout, done.stderr, passed, failed, not_offered, left_out)
