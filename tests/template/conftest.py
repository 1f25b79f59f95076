"""What several tests of the template share."""

import os
import sys
from pathlib import Path

import pytest
from filelock import FileLock

sys.path.insert(0, str(Path(__file__).parent))

from projects import ROOT, SHORT, Environment, build_sdk, new


@pytest.fixture(scope="session")
def sdk_dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the SDK's sdist and the wheel made from it, as `make dist`; once for all processes of a run."""
    shared = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        shared = shared.parent
    folder = shared / "sdk_dist"
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():
            build_sdk(ROOT, folder)
    return folder


@pytest.fixture(scope="session")
def sdk_wheel(sdk_dist: Path) -> Path:
    """The SDK's wheel."""
    (wheel,) = sdk_dist.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def user(tmp_path_factory: pytest.TempPathFactory, sdk_wheel: Path) -> tuple[Environment, Path, Path, str]:
    """The minimal driver, from wheels alone, by the command that they bring.

    Gives (environment, project, the project's wheel, pip's output).
    """
    folder = tmp_path_factory.mktemp("user")
    environment = Environment(folder / "venv")
    environment.pip("install", "--no-deps", sdk_wheel)
    answers = {**SHORT, "driver": "minimal", "kernels": "add", "license": "Apache-2.0", "ci": "github"}
    project = new(folder / "project", answers, environment)
    said = environment.pip("wheel", "-v", "--no-build-isolation", "--no-deps", "-w", folder / "dist", project)
    (wheel,) = (folder / "dist").glob("*.whl")
    environment.pip("install", "--no-deps", wheel)
    return environment, project, wheel, said
