"""torch_backplane.ops.lint: each rule finds what it is for, and nothing else; the SDK's kernels have no findings."""

import re
import warnings
from pathlib import Path

import pytest
import torch

from torch_backplane import _backend, _setup, compat
from torch_backplane.ops import Finding, lint, pairs, registry
from torch_backplane.ops.lint_rules import RULES
from torch_backplane.ops.linting import LintWarning

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("device_module")]

NAMESPACE = "bp_lint"
HERE = str(Path(__file__))
_before: list[Finding] = []


@pytest.fixture(scope="module", autouse=True)
def before():
    """Findings that other test files of this process have left behind are ignored."""
    _before[:] = lint()


@pytest.fixture
def library():
    """``library(namespace, kind)``; all are destroyed after the test."""
    made = []

    def make(namespace, kind="IMPL"):
        made.append(torch.library.Library(namespace, kind))
        return made[-1]

    yield make
    for each in reversed(made):
        each._destroy()


def found(namespace=None):
    return [finding for finding in lint(namespace) if finding not in _before]


def only(rule, op, namespace=None):
    """The only finding."""
    (finding,) = found(namespace)
    assert (finding.rule, finding.op) == (rule, op)
    assert finding.level == RULES[rule].level
    assert finding.why == RULES[rule].why
    return finding


def same(x):
    return x.clone()


def test_D14_the_sdk_and_its_kernels_have_nothing_dangling():
    dangling = torch._C._dispatch_find_dangling_impls()
    assert [text for text in dangling if ".py:" not in text] == []  # without what other tests have left


def test_D15_the_dispatchers_invariants_hold():
    torch._C._dispatch_check_all_invariants()


def test_the_sdks_core_and_the_templates_kernels_are_clean():
    assert [str(finding) for finding in lint("aten") if ".py:" not in finding.where] == []


@pytest.mark.parametrize(
    ("op", "rule", "write"),
    [
        ("aten::addd.Tensor", "unknown-op", r"Did you mean aten::add\.Tensor, "),
        ("aten::gelu.Tensor", "unknown-op", r"Did you mean aten::gelu, aten::gelu\.out"),
        ("aten::symeig", "gone-op", "Register the kernel for aten::linalg_eigh instead$"),
        ("bp_lint_a::f", "dangling-impl", r'TORCH_LIBRARY_FRAGMENT\(bp_lint_a, m\) { m.def\("f\(...\) -> ..."\); }'),
    ],
)
def test_D14_a_kernel_of_an_operator_that_does_not_exist(library, op, rule, write):
    namespace, _, name = op.partition("::")
    library(namespace).impl(name, same, "PrivateUse1")
    finding = only(rule, op)
    assert finding.where.startswith(f"{HERE}:") or rule == "dangling-impl"  # where the library was made
    assert re.search(write, finding.write)
    assert only(rule, op, namespace) == finding


def test_removed_operators_do_not_exist_and_their_replacements_do():
    later = {"aten::cholesky", "aten::qr"}
    assert [op for op in compat.GONE if registry.nearest(op)[:1] == [op] and op not in later] == []
    assert [op for op in compat.GONE.values() if not registry.exists(op)] == []


def test_a_misspelt_operator_of_the_vendors(ops):
    ops.define("scale(Tensor x) -> Tensor")
    ops.library.impl("scalee", same, "PrivateUse1")
    assert only("unknown-op", "bp_lint::scalee").write == "Did you mean bp_lint::scale"


def test_a_dangling_kernel_of_another_device_is_not_the_vendors(library):
    library("bp_lint_b").impl("f", same, "CPU")
    assert found() == []


