"""The nine-function driver is a whole device: what it cannot be tested with is this list, and no more."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import backplane_sdk

pytestmark = pytest.mark.once

LACKING = {
    "test_allocator.py::test_E46_a_host_view_shares_memory_and_owns_nothing": "host_view",
    "test_compile_queries.py::test_F21_a_wait_is_part_of_the_graph": "host_exec",
    "test_device_module.py::test_peers_reach_each_other": "peer",
    "test_device_module.py::test_sleep_keeps_the_current_stream_busy_and_no_other": "host_exec",
    "test_dlpack_from_others.py::test_E54_memory_of_another_device_is_refused": "pointer_info",
    "test_dlpack_from_others.py::test_E54_memory_that_the_driver_does_not_know_is_refused": "pointer_info",
    "test_dlpack_to_cpu.py::test_E53_a_capsule_that_nobody_takes_frees_its_memory": "zero_copy",
    "test_dlpack_to_cpu.py::test_E53_both_sides_write": "zero_copy",
    "test_dlpack_to_cpu.py::test_E53_the_array_keeps_the_memory_and_nothing_else": "zero_copy",
    "test_dlpack_to_cpu.py::test_E53_the_memory_is_freed_by_whichever_thread_drops_the_array": "zero_copy",
    "test_dlpack_to_cpu.py::test_E53_the_storage_is_not_resized_below_an_array": "zero_copy",
    "test_fallback_memory.py::test_cpu_tensors_still_know_their_deleter": "zero_copy",
    "test_fallback_memory.py::test_results_are_adopted_without_a_copy": "zero_copy",
    "test_fallback_memory.py::test_threads_outside_of_a_call_get_the_hosts_memory": "zero_copy",
    "test_fallback_memory.py::test_what_an_operator_keeps_is_a_cpu_tensor_of_its_own": "zero_copy",
    "test_host_view.py::test_E55_a_storage_that_cannot_be_resized_stays_so": "host_view",
    "test_host_view.py::test_E55_the_memory_stays_while_a_view_of_it_lives": "host_view",
    "test_host_view.py::test_E55_the_storage_is_not_resized_below_a_view": "host_view",
    "test_memory_history.py::test_a_chunk_that_goes_back_shows_who_gave_it_back": "vmm",
    "test_widening.py::test_K03_in_a_graph_it_is_refused_like_every_call_of_the_cpu": "graph",
}


@pytest.fixture(scope="module")
def minimal_driver(tmp_path_factory):
    path = tmp_path_factory.mktemp("minimal") / "libminimal_driver.so"
    source = backplane_sdk.source_dir() / "examples/minimal_driver/minimal_driver.c"
    compiler = [os.environ.get("CC", "cc"), "-std=c11", "-O2", "-shared", "-fPIC", f"-I{backplane_sdk.include_dir()}"]
    subprocess.run([*compiler, str(source), "-o", str(path)], check=True)
    return path


def environment(name, driver):
    prefix = name.upper()
    clean = {key: value for key, value in os.environ.items() if not key.startswith(f"{prefix}_")}
    return clean | {f"{prefix}_DRIVER": str(driver), f"{prefix}_OPTIONS": "devices=2"}


@pytest.mark.long
def test_the_tests_that_it_cannot_run_are_known(minimal_driver, name):
    command = [sys.executable, "-m", "pytest", str(Path(__file__).parent), "-p", "no:xdist", "-m", "not once"]
    listed = subprocess.run(
        [*command, "-q", "--collect-only", "--backplane-list-deselected"],
        env=environment(name, minimal_driver),
        capture_output=True,
        text=True,
        timeout=200,
    )
    lines = listed.stdout.partition("deselected: the driver lacks")[2].splitlines()
    found = {}
    for line in lines:
        test, separator, capability = line.rpartition(": ")
        if re.search(r"test_graph(_\w+)?\.py::", test) and "graph" in capability.split(", "):
            continue
        if separator:
            found[test.partition("[")[0].removeprefix("tests/device/")] = capability
    assert found == LACKING, listed.stdout + listed.stderr


def test_emulate_is_put_over_it(minimal_driver, name, backend_package):
    code = f"""
import torch, {backend_package.__name__}
from torch_backplane import driver
x = torch.arange(6.0, device="{name}:1").view(2, 3)
print(*driver.info().shims, (x.t() @ x).sum().item(), torch.Stream("{name}").query())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(name, minimal_driver), capture_output=True, text=True, timeout=100
    )
    assert done.stdout.split() == ["emulate", "153.0", "True"], done.stdout + done.stderr
