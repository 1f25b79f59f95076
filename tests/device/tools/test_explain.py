"""torch_backplane.ops.explain: it describes what a call of an operator does; and the dispatcher's queries."""

import json
import re
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import torch_backplane
from backplane_tools.cli import main
from backplane_tools.coverage import Coverage
from torch_backplane import _backend, fallback
from torch_backplane.ops import explain, registry
from torch_backplane.ops.ways import way_of

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("device_module")]

NAMESPACE = "bp_explain"
HERE = str(Path(__file__))
UNARY = "abs digamma erfinv exp gelu hardswish i0 isfinite logit mish neg round selu sgn silu sinc square".split()


@pytest.fixture
def vendors(ops):
    """A vendor's operators."""
    ops.define("bare(Tensor x) -> Tensor")
    ops.define("kernel(Tensor x) -> Tensor", PrivateUse1=torch.clone)
    fallthrough = torch.library.fallthrough_kernel
    ops.define("apart(Tensor x) -> Tensor", PrivateUse1=torch.clone, AutogradPrivateUse1=fallthrough)
    ops.define("parts(Tensor x) -> Tensor", CompositeImplicitAutograd=lambda x: x.sin().exp())
    ops.define("view(Tensor(a) x) -> Tensor(a)", CPU=lambda x: x[1:])


@pytest.mark.parametrize("name", UNARY)
def test_it_names_the_way_that_a_call_takes(name, device):
    x = torch.linspace(0.1, 0.9, 7, device=device)
    op = getattr(torch.ops.aten, name).default
    with Coverage() as coverage:
        op(x)
    ran = {row.op: row.way for row in coverage.operators()}
    word = explain(op).runs.word
    if f"aten::{name}" in ran:
        assert ran[f"aten::{name}"] == word
    else:
        assert word == "composite"


def test_D17_it_distinguishes_kernels_from_the_fallback():
    """With a fallback for the whole device, the computed table has a kernel for each of these."""
    names = "add.Tensor erfinv selu view hardswish_ mish_backward".split()
    for op in (f"aten::{name}" for name in names):
        assert torch._C._dispatch_has_computed_kernel_for_dispatch_key(op, "PrivateUse1")
        assert explain(op).runs.word == way_of(op)


def test_D16_an_operators_registrations_come_with_their_places():
    (kernel,) = [k for k in registry.kernels("aten::view") if k.key == "PrivateUse1"]
    assert re.fullmatch(r"backplane/backend/aten/views\.cpp:\d+", kernel.site)
    text = torch._C._dispatch_dump_table("aten::mm")
    for key in ("PrivateUse1", "AutogradPrivateUse1", "AutocastPrivateUse1"):
        assert re.search(rf"^{key}: ", text, re.MULTILINE)
    assert registry.table("aten::mm")["AutocastPrivateUse1"].site.startswith("backplane/backend/autocast/autocast.cpp:")
    assert registry.kernels("aten::no_such_operator") == []
    assert torch._C._dispatch_dump("aten::no_such_operator") == ""


def test_D16_the_keys_of_a_call_in_their_order():
    steps = explain("aten::mm").steps
    keys = ["AutocastPrivateUse1", "AutogradPrivateUse1", "ADInplaceOrView", "PrivateUse1"]
    assert [step.key for step in steps][: len(keys)] == keys
    assert steps[0].does == "casts the arguments"
    assert steps[1].does == "records the backward"
    assert "BackendSelect" in [step.key for step in explain("aten::empty.memory_format").steps]
    assert explain("aten::selu").steps[-1].key == "AutogradPrivateUse1"


def test_D19_every_kernel_of_a_key_can_be_listed():
    listed = torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1")
    assert {"aten::view", "aten::empty.memory_format"} <= set(listed)
    assert all(registry.has_kernel(op, "PrivateUse1") for op in listed)
    assert set(listed) <= set(torch._C._dispatch_get_all_op_names())
    with torch_backplane.kernel("aten::erfinv", lambda self: NotImplemented):
        assert "aten::erfinv" in torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1")
    assert "aten::erfinv" not in torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1")