def test_a_python_kernel_and_a_fake_of_another_signature(ops, name):
    def f(x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return x * scale

    def kernel(x, scale, shift):
        return x

    op = ops.custom("f", f, device_types="cpu")
    op.register_kernel(name)(kernel)
    op.register_fake(lambda x, scale=2.0: torch.empty_like(x))
    op.register_autograd(lambda ctx, grad: (grad, None))
    finding = only("signature", "bp_lint::f", "bp_lint")
    assert "missing a required argument: 'shift'" in finding.what
    assert finding.where == f"{HERE}:{kernel.__code__.co_firstlineno}"
    assert finding.write == "Write: def kernel(x, scale=2.0)"


def test_two_kernels_of_an_operator_name_both_places(library):
    first, second = library("aten"), library("aten")
    first.impl("erfinv", same, "PrivateUse1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        second.impl("erfinv", same, "PrivateUse1", allow_override=True)
    finding = only("duplicate-impl", "aten::erfinv")
    assert len(re.findall(re.escape(HERE) + r":\d+", finding.what)) == 2
    second._destroy()
    assert found() == []


def test_an_override_that_is_meant_is_no_finding():
    import torch_backplane

    with torch_backplane.kernel("aten::view", lambda self, size: NotImplemented, override=True):
        assert len([k for k in registry.kernels("aten::view") if k.key == "PrivateUse1"]) == 2
        assert found() == []


def test_a_kernel_that_cuts_off_a_composites_gradient(library):
    library("aten").impl("selu", same, "PrivateUse1")
    finding = only("lost-autograd", "aten::selu")
    assert "AutogradPrivateUse1" in finding.write
    library("aten").impl("selu", torch.library.fallthrough_kernel, "AutogradPrivateUse1")
    assert found() == []


def test_a_kernel_without_formula(ops):
    ops.define("f(Tensor x) -> Tensor", PrivateUse1=same, Meta=same)
    finding = only("no-autograd", "bp_lint::f", "bp_lint")
    assert finding.where.startswith(HERE.replace("tools/test_lint", "own_operators"))
    assert "fallthrough_kernel" in finding.write
    ops.library.impl("f", torch.library.fallthrough_kernel, "AutogradPrivateUse1")  # as `write` describes
    assert found("bp_lint") == []


@pytest.mark.parametrize(
    "schema", ["count(Tensor x) -> int", "fill_(Tensor(a!) x) -> Tensor(a!)", "make(int n) -> Tensor"]
)
def test_an_operator_without_a_gradient_needs_no_formula(ops, schema):
    ops.define(schema, PrivateUse1=same, Meta=same)
    assert found("bp_lint") == []


def test_a_kernel_without_fake(ops, name):
    f = ops.custom("f", same, device_types=name, schema="(Tensor x) -> Tensor")
    f.register_autograd(lambda ctx, grad: grad)
    finding = only("no-fake", "bp_lint::f", "bp_lint")
    assert finding.where == f"{HERE}:{same.__code__.co_firstlineno}"
    assert finding.write == 'torch.library.register_fake("bp_lint::f")(function)'
    f.register_fake(torch.empty_like)
    assert found("bp_lint") == []


def test_a_forward_without_its_backward(library):
    first = library("aten")
    first.impl("multi_margin_loss", same, "PrivateUse1")
    finding = only("half-pair", "aten::multi_margin_loss_backward")
    assert (
        "aten::multi_margin_loss has a kernel for the device, aten::multi_margin_loss_backward has none" in finding.what
    )
    assert "aten::multi_margin_loss_backward(Tensor grad_output, Tensor self, Tensor target" in finding.write
    first.impl("multi_margin_loss_backward", lambda grad_output, *rest: grad_output, "PrivateUse1")
    assert found() == []


@pytest.mark.parametrize(
    ("forward", "backward"),
    [
        ("convolution_overrideable", "convolution_backward_overrideable"),
        (
            "_scaled_dot_product_fused_attention_overrideable",
            "_scaled_dot_product_fused_attention_overrideable_backward",
        ),
    ],
)
def test_half_of_the_convolution_or_attention_pair(library, forward, backward):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library("aten").impl(forward, same, "PrivateUse1", allow_override=True)
    findings = {finding.rule: finding for finding in found()}
    assert findings["half-pair"].op == f"aten::{backward}"


def test_without_the_derivatives_nothing_is_known(monkeypatch):
    assert pairs.table()["aten::gelu"] == ("aten::gelu_backward",)
    monkeypatch.setattr(pairs.importlib.util, "find_spec", lambda name: None)
    assert pairs.table.__wrapped__() == {}


def test_an_autocast_rule_only_for_other_devices(ops, name):
    ops.define("f(Tensor x) -> Tensor", PrivateUse1=same, Meta=same, Autograd=same, AutocastCUDA=same)
    finding = only("autocast-hole", "bp_lint::f", "bp_lint")
    assert finding.write == f'torch.library.register_autocast("bp_lint::f", "{name}", dtype)'
    ops.library.impl("f", same, "AutocastPrivateUse1")
    assert found("bp_lint") == []


def test_an_operator_of_torchs_cast_lists_without_the_devices_rule(library):
    library("aten").impl("digamma", same, "AutocastCUDA")
    assert only("autocast-hole", "aten::digamma").level == "warning"


def test_a_fallback_that_is_replaced_and_then_removed(run_in_process):
    done = run_in_process(
        """
        import torch
        from torch_backplane.ops import lint

        library = torch.library.Library("_", "IMPL")
        library.fallback(torch.library.fallthrough_kernel, "AutogradPrivateUse1")
        print([(f.rule, f.op, "<string>" in f.where) for f in lint()])
        library._destroy()
        print([(f.rule, f.op, f.what) for f in lint() if f.rule == "replaced-fallback"])
        """
    )
    first, second = done.stdout.splitlines()
    assert first == "[('replaced-fallback', 'AutogradPrivateUse1', True)]"
    assert second == "[('replaced-fallback', 'AutogradPrivateUse1', 'the fallback of AutogradPrivateUse1 is gone')]"


def test_what_is_ignored(library):
    library("aten").impl("multi_margin_loss", same, "PrivateUse1")
    library("aten").impl("grid_sampler_2d", same, "PrivateUse1")
    assert {f.op for f in found()} == {"aten::multi_margin_loss_backward", "aten::grid_sampler_2d_backward"}
    assert {f.op for f in lint("aten", ignore=["half-pair:*multi_margin_loss*"])} == {"aten::grid_sampler_2d_backward"}
    assert lint("aten", ignore=["half-pair"]) == []


def test_bad_input():
    with pytest.raises(ValueError, match=r"no rule 'no-fakes'; there are unknown-op, .*no-fake"):
        lint(ignore=["no-fakes"])
    with pytest.raises(ValueError, match="no operator in the namespace 'atem'; there are aten"):
        lint("atem")


def test_without_a_backend(monkeypatch):
    monkeypatch.setattr(_backend, "C", _backend._NotLoaded())
    with pytest.raises(RuntimeError, match="import the vendor's package first"):
        lint()


class TestAtImport:
    """A development build checks itself, as the environment sets."""

    @pytest.fixture(autouse=True)
    def fresh(self, monkeypatch, library):
        monkeypatch.setattr(_setup, "_linted", False)
        monkeypatch.setattr(_backend.build, "DEVELOPMENT", True)
        monkeypatch.delenv("CI", raising=False)
        monkeypatch.delenv(_backend.env_name("LINT"), raising=False)
        self.monkeypatch = monkeypatch
        library("aten").impl("addd.Tensor", same, "PrivateUse1")

    def check(self):
        _setup.check_registrations(_backend.package)

    def is_silent(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.check()
        return True

    def test_it_warns_once(self):
        with pytest.warns(LintWarning, match=r"(?s)LINT=off silences.*unknown-op: there is no operator 'aten::addd"):
            self.check()
        assert self.is_silent()

    @pytest.mark.parametrize(
        ("variable", "value", "error"),
        [
            ("CI", "true", "unknown-op"),
            (_backend.env_name("LINT"), "yes", "LINT=yes: it is one of off, warn, error"),
        ],
    )
    def test_it_is_an_error(self, variable, value, error):
        self.monkeypatch.setenv(variable, value)
        with pytest.raises(ImportError, match=error):
            self.check()

    def test_a_finding_that_is_no_error_stays_a_warning(self, ops):
        self.monkeypatch.setenv(_backend.env_name("LINT"), "error")
        self.monkeypatch.setattr("torch_backplane.ops.linting.RULES", {"no-fake": RULES["no-fake"]})
        ops.define("f(Tensor x) -> Tensor", PrivateUse1=same)
        with pytest.warns(LintWarning, match="no-fake"):
            self.check()

    def test_a_release_build_checks_only_if_the_variable_is_set(self):
        self.monkeypatch.setattr(_backend.build, "DEVELOPMENT", False)
        self.monkeypatch.setenv("CI", "true")
        assert self.is_silent()
        self.monkeypatch.setattr(_setup, "_linted", False)
        self.monkeypatch.setenv(_backend.env_name("LINT"), "error")
        with pytest.raises(ImportError, match="unknown-op"):
            self.check()

    def test_off(self):
        self.monkeypatch.setenv(_backend.env_name("LINT"), "off")
        assert self.is_silent()


def test_the_import_of_a_development_build_checks(run_in_process, backend_package):
    done = run_in_process(
        f"""
        import torch, warnings
        library = torch.library.Library("aten", "IMPL")
        library.impl("addd.Tensor", lambda x: x, "PrivateUse1")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import {backend_package.__name__} as package
        print([warning.category.__name__ for warning in caught])
        """,
        env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "CI": None},
    )
    assert done.stdout.strip() == "['LintWarning']"
