"""The contract checker and the drivers that its tests compile, and what a run of it said."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "build" / "demo"
BACKEND = DEMO / "mydevice" / "build" / "mydevice"
# What `make test` has built before the tests, and the folders of its sources, beside the headers and the engine.
OF_MAKE = {
    "checker": (BACKEND / "bin" / "backplane-check-driver", ["check_driver", "drivers/shims"]),
    "libsim.so": (BACKEND / "lib" / "libmydevice_driver.so", ["drivers/sim"]),
    "libemulate.so": (BACKEND / "lib" / "libbackplane_emulate.so", ["drivers/shims"]),
    "libfault.so": (BACKEND / "lib" / "libbackplane_fault.so", ["drivers/shims"]),
    "libtrace.so": (BACKEND / "lib" / "libbackplane_trace.so", ["drivers/shims"]),
    "libminimal.so": (DEMO / "minimal" / "libminimal_driver.so", ["examples/minimal_driver"]),
    "libopencl.so": (DEMO / "opencl" / "libopencl_driver.so", ["drivers/opencl"]),
    "libvulkan.so": (DEMO / "vulkan" / "libvulkan_driver.so", ["drivers/vulkan", "drivers/spirv"]),
}
HERE = Path(__file__).parent
BROKEN = HERE / "broken"
MINIMAL = ROOT / "examples" / "minimal_driver" / "minimal_driver.c"


def up_to_date(name: str) -> Path | None:
    """The file that `make` has built, if none of its sources is newer."""
    built, folders = OF_MAKE.get(name, (None, []))
    if built is None or not built.exists():
        return None
    folders = ["include/backplane/driver", "drivers/engine", *folders]
    sources = [ROOT / "include/backplane/driver.h", *(path for part in folders for path in (ROOT / part).rglob("*.*"))]
    return built if max(path.stat().st_mtime for path in sources) <= built.stat().st_mtime else None


class Built:
    """What the tests use: the files of `make`, or else compiled into one folder, by the first process that asks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def once(self, name: str, make: Callable[[Path], object]) -> Path:
        """The file of that name. What `make` raises leaves none."""
        if made := up_to_date(name):
            return made
        out = self.folder / name
        with open(self.folder / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not out.exists():
                make(out)
        return out

    def sdk_driver(self, name: str) -> Path:
        """A driver of the SDK: `sim`, `shims/trace`."""
        return self.once(f"lib{Path(name).name}.so", lambda out: compile_sdk_driver(out, name))

    def unit(self, name: str, sources: list[Path]) -> Path:
        """A library that is compiled as one unit."""
        return self.once(f"lib{name}.so", lambda out: compile_unit(out, sources))

    def program_of(self, source: Path) -> Path:
        """A C++ program of one source, which loads what it tests."""
        compiler = [*shlex.split(os.environ.get("CXX", "g++")), "-std=c++20", "-O0", f"-I{ROOT / 'include'}"]
        return self.once(source.stem, lambda out: run([*compiler, str(source), "-o", str(out), "-pthread", "-ldl"]))

    @cached_property
    def program(self) -> Path:
        """The checker, where `torch-backplane check-driver` keeps it."""
        return self.once("checker", lambda out: out.symlink_to(compile_checker(self.folder))).resolve()

    @cached_property
    def sim(self) -> Path:
        return self.sdk_driver("sim")

    @cached_property
    def minimal(self) -> Path:
        return self.once("libminimal.so", lambda out: compile_library(out, MINIMAL))

    @cached_property
    def minimal_cpp(self) -> Path:
        return self.unit("minimal_cpp", [MINIMAL.with_suffix(".cpp")])

    @cached_property
    def broken(self) -> Path:
        return self.unit("broken", sorted(BROKEN.glob("*.cpp")))


def compile_checker(cache: Path, **env: str) -> Path:
    code = "from backplane_tools.cli.check_driver import compiled_program; print(compiled_program())"
    return Path(run([sys.executable, "-c", code], XDG_CACHE_HOME=str(cache), **env).stdout.strip())


def compile_sdk_driver(out: Path, name: str) -> None:
    """A driver of the SDK, of the sources that its driver.cmake names."""
    (patterns,) = re.findall(r"^set\(sources (.*)\)$", (ROOT / "drivers" / name / "driver.cmake").read_text(), re.M)
    compile_unit(out, [path for pattern in shlex.split(patterns) for path in sorted(ROOT.glob(pattern))])


def compile_unit(out: Path, sources: list[Path]) -> None:
    """Compile them as one unit, like a build: the headers cost more than the code."""
    unit = out.with_suffix(".cpp")
    unit.write_text("".join(f'#include "{path}"\n' for path in sources))
    compile_library(out, unit)


def compile_library(out: Path, source: Path) -> None:
    """Compile a shared object of C or C++; it is there whole, or not at all."""
    variable, default, standard = ("CC", "cc", "c11") if source.suffix == ".c" else ("CXX", "g++", "c++20")
    compiler = [*shlex.split(os.environ.get(variable, default)), f"-std={standard}"]
    words = ["-O0", "-fPIC", "-shared", f"-I{ROOT / 'include'}", str(source), "-o", f"{out}.new", "-lpthread"]
    run([*compiler, *words])
    os.rename(f"{out}.new", out)


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


def hold_cases(done: subprocess.CompletedProcess[str]) -> int:
    """How many cases a C++ test of the drivers had; all of them hold."""
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
    assert not failed, "\n".join(failed)
    assert done.returncode == 0, f"ended with {done.returncode} after {done.stdout[-200:]!r}: {done.stderr}"
    return sum(line.startswith("ok") for line in done.stdout.splitlines())


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
