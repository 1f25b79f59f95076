"""What several tests of drivers share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from checker import Built


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The checker and the drivers, compiled once for all workers."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "drivers"
    folder.mkdir(exist_ok=True)
    return Built(folder)


@pytest.fixture(autouse=True)
def _result_of_the_checker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_TMP", str(tmp_path))
