"""The conformance kit's suites ``dtensor`` and ``distributed``: a sample of them holds, and they see what is wrong."""

import os

import pytest
from checks import dtensors
from kinds import native

from torch_backplane.conformance.case import Case
from torch_backplane.conformance.suites import load

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
def run(suite, monkeypatch):
    """``run("add")``: the outcome of a case."""
    if "MYDEVICE_DRIVER" not in os.environ:  # a device for each rank
        options = os.environ.get("MYDEVICE_OPTIONS")
        monkeypatch.setenv("MYDEVICE_OPTIONS", ",".join(filter(None, (options, "devices=2"))))
    return lambda name: suite.run(Case("dtensor", name, "float32"), "mydevice", 0)


@pytest.mark.parametrize("name", OPS)
def test_G06_dtensors_are_the_cpus(run, name):
    outcome = run(name)
    assert outcome.status == "pass", outcome.message
    assert outcome.checks["forward"] > 0


def test_G06_what_torchs_dtensor_cannot_do_is_skipped(run):
    outcome = run("nonzero")
    assert outcome.status == "skip"
    assert "torch's DTensor cannot, on the CPU: forward of sample" in outcome.message


def test_G06_a_rank_that_dies_costs_its_case(run, suite):
    assert run("mm").status == "pass"
    suite.ranks[1].process.kill()
    assert run("mm").status == "fail"
    assert run("mm").status == "pass"


def test_G06_a_wrong_kernel_is_seen(worlds):
    for status, message in worlds.get(native()).run(dtensors.a_wrong_kernel):
        assert status == "fail"
        assert "values differ" in message