def test_a_python_kernel_is_seen_at_once():
    assert explain("aten::erfinv").runs.word == "fallback"
    with torch_backplane.kernel("aten::erfinv", lambda self: NotImplemented):
        assert explain("aten::erfinv").runs.word == "native"
    with torch_backplane.kernel("aten::erfinv.out", lambda self, *, out: NotImplemented):
        made = explain("aten::erfinv")  # the functional form is made of it
        assert way_of("aten::erfinv") == made.runs.word == "native"
    does = [step.does for step in made.steps[-2:]]
    assert does == ["makes the result, and calls aten::erfinv.out", "the device's kernel"]


def test_the_policy_of_the_fallback_decides(device):
    with fallback.policy("error"):
        found = explain("aten::erfinv").runs
        assert found.word == "refused"
        assert "policy is 'error'" in found.text
        assert way_of("aten::erfinv") == "refused"
        with pytest.raises(NotImplementedError):
            torch.ones(1, device=device).erfinv()
    with fallback.policy("error", "aten::erfinv"):
        assert explain("aten::erfinv").runs.word == "refused"
        assert explain("aten::digamma").runs.word == "fallback"
    with fallback.policy("error"), fallback.policy("cpu", "aten::erfinv"):
        assert explain("aten::erfinv").runs.word == "fallback"


@pytest.mark.usefixtures("vendors")
def test_what_cannot_run_is_an_error(device):
    x = torch.ones(2, device=device)
    for name, why in {"bare": "the CPU has none", "view": "a view of the device's memory"}.items():
        found = explain(f"bp_explain::{name}").runs
        assert found.word == "refused"
        assert why in found.text
        with pytest.raises(NotImplementedError):
            getattr(torch.ops.bp_explain, name)(x)


@pytest.mark.usefixtures("vendors")
def test_autograd():
    words = {name: explain(f"bp_explain::{name}").autograd.word for name in ("kernel", "apart", "parts")}
    assert words == {"kernel": "none", "apart": "none", "parts": "composite"}
    assert "without gradient" in explain("bp_explain::apart").autograd.text
    assert explain("aten::hardswish").autograd.text == "calls aten::hardswish_backward (fallback)"
    assert explain("aten::sin").autograd.word == "formula"
    assert explain("aten::isnan").autograd.word == "none"
    assert explain("aten::empty.memory_format").autograd.word == "none"


def test_autocast_vmap_and_fake():
    mm, erfinv, selu = (explain(f"aten::{name}") for name in ("mm", "erfinv", "selu"))
    assert (mm.autocast.word, selu.autocast.word) == ("rule", "none")
    assert (mm.vmap.word, selu.vmap.word) == ("batch rule", "decomposition")
    assert (mm.fake.word, erfinv.fake.word, selu.fake.word) == ("meta", "meta", "composite")


def test_a_custom_operator(ops, name):
    def fake(x):
        return torch.empty_like(x)

    f = ops.custom("f", torch.clone, device_types=name, schema="(Tensor x) -> Tensor")
    before = explain(f)
    assert (before.runs.word, before.autograd.word, before.vmap.word) == ("native", "none", "loop")
    assert before.fake.word == "none"
    f.register_fake(fake)
    f.register_autograd(lambda ctx, grad: grad)
    f.register_vmap(lambda info, in_dims, x: (x.clone(), in_dims[0]))
    after = explain("bp_explain::f")
    assert (after.autograd.word, after.vmap.word, after.autocast.word) == ("formula", "batch rule", "none")
    if torch.__version__ >= (2, 13):  # an older one supports CPU and CUDA
        f.register_autocast(name, torch.bfloat16)
        assert explain("bp_explain::f").autocast.word == "rule"
    assert after.fake.text == f"{HERE}:{fake.__code__.co_firstlineno}"


