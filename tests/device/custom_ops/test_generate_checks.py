"""torch_backplane.testing.generate_checks: checks on every operator call of an existing test class."""

import contextlib
import io
import json
import unittest

import pytest
import torch
from torch.testing._internal.optests import OpCheckError, is_inside_opcheck_mode

from torch_backplane.testing import check_op, generate_checks, without_checks
from torch_backplane.testing.opchecks import UTILITIES
from torch_backplane.testing.opchecks.generate import ACCEPT, SAVE_INPUTS

pytestmark = pytest.mark.once  # as in test_check_op.py

NAMESPACE = "generated_checks"
FAST = ("test_schema", "test_cpu_reference", "test_faketensor")


@pytest.fixture
def ops(ops):
    """Operators ``twice``, which is right, ``mutates``, which writes to its input, and others."""

    def define(name, kernel, fake=torch.empty_like, tags=()):
        op = ops.define(f"{name}(Tensor x) -> Tensor", tags=tags, CPU=kernel, PrivateUse1=kernel)
        if fake is not None:
            torch.library.register_fake(op, fake, lib=ops.library)
        return op

    def mutates(x):
        x.zero_()
        return x + 1

    twice = define("twice", lambda x: x.detach() * 2)
    torch.library.register_autograd(twice, lambda ctx, grad: grad * 2, lib=ops.library)
    define("mutates", mutates)
    define("compliant", torch.clone, None, (torch.Tag.pt2_compliant_tag,))
    define("inside", lambda x: torch.full_like(x, is_inside_opcheck_mode()))
    return ops


@pytest.fixture
def failures(tmp_path):
    """The failures file: ``failures()`` reads its entries, ``failures(entries)`` writes them."""
    path = tmp_path / "failures_dict.json"

    def use(entries=None):
        if entries is None:
            return json.loads(path.read_text())["data"]
        from torch.testing._internal.optests.generate_tests import FailuresDict

        FailuresDict(str(path), entries).save()
        return path

    use.path = path
    use({})
    return use


def a_class(*bodies, **named):
    """A TestCase with tests ``test_0``, ``test_1`` ..., and with named ones."""
    tests = {f"test_{i}": lambda self, body=body: body() for i, body in enumerate(bodies)}
    named = {name: lambda self, body=body: body() for name, body in named.items()}
    return type("TestGenerated", (unittest.TestCase,), {**tests, **named})


@pytest.fixture
def checked(ops, failures):
    """``checked(body, ..., entries={})``: ``a_class`` with generated checks and these known failures."""

    def make(*bodies, entries=None, utilities=FAST, **named):
        case = a_class(*bodies, **named)
        generate_checks(case, ["generated_checks"], failures(entries or {}), test_utils=utilities)
        return case

    return make


def run(case, name):
    getattr(case(name), name)()


def generated(case):
    return {name for name in dir(case) if "__test_" in name}


XFAIL = {"comment": "", "status": "xfail"}
MUTATES = "generated_checks::mutates"
WRONG_TEST = "TestGenerated.test_schema__test_0"


def test_C80_each_test_gets_one_test_for_each_utility(ops, device, failures):
    x = torch.ones(3, 4, device=device, requires_grad=True)
    results = []
    case = a_class(lambda: results.append(ops.twice(x)), lambda: results.append(ops.twice.default(x)))
    generate_checks(case, ["generated_checks"], failures.path)
    assert generated(case) == {f"{utility}__test_{i}" for utility in UTILITIES for i in (0, 1)}
    names = [f"{utility}__test_0" for utility in UTILITIES] + [f"{utility}__test_1" for utility in FAST]
    for name in names:
        run(case, name)  # also where the input requires grad, which torch's own tests refuse on such a device
    assert len(results) == len(names)
    assert all(torch.equal(result, x * 2) for result in results)


def test_C80_a_wrong_operator_fails_its_test_which_says_what_to_write(ops, device, checked):
    case = checked(lambda: ops.mutates(torch.ones(3, device=device)))
    run(case, "test_faketensor__test_0")
    with pytest.raises(OpCheckError, match="mutated") as caught:
        run(case, "test_schema__test_0")
    text = str(caught.value)
    assert text.startswith(f"{MUTATES}: test_schema failed on a call of this test, (float32[3]) on {device}:")
    assert "generated_checks::mutates(Tensor(a!) x) -> Tensor" in text
    assert f'check_op("{MUTATES}", [(args, kwargs)], test_utils="test_schema")' in text
    assert "python -m pytest -k 'TestGenerated and test_schema__test_0'" in text


