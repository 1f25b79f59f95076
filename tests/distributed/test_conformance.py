"""The conformance kit's suites ``dtensor`` and ``distributed``: a sample of them holds, and they see what is wrong."""

import os
import re
from pathlib import Path

import pytest
from checks import dtensors
from kinds import native

from backplane_tools.conformance import torchs_distributed
from backplane_tools.conformance.case import Case
from backplane_tools.conformance.expected import Expected
from backplane_tools.conformance.suites import load

ROOT = Path(__file__).resolve().parents[2]

# Partial sums, what is cut along each dimension or along none that it needs, calls of several operators, gradients
# that are summed over ranks, and random numbers.
OPS = """
add mm sum softmax nn.functional.layer_norm nn.functional.embedding nn.functional.linear cat index_select
nn.functional.scaled_dot_product_attention
nn.functional.dropout
""".split()


@pytest.fixture(scope="module")
def suite(backend_package):
    """Its ranks stay from one case to the next."""
    return load("dtensor")


@pytest.fixture
def two_devices(monkeypatch):
    """Of the simulated driver, for ranks that start now."""
    if "MYDEVICE_DRIVER" not in os.environ:
        options = os.environ.get("MYDEVICE_OPTIONS")
        monkeypatch.setenv("MYDEVICE_OPTIONS", ",".join(filter(None, (options, "devices=2"))))


@pytest.fixture
def run(suite, two_devices):
    """``run("add")``: the outcome of a case."""
    return lambda name: suite.run(Case("dtensor", name, "float32"), "mydevice", 0)


@pytest.mark.long_after_first
@pytest.mark.parametrize("name", OPS)
def test_G06_dtensors_are_the_cpus(run, name):
    outcome = run(name)
    assert outcome.status == "pass", outcome.message
    assert outcome.checks["forward"] > 0


@pytest.mark.long
def test_G06_what_torchs_dtensor_cannot_do_is_skipped(run):
    outcome = run("nonzero")
    assert outcome.status == "skip"
    assert "torch's DTensor cannot, on the CPU: forward of sample" in outcome.message


@pytest.mark.long
def test_G06_a_rank_that_dies_costs_its_case(run, suite):
    assert run("mm").status == "pass"
    suite.ranks[1].process.kill()
    assert run("mm").status == "fail"
    assert run("mm").status == "pass"


@pytest.mark.long
def test_G06_a_wrong_kernel_is_seen(worlds):
    for status, message in worlds.get(native()).run(dtensors.a_wrong_kernel):
        assert status == "fail"
        assert "values differ" in message


# In NCCL's place and, what is Gloo's alone, in Gloo's: on CPU tensors there, on the device's here.
TESTS = """
test_all_reduce_sum_cuda test_all_gather_object_default_pg test_reduce_scatter_tensor_cuda test_get_backend
test_all_reduce_sum test_all_gather_coalesced_simple test_gather_full_group test_scatter_object_list
test_send_recv_with_tag test_batch_isend_irecv_nccl test_batch_isend_irecv_self_nccl
""".split()


@pytest.fixture(scope="module")
def torchs(backend_package):
    """The suite of torch's own tests; its server stays."""
    return load("distributed")


@pytest.mark.long
@pytest.mark.parametrize("name", TESTS)
def test_G07_torchs_own_tests(torchs, two_devices, name):
    outcome = torchs.run(Case("distributed", name), "mydevice", 0)
    assert outcome.status == "pass", outcome.message


@pytest.mark.long
@pytest.mark.requires("collective")
def test_G07_it_is_the_device_that_is_tested(monkeypatch):
    """A test of Gloo's fails where the driver's collectives do."""
    monkeypatch.setenv("MYDEVICE_SHIMS", "fault")
    monkeypatch.setenv("MYDEVICE_OPTIONS", "devices=2,fault.collective=1")
    outcome = load("distributed").run(Case("distributed", "test_all_reduce_sum"), "mydevice", 0)
    assert outcome.status == "fail"
    assert "injected by fault.collective=1" in outcome.trace


def test_G07_what_does_not_pass_is_listed():
    """The row's numbers are of all tests; those that fail are in the list, by name."""
    row = next(line for line in (ROOT / "docs" / "contract.md").read_text().splitlines() if line.startswith("| G07 |"))
    every, passed, skipped, failing = map(
        int, re.search(r"of (\d+) tests (\d+) pass, (\d+) are skipped and (\d+) ", row).groups()
    )
    of_gloo, of_these = map(int, re.search(r"Of the (\d+) that pass over Gloo on the CPU, (\d+) ", row).groups())
    entries = Expected.read(ROOT / "build" / "demo" / "mydevice" / "conformance.toml").entries
    names = list(torchs_distributed.names())
    listed = [name for name in names if any(entry.matches(f"distributed/{name}") for entry in entries)]
    assert len(listed) == failing
    assert all(entry.reason for entry in entries)
    assert passed + skipped + failing == every == len(names)
    assert of_these / of_gloo >= 0.8
