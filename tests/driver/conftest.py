"""What several tests of drivers share."""

from __future__ import annotations

import fcntl
import os

import pytest
from checker import BROKEN, ROOT, Built, compile_checker, compile_library, compile_sdk_driver


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Compile the checker (as ``torch-backplane check-driver`` does) and the drivers, once for all workers."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "check-driver"
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        names = ("sim", "minimal", "minimal_cpp", "broken", "no_driver")
        result = Built(compile_checker(folder), *(folder / f"lib{name}.so" for name in names))
        if not result.broken.exists():
            compile_sdk_driver(result.sim, "sim")
            minimal = ROOT / "examples" / "minimal_driver" / "minimal_driver.c"
            compile_library(result.minimal, [minimal])
            compile_library(result.minimal_cpp, [minimal.with_suffix(".cpp")])
            empty = folder / "no_driver.cpp"
            empty.write_text("int unrelated = 0;\n")
            compile_library(result.no_driver, [empty])
            compile_library(result.broken, list(BROKEN.glob("*.cpp")))
    return result
