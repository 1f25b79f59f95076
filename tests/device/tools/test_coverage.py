"""backplane_tools.coverage and the command: which operators ran, and how."""

import json
import sys

import pytest
import torch
from click.testing import CliRunner

from backplane_tools.cli.coverage import coverage as coverage_command
from backplane_tools.coverage import Coverage
from torch_backplane import fallback

OP = "aten::erfinv"  # an operator that no backend of the tests has a kernel for


@pytest.fixture
def x(device):
    return torch.linspace(-0.9, 0.9, 1000).to(device)


def rows(coverage):
    return {row.op: row for row in coverage.operators()}


def test_D17_calls_are_counted_by_their_way_with_the_bytes_of_arguments_and_results(x):
    weight = torch.ones(10, 1000, device=x.device)
    with Coverage() as coverage:
        x.view(10, 100)
        x.erfinv()
        x.erfinv()
        torch.erfinv(x, out=torch.empty_like(x))
        torch.nn.functional.linear(x, weight)
    found = rows(coverage)
    view, erfinv, out, linear = (found[op] for op in ("aten::view", OP, f"{OP}.out", "aten::linear"))
    assert (view.way, view.bytes) == ("native", 0)
    assert (erfinv.way, erfinv.calls, erfinv.ways, erfinv.bytes) == ("fallback", 2, {"fallback": 2}, 4 * 4000)
    assert out.bytes == 2 * 4000
    assert (linear.way, linear.calls) == ("composite", 1)
    assert linear.parts


def test_a_composite_is_the_sum_of_its_parts(x):
    with Coverage() as coverage:
        torch.nn.functional.layer_norm(x.view(10, 100), (100,))
    found = rows(coverage)
    whole = found["aten::layer_norm"]
    parts = [found[op] for op in whole.parts]
    assert whole.time_ns == sum(part.time_ns for part in parts if part.op != "aten::view") > 0
    assert coverage.total_ns() == sum(row.time_ns for row in found.values() if row.way != "composite")


def test_a_composite_below_a_dispatch_mode_has_its_parts(x):
    with Coverage() as coverage, torch.inference_mode():
        torch.nn.functional.linear(x, torch.ones(10, 1000, device=x.device))
        torch.ones(3, device=x.device)
    found = rows(coverage)
    assert found["aten::linear"].way == found["aten::ones"].way == "composite"
    assert found["aten::linear"].calls == 1
    assert "aten::fill_.Scalar" in found["aten::ones"].parts


def test_the_first_call_has_its_line(x):
    leaf = x.clone().requires_grad_()
    with Coverage() as coverage:
        line = sys._getframe().f_lineno + 1
        y = leaf.erfinv()
        leaf.erfinv()
        y.backward(torch.ones_like(y))
    found = rows(coverage)
    assert found[OP].site == f"{__file__}:{line}"
    assert found["aten::exp"].site == "ErfinvBackward0"


def test_operators_without_a_kernel_come_first_by_time(x):
    with Coverage() as coverage:
        x.view(10, 100)
        x.erfinv()
        torch.nn.functional.layer_norm(x.view(10, 100), (100,))
        x.digamma()
    order = [(row.way, -row.time_ns) for row in coverage.operators()]
    ways = ["fallback", "composite", "native"]
    assert order == sorted(order, key=lambda pair: (ways.index(pair[0]), pair[1]))
    assert [way for way in ways if way in dict(order)] == ways


def test_what_is_refused_is_listed_and_the_run_goes_on(x):
    y = torch.empty(0, device=x.device)
    z = x.clone()
    with fallback.policy("error", OP), Coverage() as coverage:
        a = x.erfinv()
        torch.erfinv(x, out=y)
        z.erfinv_()
    expected = x.cpu().erfinv()
    for result in (a, y, z):
        assert result.device == x.device
        torch.testing.assert_close(result.cpu(), expected)
    assert {row.op for row in coverage.operators() if row.way == "refused"} == {OP, f"{OP}.out", f"{OP}_"}


def test_what_the_cpu_cannot_do_either_is_listed_and_raised(x):
    with torch.library._scoped_library("bp_test_coverage", "DEF") as library:
        library.define("nowhere(Tensor x) -> Tensor")
        coverage = Coverage()
        with pytest.raises(NotImplementedError, match="has no kernel for Float on"), coverage:
            torch.ops.bp_test_coverage.nowhere(x)
    assert [(row.op, row.way) for row in coverage.operators()] == [("bp_test_coverage::nowhere", "refused")]


PROGRAMS = {
    "training": lambda x: train(torch.nn.Linear(10, 3), x.view(100, 10)),
    "sparse": lambda x: torch.sparse.mm(x.view(10, 100).to_sparse(), x.view(100, 10)),
    "jagged": lambda x: torch.nested.nested_tensor([x[:3], x[3:5]], layout=torch.jagged).mul(2).values(),
    "quantized": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize(),
    "vmap": lambda x: torch.vmap(torch.sin)(x.view(10, 100)),
    "jvp": lambda x: torch.func.jvp(torch.sin, (x,), (x,))[1],
    "complex": lambda x: torch.view_as_real(torch.fft.rfft(x).conj().resolve_conj()),
    "indexing": lambda x: x[x > 0].cumsum(0),
    "higher order": lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)),
}


