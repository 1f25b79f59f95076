"""What the device tests share. ``device``, ``device_module`` and ``run_in_process`` are the pytest plugin's."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def name(device):
    """The device type's name."""
    return device.type


@pytest.fixture(autouse=True)
def same_device_and_stream(device_module):
    """Each test begins and ends on device 0 and its default stream."""
    yield
    if device_module.is_initialized():
        for index in range(device_module.device_count()):
            device_module.set_stream(device_module.default_stream(index))
    device_module.set_device(0)


@pytest.fixture
def other_package(backend_package, tmp_path):
    """``other_package(name, **build_info)``: a second backend package, in a folder for PYTHONPATH, which is returned.

    It has an entry point, a ``_build_info`` that is the real one with the given values replaced, and, unless
    ``native=True``, no native code.
    """
    from torch_backplane import _backend

    def make(package, native=False, **changes):
        folder = tmp_path / package
        if native:
            shutil.copytree(Path(_backend.build.__file__).parent, folder)
        else:
            folder.mkdir()
        shutil.copy(backend_package.__file__, folder / "__init__.py")
        values = {key: value for key, value in vars(_backend.build).items() if key.isupper()}
        values.update(PACKAGE=package, **changes)
        (folder / "_build_info.py").write_text("".join(f"{key} = {value!r}\n" for key, value in values.items()))
        info = tmp_path / f"{package}-0.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.1\n")
        (info / "entry_points.txt").write_text(f"[torch.backends]\n{package} = {package}:_autoload\n")
        return tmp_path

    return make
