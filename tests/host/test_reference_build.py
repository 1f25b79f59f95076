"""The root build as CONTRIBUTING.md configures it for work on the core: each source by itself, so many at a time.

In the unity groups of a normal build a missing include is hidden by the files before it. A few sources are compiled
here, others at each commit; ``BACKPLANE_UNITS=all`` takes all of them (four minutes on two processors).
"""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import backplane_sdk

ROOT = Path(__file__).resolve().parents[2]


def configure(folder: Path, *definitions: str, source: Path = ROOT, **environment: str) -> Path:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # cmake and ninja come from pip
    words = ["cmake", "-S", source, "-B", folder, "-G", "Ninja", f"-DPython_EXECUTABLE={sys.executable}"]
    done = subprocess.run(
        [*map(str, words), "-DBACKPLANE_CCACHE=OFF", *definitions],
        env={**os.environ, "PATH": path, "CMAKE_BUILD_PARALLEL_LEVEL": "", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def pools(folder: Path) -> dict[str, int]:
    """The pools that ninja knows, and how many compilations each lets run."""
    text = (folder / "CMakeFiles" / "rules.ninja").read_text() + (folder / "build.ninja").read_text()
    return {name: int(depth) for name, depth in re.findall(r"^pool (\w+)\n  depth = (\d+)", text, re.MULTILINE)}


def compilations(folder: Path) -> list[str]:
    """The pool of each compilation, or nothing."""
    edges = [e for e in (folder / "build.ninja").read_text().split("\n\n") if re.search(r": C(XX)?_COMPILER_", e)]
    found = [re.search(r"^  pool = (\w+)", edge, re.MULTILINE) for edge in edges]
    return [pool[1] if pool else "" for pool in found]


def test_the_pool_of_compilations(tmp_path):
    """As many as processors, or as asked for; a project keeps its own."""
    folder = configure(tmp_path, OMP_NUM_THREADS="1")  # of torch's threads, not of the compiler's
    assert pools(folder) == {"backplane_compile": len(os.sched_getaffinity(0))}
    assert set(compilations(folder)) == {"backplane_compile"}
    configure(tmp_path, CMAKE_BUILD_PARALLEL_LEVEL="5")
    assert pools(folder) == {"backplane_compile": 5}
    groups = list((folder / "CMakeFiles" / "mydevice_core_aten.dir" / "Unity").glob("unity_core*.cxx"))
    assert len(groups) == 4  # beside the bindings
    configure(tmp_path, "-DCMAKE_JOB_POOLS=farm=40", "-DCMAKE_JOB_POOL_COMPILE=farm")
    assert pools(folder) == {"farm": 40}
    assert set(compilations(folder)) == {"farm"}


@pytest.mark.long
def test_the_users_launcher_is_kept(tmp_path):
    """In front of the compiler; of kernels whose headers are precompiled, behind the namespace of this checkout."""
    folder = configure(tmp_path, "-DBACKPLANE_DRIVER=cuda", CMAKE_CXX_COMPILER_LAUNCHER="/usr/bin/env")
    found = re.findall(r"^  LAUNCHER = (.*?) *$", (folder / "build.ninja").read_text(), re.MULTILINE)
    assert {words.rpartition("cmake ")[2] for words in found} == {
        "/usr/bin/env",
        f"-E env CCACHE_NAMESPACE={ROOT} /usr/bin/env",
    }


def test_cmake_reads_torchs_versions(tmp_path):
    script = tmp_path / "versions.cmake"
    wanted = ["BACKPLANE_TORCH_MINORS", "BACKPLANE_OLDEST_TORCH", "BACKPLANE_NEWEST_TORCH"]
    script.write_text(
        f"include({ROOT}/cmake/BackplaneVersion.cmake)\n" + "".join(f'message("${{{name}}}")\n' for name in wanted)
    )
    cmake = Path(sys.executable).with_name("cmake")
    said = subprocess.run([cmake, "-P", script], capture_output=True, text=True, check=True).stderr.splitlines()
    minors = backplane_sdk.TORCH_MINORS
    assert said == [";".join(minors), minors[0], minors[-1]]


def sample() -> list[str]:
    folders = ("backend", "drivers", "check_driver")
    sources = sorted(str(path.relative_to(ROOT)) for folder in folders for path in (ROOT / folder).rglob("*.cpp"))
    sources = [source for source in sources if "kernels/cuda" not in source]  # of tests/host/test_cuda_kernels.py
    if os.environ.get("BACKPLANE_UNITS") == "all":
        return sources
    commit = subprocess.getoutput(f"git -C {shlex.quote(str(ROOT))} rev-parse HEAD")
    return sorted(random.Random(commit).sample(sources, 6))


def compile_commands(folder: Path) -> dict[str, list[str]]:
    """Of each file that is compiled, the words."""
    entries = json.loads((folder / "compile_commands.json").read_text())
    return {entry["file"]: shlex.split(entry["command"]) for entry in entries}


def check(words: list[str], *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*words, "-fsyntax-only", *options], capture_output=True, text=True, check=False)


@pytest.mark.long_after_first
@pytest.mark.parametrize(("development", "code"), [("OFF", 0), ("ON", 1)])
def test_warnings_of_the_sdk_are_for_its_developers(tmp_path, development, code):
    strict = "-DCMAKE_CXX_FLAGS=-Weffc++ -Werror"  # a vendor's, which the SDK does not hold
    commands = compile_commands(configure(tmp_path, strict, f"-DBACKPLANE_DEV={development}"))
    (words,) = [words for file, words in commands.items() if "mydevice_fault.dir" in file or "fault/fault.cpp" in file]
    done = check(words)
    assert done.returncode == code, done.stderr
    assert ("-Werror=effc++" in done.stderr) == bool(code)
    for file, words in commands.items():
        is_vendor = re.search(r"CMakeFiles/(mydevice|minimal_driver)\.dir/", " ".join(words))  # kernels, a driver
        assert ("-w" in words, "-Wall" in words) == ((False, True) if is_vendor or code else (True, False)), file
        assert ("-Wextra" in words) == bool(code), file  # a vendor's to ask for


@pytest.mark.long_after_first
@pytest.mark.parametrize("driver", ["vulkan", "opencl"])
def test_a_driver_of_the_sdk_compiles_in_a_project(tmp_path, driver):
    """tests/driver compiles them without CMake; the simulated one is the demo's."""
    commands = compile_commands(configure(tmp_path, f"-DBACKPLANE_DRIVER={driver}"))
    (words,) = [words for words in commands.values() if "mydevice_driver.dir" in " ".join(words)]
    done = check(words)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """Of the configurations with each of the SDK's drivers: all sources of the core are in the last."""
    found = {}
    for driver in ("cuda", "opencl", "vulkan", "sim"):
        folder = tmp_path_factory.mktemp(driver)
        found |= compile_commands(configure(folder, "-DBACKPLANE_DEV=ON", f"-DBACKPLANE_DRIVER={driver}"))
    return found


@pytest.mark.long
@pytest.mark.parametrize("source", sample())
def test_a_source_compiles_by_itself(commands, source):
    done = check(commands[str(ROOT / source)], "-Werror")
    assert done.returncode == 0, done.stderr
