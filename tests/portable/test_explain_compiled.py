"""torch-backplane explain --compiled: what a program became, from a script that has some of everything."""

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from backplane_tools.cli import main

BESSEL = "aten.special_bessel_j0.default"  # the host's, where device memory is in its reach

SCRIPT = """
import sys
import torch

torch.manual_seed(0)


def f(x, w):
    y = torch.special.bessel_j0(x) * 2 + 1  # line 9
    print("between", *sys.argv[1:])  # line 10
    return ((x @ w).relu() + y).softmax(1).sort(1)[0]  # line 11


x = torch.randn(8, 8, device="{name}")
compiled = torch.compile(f)
compiled(x, x.clone())
compiled(x, x.clone())
w = torch.randn(8, 8, device="{name}", requires_grad=True)
torch.compile(lambda w: w.sin().sum())(w).backward()  # line 19
if "fail" in sys.argv:
    raise RuntimeError("after all")
"""


@pytest.fixture
def explain(tmp_path, device):
    def run(*words, text=SCRIPT):
        torch._dynamo.reset()
        script = tmp_path / "script.py"
        script.write_text(text.replace("{name}", device.type))
        return CliRunner().invoke(main, ["explain", "--compiled", str(script), *words])

    yield run
    torch._dynamo.reset()


def places(rows):
    return [place.rpartition(":")[2] for row in rows for place in row["places"]]


def test_each_graph_has_its_kernels_calls_and_file(explain, device):
    done = explain("--json", "one", "two")
    assert done.exit_code == 0, done.output
    printed, _, text = done.output.partition("{")
    assert printed.split() == ["between", "one", "two"] * 2
    found = json.loads("{" + text)

    assert [row["place"].rpartition("/")[2] for row in found["breaks"]] == ["script.py:10"]
    assert "print" in found["breaks"][0]["reason"]

    before, after, forward, backward = found["graphs"]
    assert [graph["name"].partition(" ")[2] for graph in found["graphs"]] == [
        "inference",
        "inference",
        "forward",
        "backward",
    ]
    assert before["kernels"][0]["fuses"] == ["aten.add.Tensor", "aten.mul.Tensor"]
    assert places(before["kernels"]) == ["9"]
    ways = {row["op"]: row["way"] for row in before["calls"] + after["calls"]}
    assert ways == dict.fromkeys([BESSEL, "aten.mm.out", "aten.sort.stable"], "portable")
    assert {kernel["way"] for graph in found["graphs"] for kernel in graph["kernels"]} == {"generated"}
    why = {call["op"].removeprefix("aten."): call["why"] for call in before["calls"] + after["calls"]}
    assert why.keys() == {"special_bessel_j0.default", "mm.out", "sort.stable"}
    assert "the dialect has no expression" in why["special_bessel_j0.default"]
    assert "no template was taken" in why["mm.out"]
    assert "sorts and searches are the device's own" in why["sort.stable"]
    assert set(places(after["kernels"] + after["calls"])) == {"11"}
    assert [len(graph["kernels"]) for graph in (forward, backward)] == [1, 1]
    for graph in found["graphs"]:
        text = Path(graph["file"]).read_text()
        for kernel in graph["kernels"]:
            assert f"{kernel['name']} = generated_kernel(" in text
            assert kernel["name"].startswith(device.type)
    for graph, runs in ((before, 2), (after, 2), (forward, 1), (backward, 1)):
        took = {time["name"]: time for time in graph["times"]}
        names = {kernel["name"] for kernel in graph["kernels"]}
        names |= {"aten::" + call["op"].split(".")[1] for call in graph["calls"] if call["op"] != BESSEL}
        assert names <= took.keys()
        assert {took[name]["calls"] for name in names} == {runs}
        assert all(took[name]["microseconds"] > 0 for name in names)
    assert 0 < found["seconds"]["inductor"] < found["seconds"]["all"]
    assert found["kernels_compiled"] + found["kernels_from_cache"] > 0


def test_the_text_has_the_same(explain):
    done = explain()
    assert done.exit_code == 0, done.output
    for text in (
        "graph breaks: 1",
        "script.py:10",
        "inference: 1 kernels, 1 calls",
        "special_bessel_j0",
        "script.py:9",
    ):
        assert text in done.output


@pytest.mark.long
@pytest.mark.parametrize("cpp", [False, True])
def test_the_branches_of_a_graph_are_its_own(explain, cpp):
    text = """
import torch
from torch._inductor import config
x = torch.randn(4, 4, device="{name}")
with config.patch(cpp_wrapper={cpp}):
    torch.compile(lambda x: torch.cond(x.sum() > 99, lambda y: y.sin(), lambda y: y @ y + 1, (x,)))(x)
"""
    done = explain("--json", text=text.replace("{cpp}", str(cpp)))
    assert done.exit_code == 0, done.output
    (graph,) = json.loads(done.output)["graphs"]
    assert [call["op"] for call in graph["calls"]] == ["aten.mm.out"]
    fuses = {op: kernel["name"] for kernel in graph["kernels"] for op in kernel["fuses"]}
    ran = {time["name"] for time in graph["times"]}
    assert {"aten::mm", fuses["aten.sum.default"], fuses["aten.add.Tensor"]} <= ran
    assert fuses["aten.sin.default"] not in ran  # the other branch


def test_times_are_left_out_for_a_program_that_profiles_itself(explain):
    text = """
import torch
from torch.profiler import profile
x = torch.randn(4, 4, device="{name}")
with profile():
    torch.compile(lambda x: x * 2)(x)
"""
    done = explain("--json", "--no-times", text=text)
    assert done.exit_code == 0, done.output
    (graph,) = json.loads(done.output)["graphs"]
    assert (len(graph["kernels"]), graph["times"]) == (1, [])


def test_operators_without_a_lowering_and_inductors_list(explain):
    text = """
import torch
library = torch.library.Library("bp_explained", "DEF")
library.define("twice(Tensor x) -> Tensor", tags=torch.Tag.pt2_compliant_tag)
library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
library.impl("twice", lambda x: torch.empty_like(x), "Meta")
x = torch.randn(4, 4, device="{name}")
torch.compile(lambda x: torch.ops.bp_explained.twice(x).sort(0)[0] + torch.linalg.inv_ex(x)[0])(x)
torch.compile(lambda x: torch.nn.functional.adaptive_avg_pool2d(x, 2) + 1)(x.new_ones(1, 1, 15, 15))
"""
    done = explain("--json", text=text)
    assert done.exit_code == 0, done.output
    graphs = json.loads(done.output)["graphs"]
    why = {call["op"]: call["why"] for graph in graphs for call in graph["calls"]}
    assert "no lowering" in why["bp_explained.twice.default"]
    assert "Inductor's list" in why["aten.linalg_inv_ex.default"]
    assert "sorts and searches are the device's own" in why["aten.sort.stable"]
    assert "calls it for these operands" in why["aten._adaptive_avg_pool2d.default"]


def test_what_goes_wrong(explain, device):
    done = explain("fail", "--json")
    assert done.exit_code == 1
    assert '"graphs"' in done.output
    done = explain(text="import torch\ntorch.compile(lambda x: x + 1)(torch.ones(3))\n")
    assert done.exit_code == 1
    assert f"compiled no graph for {device.type}" in done.output
    done = CliRunner().invoke(main, ["explain", "--no-times", "add.Tensor"])
    assert done.exit_code == 2
    assert "--no-times goes with --compiled" in done.output
    done = explain("--dtype", "bf16")
    assert done.exit_code == 2
    assert "--compiled takes no --file" in done.output
