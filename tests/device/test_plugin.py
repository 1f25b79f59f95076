"""The pytest plugin: capabilities deselect, the list says what and why, counters tell kernels apart (E47)."""

import os
import subprocess
import sys

import pytest
import torch

from torch_backplane.testing import capabilities, known_capabilities

pytestmark = pytest.mark.once


def pytest_in(folder, *arguments, env=None):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, str(folder)]
    env = {**os.environ, **(env or {})}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def suite(tmp_path):
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "@pytest.mark.requires('multi_device')\n"
        "def test_two(device_module): assert device_module.device_count() > 1\n"
        "def test_one(device): assert device.index == 0\n"
    )
    return tmp_path


def test_every_capability_is_known():
    known = known_capabilities()
    assert capabilities() <= set(known)
    assert known["peer"] == "lets devices reach each other's memory (bp.peer)"


def test_what_the_driver_lacks_is_deselected_and_listed(suite, backend_package, name):
    package = ["--backplane-package", backend_package.__name__]
    options = f"{name.upper()}_OPTIONS"
    both = pytest_in(suite, *package, "--backplane-list-deselected", env={options: "devices=2"})
    assert "2 passed" in both.stdout, both.stdout + both.stderr
    one = pytest_in(suite, *package, "--backplane-list-deselected", env={options: "devices=1"})
    assert one.returncode == 0, one.stdout
    assert "1 passed, 1 deselected" in one.stdout
    assert "test_some.py::test_two: multi_device" in one.stdout


@pytest.mark.long
@pytest.mark.parametrize("workers", [pytest.param([], id="alone"), pytest.param(["-n", "2"], id="workers")])
def test_a_line_says_why_tests_are_deselected(suite, backend_package, name, workers):
    words = ["--backplane-package", backend_package.__name__, *workers]
    one = pytest_in(suite, *words, env={f"{name.upper()}_OPTIONS": "devices=1"})
    assert "1 deselected: the driver lacks multi_device (1); --backplane-list-deselected names them\n" in one.stdout
    listed = pytest_in(suite, *words, "--backplane-list-deselected", env={f"{name.upper()}_OPTIONS": "devices=1"})
    assert "test_some.py::test_two: multi_device\n" in listed.stdout
    assert "names them" not in listed.stdout
    two = pytest_in(suite, *words, env={f"{name.upper()}_OPTIONS": "devices=2"})
    assert "2 passed" in two.stdout
    assert "deselected" not in two.stdout


def test_an_unknown_capability_is_an_error(tmp_path, backend_package):
    (tmp_path / "test_some.py").write_text(
        "import pytest\n@pytest.mark.requires('magic')\ndef test_two(device): pass\n"
    )
    done = pytest_in(tmp_path, "--backplane-package", backend_package.__name__)
    assert done.returncode != 0
    assert "requires 'magic'" in done.stdout + done.stderr


@pytest.mark.kernels
def test_E47_the_counter_tells_the_kernel_from_the_fallback(device, kernel_calls):
    x = torch.ones(3, device=device)
    before = kernel_calls("portable/add.Tensor")
    assert (x + x).tolist() == [2.0] * 3
    assert kernel_calls("portable/add.Tensor") == before + 1
    with pytest.raises(RuntimeError, match=r"no\.such"):
        kernel_calls("no.such")