def test_C80_other_namespaces_and_cpu_tensors_are_left_to_torch(ops, device, failures, checked):
    case = a_class(lambda: ops.mutates(torch.ones(3, device=device)), lambda: ops.mutates(torch.ones(3)))
    generate_checks(case, ["others"], failures.path, test_utils=FAST)
    run(case, "test_schema__test_0")
    case = checked(lambda: ops.mutates(torch.ones(3)))
    with pytest.raises(OpCheckError, match="on cpu"):
        run(case, "test_schema__test_0")


INNER = """
import pytest, torch
from torch_backplane.testing import generate_checks

class TestFixtures:
    @pytest.mark.parametrize("size", [0, 3])
    def test_abs(self, device, size):
        assert torch.ops.aten.abs.default(torch.ones(size, device=device)).shape == (size,)

generate_checks(TestFixtures, "aten", {path!r}, test_utils=["test_schema", "test_empty"])
"""


def test_C80_tests_of_pytest_keep_their_fixtures(tmp_path, ops, failures):
    """Runs pytest in this process."""
    file = tmp_path / "test_inner.py"
    file.write_text(INNER.format(path=str(failures.path)))
    without = [word for plugin in ("cacheprovider", "xdist", "timeout") for word in ("-p", f"no:{plugin}")]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        pytest.main(["-q", *without, "-c", "/dev/null", str(file)])
    assert "6 passed" in out.getvalue(), out.getvalue()


def test_C81_a_test_can_opt_out(ops, device, failures):
    case = a_class(lambda: None)
    case.test_0 = without_checks("it measures time")(case.test_0)
    case.test_1 = lambda self: None
    generate_checks(case, ["generated_checks"], failures.path, test_utils=FAST)
    assert generated(case) == {f"{utility}__test_1" for utility in FAST}


def test_C81_a_generated_test_can_have_decorators(ops, device, failures):
    case = a_class(lambda: ops.mutates(torch.ones(3, device=device)))
    generate_checks(
        case,
        ["generated_checks"],
        failures.path,
        additional_decorators={"test_schema__test_0": [unittest.expectedFailure]},
        test_utils=FAST,
    )
    result = unittest.TestResult()
    case("test_schema__test_0").run(result)
    assert len(result.expectedFailures) == 1
    assert result.wasSuccessful()


def test_C81_a_name_that_exists_is_an_error(checked):
    with pytest.raises(RuntimeError, match="already has method named test_schema__test_0"):
        checked(lambda: None, test_schema__test_0=lambda: None)


def test_C82_what_is_known_to_fail_passes_until_it_is_right(ops, device, checked):
    case = checked(lambda: ops.mutates(torch.ones(3, device=device)), entries={MUTATES: {WRONG_TEST: XFAIL}})
    run(case, "test_schema__test_0")
    entries = {"generated_checks::twice": {WRONG_TEST: XFAIL}}
    case = checked(lambda: ops.twice(torch.ones(3, device=device)), entries=entries)
    with pytest.raises(OpCheckError, match="Unexpected success for operator generated_checks::twice"):
        run(case, "test_schema__test_0")


def test_C82_an_entry_without_a_call_is_an_error(ops, device, failures, checked, monkeypatch):
    case = checked(lambda: ops.twice(torch.ones(3, device=device)), entries={MUTATES: {WRONG_TEST: XFAIL}})
    with pytest.raises(OpCheckError, match="does not call it: remove the entry"):
        run(case, "test_schema__test_0")
    monkeypatch.setenv(ACCEPT, "1")
    run(case, "test_schema__test_0")
    assert failures() == {}


def test_C82_a_test_that_fails_raises_its_error(checked):
    def body():
        raise KeyError("something else")

    case = checked(body, entries={MUTATES: {WRONG_TEST: XFAIL}})
    with pytest.raises(KeyError, match="something else"):
        run(case, "test_schema__test_0")


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ({MUTATES: {WRONG_TEST: {"comment": "", "status": "fails"}}}, "status=fails but it needs to be in"),
        ({MUTATES: {WRONG_TEST: {"status": "xfail"}}}, "keys 'comment' and 'status'"),
        ({MUTATES: {"TestGenerated.test_speed__test_0": XFAIL}}, "should begin with one of"),
        ({MUTATES: {"TestGenerated.test_schema__test_7": XFAIL}}, "test_7 does not exist on the TestCase"),
    ],
)
def test_C82_wrong_entries_are_errors(entries, text, checked):
    with pytest.raises(RuntimeError, match=text):
        checked(lambda: None, entries=entries)


def test_C82_the_format_of_the_file_is_fixed(failures, monkeypatch):
    form = failures.path.read_text()
    failures.path.write_text(form.replace("  ", "    "))
    with pytest.raises(RuntimeError, match=f"{ACCEPT}=1"):
        generate_checks(a_class(lambda: None), ["generated_checks"], failures.path, test_utils=FAST)
    monkeypatch.setenv(ACCEPT, "1")
    generate_checks(a_class(lambda: None), ["generated_checks"], failures.path, test_utils=FAST)
    assert failures.path.read_text() == form


