"""The parts of the core that threads share, under ThreadSanitizer; ``make tsan`` runs all of it.

Builds the runtime and the memory of the core, without operators and Python: a fifth of what the whole takes.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path

import pytest
import run

pytestmark = pytest.mark.long

PROGRAMS = ["allocator_stress", "streams_stress"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs, and a driver for them."""
    folder = tmp_path_factory.mktemp("thread")
    torch = Path(sysconfig.get_path("platlib")) / "torch"
    compiler = [os.environ.get("CXX", "c++"), "-std=c++20", *run.FLAGS, "-fsanitize=thread", "-fPIC", "-pthread"]
    compiler += ["-isystem", torch / "include", f"-I{run.ROOT}/include", f"-I{run.ROOT}/backend"]
    compiler += ['-DBACKPLANE_DEVICE_NAME="mydevice"', '-DBACKPLANE_ENV_PREFIX="MYDEVICE"', '-DBACKPLANE_VERSION="0"']

    def unit(*parts: str) -> Path:
        """The sources of some folders as one file."""
        path = folder / f"{Path(parts[-1]).name}.cpp"
        sources = sorted(source for part in parts for source in (run.ROOT / part).glob("*.cpp"))
        path.write_text("".join(f'#include "{source}"\n' for source in sources))
        return path

    run.sh(*compiler, "-shared", unit("drivers/engine", "drivers/sim"), "-o", folder / "libdriver.so")
    run.sh(*compiler, "-c", unit("backend/runtime", "backend/memory"), "-o", folder / "core.o")
    libraries = [f"-L{torch / 'lib'}", f"-Wl,-rpath,{torch / 'lib'}", "-ltorch_cpu", "-lc10", "-ldl"]
    for program in PROGRAMS:
        source = run.ROOT / "tests/device/cpp" / f"{program}.cpp"
        run.sh(*compiler, source, folder / "core.o", "-o", folder / program, *libraries)
    return folder


@pytest.mark.timeout(900)  # half a minute of compiling, on a busy machine much more
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("kind", run.KINDS[:2])
def test_threads(folder: Path, program: str, kind: str) -> None:
    env = {**run.environment(kind), "MYDEVICE_DRIVER": str(folder / "libdriver.so")}
    done = subprocess.run([folder / program], env=env, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(" 0 errors\n")
