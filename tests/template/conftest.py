"""What several tests of the template share."""

import os
import sys
from pathlib import Path

import pytest
from filelock import FileLock

sys.path.insert(0, str(Path(__file__).parent))

from projects import ROOT, SHORT, Environment, new, run


@pytest.fixture(scope="session")
def sdk_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The SDK's wheel, built once for all processes of a run."""
    shared = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        shared = shared.parent
    folder = shared / "sdk_wheel"
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():
            run(sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def user(tmp_path_factory: pytest.TempPathFactory, sdk_wheel: Path) -> tuple[Environment, Path, Path, str]:
    """The minimal driver, from wheels. Gives (environment, project, the project's wheel, pip's output)."""
    folder = tmp_path_factory.mktemp("user")
    environment = Environment(folder / "venv")
    environment.pip("install", "--no-deps", sdk_wheel)
    project = new(
        folder / "project", {**SHORT, "driver": "minimal", "kernels": "add", "license": "Apache-2.0", "ci": "none"}
    )
    said = environment.pip("wheel", "-v", "--no-build-isolation", "--no-deps", "-w", folder / "dist", project)
    (wheel,) = (folder / "dist").glob("*.whl")
    environment.pip("install", "--no-deps", wheel)
    return environment, project, wheel, said
