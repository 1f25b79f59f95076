"""The whole backend for another processor: compiled and linked against torch's wheel for it (``make cross``).

Nothing of it is run: torch's own library crashes in QEMU 7.2 at its first operator, without any backend.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_reference_build import ROOT, configure

CXX, CC = "aarch64-linux-gnu-g++", "aarch64-linux-gnu-gcc"
TORCH = ROOT / "build" / "cross" / "aarch64" / "torch"
DEFINITIONS = [
    "-DCMAKE_SYSTEM_NAME=Linux",
    "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
    f"-DCMAKE_C_COMPILER={CC}",
    f"-DCMAKE_CXX_COMPILER={CXX}",
    "-DCMAKE_BUILD_TYPE=Release",
]

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
needs_compiler = pytest.mark.skipif(
    platform.machine() == "aarch64" or shutil.which(CXX) is None,
    reason=f"no {CXX}: apt-get install g++-aarch64-linux-gnu",
)
needs_torch = pytest.mark.skipif(not TORCH.is_dir(), reason="no torch for aarch64 in build/cross: make cross")


@needs_compiler
def test_a_build_for_another_processor_asks_for_its_torch(tmp_path):
    with pytest.raises(AssertionError, match=r"needs the torch of that machine[\s\S]*-DBACKPLANE_TORCH_DIR="):
        configure(tmp_path, *DEFINITIONS)


@pytest.fixture(scope="module")
def backend():
    """Kept below build/, as a build for this machine is."""
    folder = configure(ROOT / "build" / "cross" / "backend", *DEFINITIONS, f"-DBACKPLANE_TORCH_DIR={TORCH}")
    cmake = Path(sys.executable).with_name("cmake")
    done = subprocess.run([cmake, "--build", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    return folder / "mydevice"


@needs_compiler
@needs_torch
def test_V04_every_part_is_of_that_processor(backend):
    files = [*backend.glob("*.so"), *backend.glob("lib/*.so"), *backend.glob("bin/*")]
    names = {re.sub(r"\.cpython.*", "", path.name) for path in files}
    assert {"_C", "_distributed", "libmydevice.so", "libmydevice_driver.so", "backplane-check-driver"} <= names
    for path in files:
        assert int.from_bytes(path.read_bytes()[18:20], "little") == 183, path  # EM_AARCH64
    assert {path.name.split("-", 2)[2] for path in backend.glob("*.so")} == {"aarch64-linux-gnu.so"}