def declared():
    """Operators whose kernels have declared their dtypes."""
    names = torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1")
    return [op for op in names if _backend.C.kernels.declared_dtypes(op) is not None]


def test_the_dtypes_that_a_kernel_supports(device, kernel_calls, backend_package):
    op = f"{backend_package.__name__}::swiglu"
    assert op in declared()
    assert "it takes bfloat16" in explain(op, dtype=torch.bfloat16).runs.text
    assert "float32, float64" in explain(op).runs.text
    left = explain(op, dtype=torch.complex64).runs
    assert left.word == "fallback"
    assert "takes only" in left.text
    x, before = torch.ones(4, dtype=torch.float64, device=device), kernel_calls(op)
    getattr(torch.ops, backend_package.__name__).swiglu(x)
    assert kernel_calls(op) == before + 1
    with fallback.policy("error"):
        assert explain(op, dtype=torch.complex64).runs.word == "refused"


def test_a_kernel_without_declared_dtypes_is_reported():
    assert "only a call shows" in explain("aten::view", dtype=torch.int64).runs.text


def test_other_devices():
    host = explain("aten::erfinv", "cpu")
    assert host.runs.word == "native"
    assert [step.key for step in host.steps][:2] == ["AutocastCPU", "AutogradCPU"]
    assert explain("aten::erfinv", "xpu").runs.word == "refused"  # of which torch's wheels have no kernel


def test_inductor():
    assert explain("aten::mm").inductor.word == "not asked"
    words = {"aten::sin": "lowering", "aten::selu": "decomposition", "aten::_cdist_forward": "fallback"}
    assert {op: explain(op, inductor=True).inductor.word for op in words} == words


def test_an_operator_can_be_given_as_itself():
    assert explain(torch.ops.aten.gelu.default) == explain("aten::gelu") == explain("aten::gelu.default")
    assert explain(torch.ops.aten.gelu).op == "aten::gelu"


def test_a_name_needs_no_namespace():
    assert explain("add.Tensor") == explain("aten::add.Tensor")
    assert explain("gelu.default") == explain("aten::gelu")
    with torch.library._scoped_library("bp_one", "DEF") as one, torch.library._scoped_library("bp_two", "DEF") as two:
        one.define("gelu(Tensor x) -> Tensor")
        one.define("only_here(Tensor x) -> Tensor")
        assert explain("gelu").op == "aten::gelu"  # torch's own, whoever else has the name
        assert explain("only_here").op == "bp_one::only_here"
        two.define("only_here(Tensor x) -> Tensor")
        with pytest.raises(ValueError, match=r"several operators: which of bp_one::only_here, bp_two::only_here\?"):
            explain("only_here")


@pytest.mark.parametrize(
    ("op", "device", "text"),
    [
        ("gelo", (), "no operator 'gelo': did you mean aten::gelu"),
        ("add", (), r"no operator 'add': did you mean aten::add\.Scalar"),
        ("aten::gelo", (), "no operator 'aten::gelo': did you mean aten::gelu"),
        ("aten::add", (), r"no operator 'aten::add': did you mean aten::add\.Scalar"),
        (torch.add, (), "is no operator: give a name"),
        ("aten::gelu", ("nothing",), "no device type 'nothing': Valid are"),
    ],
)
def test_bad_input(op, device, text):
    with pytest.raises(ValueError, match=text):
        explain(op, *device)


def test_without_a_backend(monkeypatch):
    monkeypatch.setattr(_backend, "C", _backend._NotLoaded())
    with pytest.raises(RuntimeError, match="import the vendor's package first"):
        explain("aten::gelu")


