"""Drivers are loaded only from files that no other user can have written."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.once
WITHOUT_AUTOLOAD = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


@pytest.fixture
def package_driver(backend_package, name):
    return Path(next(iter(backend_package.__path__))) / "lib" / f"lib{name}_driver.so"


@pytest.fixture
def load(run_in_process, name, backend_package):
    """``load(path, variable)``: the output of a process with this driver, or this shim."""

    def run(path, variable="DRIVER"):
        code = f"""
            try:
                import {backend_package.__name__}, torch
                print("loaded", torch.ones(2, device="{name}").sum().item())
            except Exception as error:
                print(error)
        """
        env = {**WITHOUT_AUTOLOAD, f"{name.upper()}_DRIVER": None, f"{name.upper()}_SHIMS": None}
        return run_in_process(code, options="", env=env | {f"{name.upper()}_{variable}": str(path)}).stdout

    return run


@pytest.fixture
def folder(tmp_path):
    """A folder whose path no other user may write."""
    for part in (tmp_path, *tmp_path.parents):
        if part.stat().st_mode & 0o002 and not part.stat().st_mode & 0o1000:
            pytest.fail(f"{part} can be written by everybody: run the tests with a private --basetemp")
    return tmp_path


def test_a_private_driver_is_loaded(load, folder, package_driver):
    driver = Path(shutil.copy(package_driver, folder / "libcopy.so"))
    assert load(driver) == "loaded 2.0\n"


@pytest.mark.long
def test_a_file_that_others_may_write_is_refused(load, folder, package_driver):
    driver = Path(shutil.copy(package_driver, folder / "libcopy.so"))
    driver.chmod(0o777)
    assert f"The driver '{driver}' is refused: everybody may write to {driver}" in load(driver)
    link = folder / "link.so"
    link.symlink_to(driver)
    assert f"The driver '{link}' is refused: everybody may write to {driver}" in load(link)
    assert "chmod o-w" in load(driver, "SHIMS")


@pytest.mark.long
@pytest.mark.parametrize(("mode", "refused"), [(0o777, True), (0o1777, False), (0o755, False), (0o775, False)])
def test_a_folder_that_others_may_write_is_refused(load, folder, package_driver, mode, refused):
    place = folder / "open" / "below"
    place.mkdir(parents=True)
    driver = Path(shutil.copy(package_driver, place / "libcopy.so"))
    place.parent.chmod(mode)
    said = load(driver)
    if refused:
        assert f"is refused: everybody may write to {place.parent}, so anybody could have put it there" in said
    else:
        assert said == "loaded 2.0\n"


def test_the_current_folder_is_not_searched(run_in_process, name, tmp_path, package_driver, backend_package):
    shutil.copy(package_driver, tmp_path / "liblocal.so")
    os.chmod(tmp_path / "liblocal.so", 0o755)
    code = f"""
        import os
        os.chdir({str(tmp_path)!r})
        try:
            import {backend_package.__name__}
        except Exception as error:
            print(error)
    """
    done = run_in_process(code, options="", env={**WITHOUT_AUTOLOAD, f"{name.upper()}_DRIVER": "liblocal.so"})
    assert "The driver path 'liblocal.so' is not absolute" in done.stdout
