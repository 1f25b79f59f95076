"""docs/migration.md, "From an earlier template": its steps bring a project of an earlier template to the SDK."""

import re
import shutil
import sys
from pathlib import Path

import pytest
from projects import ROOT, new, run

pytestmark = pytest.mark.long
EARLIER = Path(__file__).with_name("earlier.tar.xz")  # what the template of the driver ABI 0.1 rendered, at 4a12b62
STEPS = (ROOT / "docs" / "migration.md").read_text().split("## From an earlier template")[1]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project of the earlier template, after the page's steps."""
    folder = tmp_path_factory.mktemp("earlier")
    shutil.unpack_archive(EARLIER, folder)
    for step in re.findall(r"```bash\n(.*?)```", STEPS, re.DOTALL):
        run("bash", "-e", "-c", step, cwd=folder / "mydevice")
    return folder / "mydevice"


def test_the_kernels_are_the_sdks(project, tmp_path):
    now = new(tmp_path, {})
    for folder in ("backend/kernels", "backend/operators", "tests"):
        assert {path.name for path in (project / folder).glob("*")} == {path.name for path in (now / folder).glob("*")}
    assert "  KERNELS portable ${kernels}\n" in (project / "CMakeLists.txt").read_text()


def test_it_builds_and_its_kernels_run(project, tmp_path):
    words = ["-G", "Ninja", f"-DPython_EXECUTABLE={sys.executable}", f"-Dbackplane_ROOT={ROOT}"]
    run("cmake", "-S", project, "-B", tmp_path, *words, "-DCMAKE_BUILD_TYPE=Release")
    run("cmake", "--build", tmp_path)
    code = "import torch, mydevice; x = torch.ones(3, device='mydevice'); print((x + x).mul(3).sum().item())"
    shutil.copytree(project / "python" / "mydevice", tmp_path / "mydevice", dirs_exist_ok=True)
    env = {"PYTHONPATH": str(tmp_path), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    assert run(sys.executable, "-c", code, cwd=tmp_path, env=env).split() == ["18.0"]
