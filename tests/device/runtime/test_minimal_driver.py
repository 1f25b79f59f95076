"""The nine-function driver is a whole device: it supports the tests that do not require one of a few capabilities."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import gates
import pytest

pytestmark = pytest.mark.once

# The number of tests that require each capability, without those of test_graph*.py.
NOT_SUPPORTED = {
    "zero_copy": 9,
    "host_view": 3,
    "host_exec": 2,
    "pointer_info": 2,
    "peer": 1,
    "vmm": 1,
    "graph": 1,
}


@pytest.fixture
def minimal_driver(tmp_path):
    return gates.minimal_driver(tmp_path)


def environment(name, driver):
    prefix = name.upper()
    clean = {key: value for key, value in os.environ.items() if not key.startswith(f"{prefix}_")}
    return clean | {f"{prefix}_DRIVER": driver, f"{prefix}_OPTIONS": "devices=2"}


@pytest.mark.long
def test_the_tests_that_it_does_not_support_are_known(minimal_driver, name):
    command = [sys.executable, "-m", "pytest", str(Path(__file__).parents[1]), "-p", "no:xdist", "-m", "not once"]
    listed = subprocess.run(
        [*command, "-q", "--collect-only", "--backplane-list-deselected"],
        env=environment(name, minimal_driver),
        capture_output=True,
        text=True,
        timeout=200,
    )
    lines = listed.stdout.partition("deselected: the driver lacks")[2].splitlines()
    found = {}
    for test, separator, capability in (line.rpartition(": ") for line in lines):
        if separator and not re.search(r"test_graph(_\w+)?\.py::", test):
            found[test.partition("[")[0]] = capability
    assert Counter(found.values()) == NOT_SUPPORTED, listed.stdout + listed.stderr


def test_emulate_is_put_over_it(minimal_driver, name, run_on):
    code = f"""
        import torch
        from torch_backplane import driver
        x = torch.arange(6.0, device="{name}:1").view(2, 3)
        print(*driver.info().shims, (x.t() @ x).sum().item(), torch.Stream("{name}").query())
    """
    assert run_on(code, "devices=2", DRIVER=minimal_driver, SHIMS=None).stdout.split() == ["emulate", "153.0", "True"]
