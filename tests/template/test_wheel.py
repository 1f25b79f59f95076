"""The SDK's wheel: pure, complete, and free of a demand for torch."""

import zipfile
from pathlib import Path

import pytest
from projects import ROOT, files, run

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def wheel(sdk_wheel):
    with zipfile.ZipFile(sdk_wheel) as archive:
        yield archive


FOLDERS = ("include", "backend", "drivers", "check_driver", "cmake", "hooks")
EXAMPLES = ("minimal_driver", "compiler_driver")  # those that a vendor's project starts from


def test_it_is_pure(sdk_wheel, wheel):
    assert sdk_wheel.name.endswith("-py3-none-any.whl")
    assert not [name for name in wheel.namelist() if name.endswith((".so", ".o", ".pyc"))]


def test_it_carries_the_sdk_and_the_template(wheel):
    """Every file that git would keep of these folders is in it, byte for byte."""
    names = set(wheel.namelist())
    for folder in (*FOLDERS, *(f"examples/{name}" for name in EXAMPLES), "{{cookiecutter.package_name}}"):
        for name, (content, _) in files(ROOT / folder).items():
            path = f"backplane_sdk/source/{folder}/{name}"
            assert path in names, path
            assert wheel.read(path) == content, path
    assert "backplane_sdk/source/cookiecutter.json" in names
    for package in ("torch_backplane", "backplane_tools", "backplane_sdk"):
        for name in files(ROOT / "python" / package):
            assert f"{package}/{name}" in names


def test_it_carries_nothing_else(wheel):
    tops = {Path(name).parts[0] for name in wheel.namelist()}
    info = next(top for top in tops if top.endswith(".dist-info"))
    assert tops == {"torch_backplane", "backplane_tools", "backplane_sdk", info}
    inside = {Path(name).parts[2] for name in wheel.namelist() if name.startswith("backplane_sdk/source/")}
    template = "{{cookiecutter.package_name}}"
    assert inside == {*FOLDERS, "examples", "cookiecutter.json", template}


def test_it_declares_its_entry_points(wheel):
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt")]
    text = wheel.read(name).decode()
    for line in (
        "torch-backplane = backplane_tools.cli:main",
        "backplane = backplane_sdk\n",
        "backplane = backplane_sdk.metadata",
        "backplane = torch_backplane.testing.plugin",
        "backplane-conformance = backplane_tools.conformance.pytest_plugin",
    ):
        assert line in text


def test_it_does_not_require_torch(wheel):
    """An extra may: vLLM's releases are for one torch."""
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    requires = [line for line in wheel.read(name).decode().splitlines() if line.startswith("Requires-Dist:")]
    assert requires
    assert not [line for line in requires if line.split()[1].startswith("torch") and "extra ==" not in line]


def test_versions_are_defined_once(wheel, tmp_path):
    import backplane_sdk

    (info,) = {Path(name).parts[0] for name in wheel.namelist() if ".dist-info/" in name}
    assert info == f"torch_backplane-{backplane_sdk.__version__}.dist-info"
    script = tmp_path / "versions.cmake"
    script.write_text(
        f"include({ROOT}/cmake/BackplaneVersion.cmake)\nmessage(${{BACKPLANE_VERSION}}/${{BACKPLANE_CORE_PROTOCOL}})\n"
    )
    assert run("cmake", "-P", script).strip() == f"{backplane_sdk.__version__}/{backplane_sdk.CORE_PROTOCOL}"
    import torch_backplane

    assert torch_backplane.__version__ == backplane_sdk.__version__


@pytest.mark.parametrize(
    ("asked", "found"),
    [("0.1", True), ("0.1.0", True), ("0.2", False), ("0.1.9", False), ("0.0", False), ("1.0", False)],
)
def test_find_package_takes_compatible_versions(tmp_path, asked, found):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(p LANGUAGES NONE)\n"
        f"find_package(backplane {asked} CONFIG)\nmessage(STATUS found=${{backplane_FOUND}})\n"
    )
    said = run("cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-Dbackplane_ROOT={ROOT}")
    assert f"found={int(found)}" in said