class TestCommand:
    """torch-backplane explain."""

    def run(self, *words):
        return CliRunner().invoke(main, ["explain", *words])

    def test_one_operator_is_a_tree(self, name):
        done = self.run("aten::mm", "--device", name, "--dtype", "bf16")
        assert done.exit_code == 0, done.output
        assert f"on {name}, bfloat16" in done.output
        for word in ("AutocastPrivateUse1", "autograd", "vmap", "fake", "inductor  not asked"):
            assert word in done.output

    def test_a_file_is_a_table(self, tmp_path):
        (tmp_path / "ops.txt").write_text("aten::erfinv  # on the CPU\n\naten::selu\n")
        done = self.run("aten::view", "--file", str(tmp_path / "ops.txt"))
        rows = [line.split()[:2] for line in done.output.splitlines()[1:]]
        assert rows == [["aten::view", "native"], ["aten::erfinv", "fallback"], ["aten::selu", "composite"]]

    def test_a_coverage_report_is_read(self, tmp_path, device):
        with Coverage() as coverage:
            torch.ones(3, device=device).erfinv()
        (tmp_path / "coverage.json").write_text(json.dumps(coverage.to_json()))
        done = self.run("--file", str(tmp_path / "coverage.json"), "--json")
        found = {row["op"]: row["runs"]["word"] for row in json.loads(done.output)}
        assert found["aten::erfinv"] == "fallback"
        assert set(found) == {row.op for row in coverage.operators()}

    def test_bad_input(self, tmp_path):
        (tmp_path / "wrong.json").write_text('{"a": 1}')
        for words, text in {
            (): "name an operator",
            ("aten::gelo",): "did you mean aten::gelu",
            ("aten::gelu", "--device", "nothing"): "there is no device type 'nothing'",
            ("aten::gelu", "--dtype", "f8"): "torch has no such dtype",
            ("--file", str(tmp_path / "wrong.json")): "neither a list of operators",
            ("--file", str(tmp_path / "none.txt")): "does not exist",
        }.items():
            done = self.run(*words)
            assert done.exit_code == 2, words
            assert text in " ".join(done.output.split())


MISSING = """
import torch

library = torch.library.Library("bp_missing", "DEF")
library.define("f(Tensor x) -> Tensor")
library.impl("f", lambda x: x, "CPU")
x = torch.ones(2, device="{name}")


def call():
    try:
        torch.ops.bp_missing.f(x)
    except NotImplementedError as error:
        return str(error)


print(call().partition(". ")[0])
print(torch._C._dispatch_key_name(torch._C.DispatchKey.PrivateUse1), torch._C._dispatch_keys(x))


def report(key):
    raise NotImplementedError(f"write a kernel for {{key}} of {name}")


handle = torch._C._dispatch_find_schema_or_throw("bp_missing::f", "")
torch._C._dispatch_set_report_error_callback(handle, report)
print(call())

from torch_backplane.ops import explain

found = explain("bp_missing::f").runs
print(found.word, found.text)
"""


def test_D21_D34_without_fallback_messages_name_the_device_and_the_key_its_enum(run_in_process, name):
    done = run_in_process(MISSING.format(name=name), env={_backend.env_name("FALLBACK"): "none"})
    first, keys, own, found = done.stdout.splitlines()
    assert first == f"Could not run 'bp_missing::f' with arguments from the '{name}' backend"
    assert keys.startswith("PrivateUse1 DispatchKeySet(PrivateUse1, ADInplaceOrView, AutogradPrivateUse1, ")
    assert own == f"write a kernel for PrivateUse1 of {name}"
    assert found == f"refused it has no kernel for {name}, and no fallback is registered"


@pytest.mark.usefixtures("vendors")
def test_D34_with_the_fallback_the_message_names_the_device_and_not_the_cpu(device, name):
    """Stock torch's CPU fallback reports the CPU to the callback; this one checks before it calls the CPU."""
    seen = []
    handle = torch._C._dispatch_find_schema_or_throw("bp_explain::bare", "")
    torch._C._dispatch_set_report_error_callback(handle, seen.append)
    with pytest.raises(NotImplementedError, match=f"bp_explain::bare has no kernel for Float on {name}"):
        torch.ops.bp_explain.bare(torch.ones(2, device=device))
    assert seen == []