def test_C82_the_file_is_made_and_updated_on_request(ops, device, failures, monkeypatch):
    """Two classes share it: neither removes the other's entries."""
    failures.path.unlink()
    with pytest.raises(RuntimeError, match=f"does not exist: run the tests with {ACCEPT}=1"):
        generate_checks(a_class(lambda: None), ["generated_checks"], failures.path, test_utils=FAST)
    monkeypatch.setenv(ACCEPT, "1")
    first = a_class(lambda: ops.mutates(torch.ones(3, device=device)))
    second = type("TestSecond", (unittest.TestCase,), dict(vars(first)))
    for case in (first, second):
        generate_checks(case, ["generated_checks"], failures.path, test_utils=FAST)
    for case in (first, second):
        for name in sorted(generated(case)):
            run(case, name)
    assert failures() == {MUTATES: {WRONG_TEST: XFAIL, WRONG_TEST.replace("Generated", "Second"): XFAIL}}
    monkeypatch.delenv(ACCEPT)
    run(first, "test_schema__test_0")


def test_wrong_arguments(checked):
    with pytest.raises(ValueError, match="no utility test_speed; there are test_schema, "):
        checked(lambda: None, utilities=("test_speed",))


def test_C83_a_compliant_operator_that_is_known_to_fail_is_reported(ops, device, checked):
    entries = {"generated_checks::compliant": {"TestGenerated.test_faketensor__test_0": XFAIL}}
    entries[MUTATES] = {WRONG_TEST: XFAIL}
    case = checked(lambda: ops.compliant(torch.ones(3, device=device)), entries=entries)
    run(case, "test_faketensor__test_0")
    run(case, "test_pt2_compliant_tag_generated_checks_mutates")
    with pytest.raises(AssertionError, match=r"was tagged with torch\.Tag\.pt2_compliant_tag but it failed"):
        run(case, "test_pt2_compliant_tag_generated_checks_compliant")


def test_C84_a_failure_saves_its_inputs_and_gives_a_script(ops, device, checked, monkeypatch, tmp_path):
    monkeypatch.setenv(SAVE_INPUTS, "1")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    case = checked(lambda: ops.mutates(torch.arange(3.0, device=device)))
    with pytest.raises(OpCheckError) as caught:
        run(case, "test_schema__test_0")
    text = str(caught.value)
    script = text[text.index("import torch\n") : text.index("Or run the test alone")]
    [saved] = tmp_path.glob("check_op_*.pt")
    assert f'torch.load("{saved}")' in script
    assert 'map_location="cpu"' in script
    args, kwargs = torch.load(saved)
    assert args[0].device == device
    assert args[0].tolist() == [0, 1, 2]  # as before the call, which writes to it
    assert torch.load(saved, map_location="cpu")[0][0].device.type == "cpu"
    with pytest.raises(OpCheckError, match="sample 0"):
        exec(script, {})
    assert kwargs == {}


def test_C84_without_saved_inputs_the_script_has_places_for_them(ops, device):
    from torch_backplane.testing.opchecks.generate import _repro

    script = _repro("test_schema", ops.twice.default, None, None, save_data=False, dry_run=True)
    namespace = {}
    script = script.replace("args = ()", "args = (torch.ones(3),)")
    exec(script, namespace)
    assert namespace["check_op"].__name__ == check_op.__name__


def test_C35_an_operator_can_ask_whether_it_is_checked(ops, device, checked):
    seen = []
    case = checked(lambda: seen.append(ops.inside(torch.zeros(1, device=device)).item()))
    run(case, "test_0")
    run(case, "test_schema__test_0")
    assert seen == [0, 1]


def test_C85_generated_tests_go_through_the_device_type_tests(ops, name, failures):
    from torch_backplane.testing.device_type import TestCase, dtypes, instantiate_device_type_tests

    class TestGenerated(TestCase):
        @dtypes(torch.float32, torch.int64)
        def test_0(self, device, dtype):
            ops.mutates(torch.ones(3, device=device, dtype=dtype))

    generate_checks(TestGenerated, ["generated_checks"], failures.path, test_utils=FAST)
    scope = {"TestGenerated": TestGenerated, "__name__": __name__}
    instantiate_device_type_tests(TestGenerated, scope)
    # torch names it after the key, or, once a test of another such class has run in this process, after the device.
    case = scope.get("TestGeneratedPRIVATEUSE1") or scope[f"TestGenerated{name.upper()}"]
    for dtype in ("float32", "int64"):
        run(case, f"test_faketensor__test_0_{name}_{dtype}")
        with pytest.raises(OpCheckError, match="mutated"):
            run(case, f"test_schema__test_0_{name}_{dtype}")