def train(module, x):
    torch.nn.init.constant_(module.weight, 0.1)
    torch.nn.init.zeros_(module.bias)
    optimizer = torch.optim.AdamW(module.to(x.device).parameters())
    module(x).square().sum().backward()
    optimizer.step()
    return module.weight.detach()


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_computes_under_coverage_what_it_computes_without(x, program):
    expected = PROGRAMS[program](x.cpu())
    with Coverage() as coverage:
        result = PROGRAMS[program](x)
    torch._dynamo.reset()  # torch.cond was compiled under a dispatch mode, which torch would enter again outside
    torch.testing.assert_close(result.cpu(), expected)
    assert coverage.operators()


def test_an_operator_can_go_two_ways(x):
    coverage = Coverage()
    with coverage:
        x.erfinv()
    with fallback.policy("error", OP), coverage:
        x.erfinv()
    row = rows(coverage)[OP]
    assert (row.way, row.calls, row.ways) == ("refused", 2, {"fallback": 1, "refused": 1})


def test_errors_of_the_program_are_not_changed(x):
    with pytest.raises(RuntimeError, match="must match the size"), Coverage():
        x + torch.ones(3, device=x.device)


def test_nothing_is_counted_or_changed_outside_the_block(x):
    fallback.policy("warn")
    try:
        with Coverage() as coverage:
            x.erfinv()
            torch.ones(3).erfinv()  # the CPU's
        assert fallback.get_policy() == "warn"
    finally:
        fallback.policy("cpu")
    x.erfinv()
    assert rows(coverage)[OP].calls == 1
    coverage.clear()
    assert coverage.operators() == []


def test_the_account_is_plain_data(x, name):
    with Coverage() as coverage:
        x.erfinv()
    account = json.loads(json.dumps(coverage.to_json()))
    assert account["device"] == name
    assert account["operators"][0]["op"] == OP
    assert account["total_ns"] == sum(row["time_ns"] for row in account["operators"] if row["way"] != "composite")


MODEL = """
import sys
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 4)

    def forward(self, x):
        return self.linear(x).erfinv()

def training():
    return Net(), torch.rand(3, 8)

def inference():
    return Net().eval(), {"x": torch.rand(3, 8)}

def step():
    x = torch.ones(3)
    return lambda: x.digamma()

def nothing():
    return 3

if __name__ == "__main__":
    x = torch.ones(3, device=sys.argv[1])
    for _ in range(int(sys.argv[2])):
        x.erfinv()
    if sys.argv[3:]:
        raise ValueError("as requested")
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the command beside netmodel.py; gives (exit status, output, account)."""
    (tmp_path / "netmodel.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def command(*args):
        monkeypatch.delitem(sys.modules, "netmodel", raising=False)
        done = CliRunner().invoke(coverage_command, ["--json", "account.json", *args])
        path = tmp_path / "account.json"
        found = {row["op"]: row for row in json.loads(path.read_text())["operators"]} if path.exists() else {}
        return done.exit_code, done.output, found

    return command


def test_a_script_and_its_arguments(run, name):
    status, output, found = run("netmodel.py", name, "3")
    assert (status, found[OP]["calls"], found[OP]["way"]) == (0, 3, "fallback")
    assert found[OP]["site"].endswith("netmodel.py:29")
    assert "erfinv" in output


def test_a_script_that_fails_is_reported_and_what_ran_is_listed(run, name):
    status, output, found = run("netmodel.py", name, "2", "fail")
    assert (status, found[OP]["calls"]) == (1, 2)
    assert "as requested" in output


@pytest.mark.parametrize(
    ("factory", "has", "has_not"),
    [
        ("training", ["aten::linear", OP, "aten::exp"], []),
        ("inference", ["aten::linear", OP], ["aten::exp"]),
        ("step", ["aten::digamma"], ["aten::ones"]),
    ],
)
def test_a_models_factory(run, factory, has, has_not):
    status, output, found = run("--model", f"netmodel:{factory}", "--steps", "3")
    assert status == 0, output
    assert found[has[0]]["calls"] == 3
    assert [op for op in has if op not in found] == []
    assert [op for op in has_not if op in found] == []


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ([], "give a script"),
        (["--model", "netmodel:training", "netmodel.py"], "give a script"),
        (["--model", "netmodel"], "MODULE:FACTORY"),
        (["--model", "netmodel:other"], "has no attribute 'other'"),
        (["--model", "netmodel:nothing"], "it returned int"),
        (["--device", "cuda", "netmodel.py"], "--device cuda"),
        (["netmodel.py", "cpu", "1"], "no operator ran"),
    ],
)
def test_what_cannot_be_measured_is_reported(run, args, reason):
    status, output, _ = run(*args)
    assert status != 0
    assert reason in output
