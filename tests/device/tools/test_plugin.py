"""The pytest plugin: tests are deselected by capability and listed with the reason; kernels are counted (E47)."""

import pytest
import torch

from torch_backplane.testing import capabilities, known_capabilities

pytestmark = pytest.mark.once

SUITE = """
import pytest

@pytest.mark.requires("{capability}")
def test_two(device_module):
    assert device_module.device_count() > 1

def test_one(device):
    assert device.index == 0
"""


@pytest.fixture
def run(run_in_process, backend_package, tmp_path):
    """``run(capability, devices, *words)``: what pytest prints for a suite with a test that requires the capability."""

    def start(capability, devices, *words):
        (tmp_path / "test_some.py").write_text(SUITE.format(capability=capability))
        package = ["--backplane-package", backend_package.__name__]
        code = f"""
            import os, sys, pytest
            os.chdir({str(tmp_path)!r})
            print("status", int(pytest.main({["-q", "-p", "no:cacheprovider", *package, *words]})))
        """
        done = run_in_process(code, options=f"devices={devices}")
        return done.stdout + done.stderr

    return start


def test_every_capability_is_known():
    known = known_capabilities()
    assert capabilities() <= set(known)
    assert known["peer"] == "lets devices reach each other's memory (bp.peer)"


def test_tests_that_the_driver_does_not_support_are_deselected_and_listed(run):
    printed = run("multi_device", 1, "--backplane-list-deselected")
    assert "status 0" in printed
    assert "1 passed, 1 deselected" in printed
    assert "test_some.py::test_two: multi_device\n" in printed
    assert "names them" not in printed


@pytest.mark.long
@pytest.mark.parametrize("workers", [pytest.param([], id="alone"), pytest.param(["-n", "2"], id="workers")])
def test_a_line_says_why_tests_are_deselected(run, workers):
    one = run("multi_device", 1, *workers)
    assert "1 deselected: the driver lacks multi_device (1); --backplane-list-deselected names them\n" in one
    listed = run("multi_device", 1, "--backplane-list-deselected", *workers)
    assert "test_some.py::test_two: multi_device\n" in listed
    two = run("multi_device", 2, *workers)
    assert "2 passed" in two
    assert "deselected" not in two


def test_an_unknown_capability_is_an_error(run):
    printed = run("magic", 1)
    assert "status 0" not in printed
    assert "requires 'magic'" in printed


@pytest.mark.kernels
def test_E47_the_counter_counts_the_kernel_and_not_the_fallback(device, kernel_calls):
    x = torch.ones(3, device=device)
    before = kernel_calls("portable/add.Tensor")
    assert (x + x).tolist() == [2.0] * 3
    assert kernel_calls("portable/add.Tensor") == before + 1
    with pytest.raises(RuntimeError, match=r"no\.such"):
        kernel_calls("no.such")
