"""Operators of PyTorch's database under torch.compile: a sample of the conformance kit's suites ``compiled`` and
``compiled-dynamic``."""

from functools import cache

import pytest
import torch
from torch._inductor import lowering
from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides
from torch._inductor.utils import run_and_get_code

from backplane_tools.conformance.case import Case
from backplane_tools.conformance.suites import compiled, load
from portable.compare import each
from torch_backplane import fallback
from torch_backplane.inductor.ops import DialectOps

pytestmark = pytest.mark.xdist_group("conformance_suites")  # torch's samples are imported once

# Loops of every kind, folds along rows and columns, sums into places, places from data, random numbers, calls of
# operators, and each of the dtypes.
CASES = """
nn.functional.gelu/float32 softmax/float32 nn.functional.layer_norm/float32 var_mean/float32
nn.functional.max_pool2d/float32 scatter_add/float32 sort/int64 nn.functional.interpolate.bilinear/float32
bernoulli/float32 nn.functional.cross_entropy/float16 atan2/float16 argmax/int64 floor_divide/int64 cumsum/int64
logical_xor/bool index_select/bool
""".split()
CALLS = {"sort/int64"}
"""What the device's operators compute, without a kernel of Inductor's."""


@pytest.fixture(scope="module")
def suite():
    """Suites by name: each is made once."""
    return cache(load)


@pytest.fixture
def run(suite, device):
    """``run("add/float32")``: the outcome of a case."""

    def run(case, name="compiled"):
        return suite(name).run(Case(name, *case.rsplit("/", 1)), str(device), 0)

    return run


@pytest.mark.parametrize("case", each(CASES, *CASES[::2]))
def test_F15_compiled_operators_are_the_cpus(run, case):
    outcome = run(case)
    assert outcome.status == "pass", outcome.message
    assert outcome.route == ("composite" if case in CALLS else "generated")


@pytest.mark.parametrize("case", ["std/float32", "nn.functional.softplus/float32", "nn.functional.pad.reflect/int64"])
def test_F15_compiled_operators_are_the_cpus_with_dynamic_sizes(run, case):
    outcome = run(case, "compiled-dynamic")
    assert outcome.status == "pass", outcome.message
    assert outcome.route == "generated"


def refuses(*args, **kwargs):
    raise NotImplementedError("no sine today")


@pytest.fixture
def wrong_sine(monkeypatch):
    monkeypatch.setattr(DialectOps, "sin", staticmethod(lambda x: f"bp_sin({x}) * 1.001f"))


def test_F15_a_wrong_expression_is_seen(run, monkeypatch, wrong_sine):
    monkeypatch.setattr(compiled, "_cpu_compiles", lambda: False)
    outcome = run("sin/float32")
    assert outcome.status == "fail"
    assert "values differ" in outcome.message


def test_F15_what_the_cpus_inductor_fails_too_is_skipped(run, monkeypatch):
    monkeypatch.setattr(compiled, "_cpu_compiles", lambda: True)

    monkeypatch.setitem(lowering.lowerings, torch.ops.aten.sin.default, refuses)
    outcome = run("sin/int64")
    assert outcome.status == "skip"
    assert outcome.message.startswith("Inductor's own")
    assert "no sine today" in outcome.message


@pytest.mark.long  # the CPU's Inductor compiles it, too
def test_F15_a_wrong_value_is_excused_by_a_wrong_value_alone(run, monkeypatch, wrong_sine):
    monkeypatch.setattr(compiled, "_cpu_compiles", lambda: True)
    for kind in (CppOverrides, CppVecOverrides):
        monkeypatch.setattr(kind, "sin", staticmethod(refuses))
    outcome = run("sin/float32")
    assert outcome.status == "fail"
    assert "values differ" in outcome.message
    monkeypatch.setattr(CppOverrides, "sin", staticmethod(lambda x: f"std::cos({x})"))
    monkeypatch.setattr(CppVecOverrides, "sin", staticmethod(lambda x: f"{x}.cos()"))
    outcome = run("sin/float32")
    assert outcome.status == "skip"
    assert outcome.message.startswith("Inductor's own")


SORTS = {
    "sort": lambda x: (x + 1).sort(1).values * 2,
    "topk": lambda x: (x + 1).topk(5).values * 2,
    "bucketize": lambda x: torch.bucketize(x + 1, x[0].sort().values) + 1,
    "searchsorted": lambda x: torch.searchsorted(x.sort(1).values, x * 1.5) + 1,
}


@pytest.mark.parametrize("name", SORTS)
def test_sorts_and_searches_are_the_devices_operators_among_fused_kernels(name, device):
    x = torch.randn(9, 130)
    torch._dynamo.reset()
    with fallback.budget(calls=0):
        found, (code,) = run_and_get_code(torch.compile(SORTS[name]), x.to(device))
    torch.testing.assert_close(found.cpu(), SORTS[name](x))
    assert f"torch.ops.aten.{name}." in code
    assert "BP_KERNEL" in code
