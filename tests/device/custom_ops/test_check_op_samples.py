"""torch_backplane.testing.check_op: what it is called with, what of a call it compares, and what it leaves untested."""

from types import SimpleNamespace

import pytest
import torch
from checked_operators import AOT, ONE, SQUARE, X, failing

from torch_backplane.testing import check_op
from torch_backplane.testing.opchecks import UTILITIES
from torch_backplane.testing.opchecks.check import OpCheckError

pytestmark = pytest.mark.once  # these operators are wrong on any kind of device


# What of a call is compared, and what is not.


def test_in_place_operators_are_compared_by_what_they_write(operator):
    def kernel(x, y):
        x.add_(y)

    def off_by_one(x, y):
        x.add_(y).add_(1)

    op = operator("(Tensor(a!) x, Tensor y) -> ()", on_cpu=kernel, on_device=kernel, fake=lambda x, y: None)
    sample = (X.clone(), X.clone())
    assert failing(op, [sample], test_utils="test_cpu_reference") == {}
    assert torch.equal(sample[0], X)
    op.on_device(off_by_one)
    assert "not the CPU reference's" in failing(op, [sample], test_utils="test_cpu_reference")["test_cpu_reference"]


def test_out_arguments_are_compared(operator):
    def kernel(x, *, out):
        torch.mul(x, 2, out=out)
        return out

    op = operator(
        "(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", kernel=kernel, fake=lambda x, *, out: out, tags=(torch.Tag.out,)
    )
    sample = ((X,), {"out": torch.zeros(3, 4)})
    checked = [u for u in UTILITIES if not u.startswith("test_aot")]
    report = check_op(op, [sample], test_utils=checked, raise_exception=False)
    assert report.ok, str(report)
    op.on_device(lambda x, *, out: out.fill_(1))
    with pytest.raises(OpCheckError, match="not the CPU reference's"):
        check_op(op, [sample], test_utils="test_cpu_reference")


def test_a_kernel_that_writes_between_the_elements(operator):
    def kernel(x, y):
        wide = torch.as_strided(x, (2 * x.numel() - 1,), (1,), x.storage_offset()) if not x.is_contiguous() else x
        torch.as_strided(wide, (min(wide.numel(), 2),), (1,)).fill_(7)
        x.copy_(y)

    op = operator("(Tensor(a!) x, Tensor y) -> ()", kernel=kernel, fake=lambda x, y: None)
    found = failing(op, [(torch.arange(4), torch.arange(4))], test_utils="test_noncontiguous")
    assert "wrote to a gap" in found["test_noncontiguous"]
    assert "x.copy_(result)" in found["test_noncontiguous"]


def test_vmap_over_the_first_argument_only(operator):
    def rule(info, in_dims, x, y):  # as if both had a batch
        return x + y.movedim(in_dims[1] or 0, 0), 0

    op = operator("(Tensor x, Tensor y) -> Tensor", kernel=lambda x, y: x + y, fake=lambda x, y: torch.empty_like(x))
    assert failing(op, [(X, X)], test_utils="test_vmap") == {}
    op.rule(rule)
    assert set(failing(op, [(X, X)], test_utils="test_vmap")) == {"test_vmap"}


def test_what_torch_cannot_loop_over_is_reported_as_untested(operator):
    op = operator("(Tensor[] xs) -> Tensor", kernel=lambda xs: xs[0] + xs[1], fake=lambda xs: torch.empty_like(xs[0]))
    report = check_op(op, [([X, X],)], test_utils="test_vmap")
    assert "no batching rule" in report.untested["test_vmap"]
    assert "test_vmap" in str(report)


def test_a_result_whose_shape_depends_on_values(operator):
    def fake(x):
        return x.new_empty(torch.library.get_ctx().new_dynamic_size())

    op = operator(ONE, kernel=lambda x: x[x > 1], fake=fake)
    report = check_op(op, [(X,)], test_utils=[*sorted(AOT), "test_vmap"])
    assert set(report.untested) == {"test_aot_dispatch_static", "test_vmap"}


def test_a_layout_that_the_cpu_refuses_may_be_refused(operator):
    def kernel(x):
        return x.view(-1).clone()

    op = operator(ONE, kernel=kernel, fake=lambda x: x.new_empty(x.numel()))
    assert failing(op, [(X,)], test_utils="test_noncontiguous") == {}
    op.on_cpu(lambda x: x.reshape(-1).clone())
    assert set(failing(op, [(X,)], test_utils="test_noncontiguous")) == {"test_noncontiguous"}


def test_random_operators_are_compared_except_for_their_values(operator):
    op = operator(
        "(Tensor x) -> Tensor", kernel=torch.rand_like, fake=torch.empty_like, tags=(torch.Tag.nondeterministic_seeded,)
    )
    report = check_op(op, [(X,)], test_utils=("test_cpu_reference", "test_noncontiguous", "test_vmap"))
    assert set(report.untested) == {"test_noncontiguous", "test_vmap"}
    op.on_device(lambda x: torch.rand_like(x).double())
    assert "dtype" in failing(op, [(X,)], test_utils="test_cpu_reference")["test_cpu_reference"]


def test_a_given_reference(operator):
    op = operator(ONE, on_device=lambda x: x * 2, fake=torch.empty_like)
    checked = {"test_utils": "test_cpu_reference"}
    assert failing(op, [(X,)], reference=lambda x: x + x, **checked) == {}
    assert set(failing(op, [(X,)], reference=lambda x: x + 1, **checked)) == {"test_cpu_reference"}


def test_tolerances_are_the_given_ones(operator):
    op = operator(ONE, on_cpu=lambda x: x * 2, on_device=lambda x: x * 2 + 1e-3, fake=torch.empty_like)
    checked = {"test_utils": "test_cpu_reference"}
    assert failing(op, [(X,)], rtol=0, atol=1e-2, **checked) == {}
    op.on_device(lambda x: x * 2 + 1e-6)
    assert failing(op, [(X,)], **checked) == {}
    assert set(failing(op, [(X,)], rtol=0, atol=0, **checked)) == {"test_cpu_reference"}


def test_an_operator_that_the_fallback_computes_is_reported_as_untested(operator):
    op = operator(ONE, on_cpu=lambda x: x * 2, fake=torch.empty_like)
    report = check_op(op, [(X,)], test_utils="test_cpu_reference")
    assert "the device has no kernel" in report.untested["test_cpu_reference"]


# Operators, samples and options.


def test_a_sample_with_a_device_tensor_is_not_moved(operator, device):
    def kernel(x, sizes):
        assert sizes.device.type == "cpu"
        return x * sizes[0].item()

    op = operator("(Tensor x, Tensor sizes) -> Tensor", kernel=kernel, fake=lambda x, sizes: torch.empty_like(x))
    checked = ("test_schema", "test_cpu_reference", "test_noncontiguous", "test_empty", "test_faketensor")
    assert failing(op, [(X.to(device), torch.tensor([2]))], test_utils=checked) == {}


@pytest.mark.requires("multi_device")
def test_samples_are_moved_to_the_given_device(operator, name):
    places = []
    op = operator(
        ONE, on_cpu=torch.clone, on_device=lambda x: places.append(x.device) or x.clone(), fake=torch.empty_like
    )
    assert check_op(op, [(X,)], device=f"{name}:1", test_utils="test_cpu_reference").ok
    assert set(places) == {torch.device(name, 1)}
    report = check_op(op, [(X,)], device="cpu", test_utils="test_cpu_reference")
    assert report.untested["test_cpu_reference"] == "the call is on the CPU"
    assert set(places) == {torch.device(name, 1)}


def test_a_call_that_fails_fails_every_utility(operator):
    def kernel(x):
        raise TypeError("only float32")

    op = operator(ONE, on_cpu=torch.clone, on_device=kernel, fake=torch.empty_like)
    found = failing(op, [(X,)])
    assert list(found) == list(UTILITIES)  # which is the default
    assert all("the call itself fails on sample 0, (float32[3, 4])" in text for text in found.values())
    with pytest.raises(OpCheckError, match="only float32"):
        check_op(op, [(X,)])


@pytest.mark.parametrize(
    ("samples", "options", "text"),
    [
        (X, {}, "samples is a list of argument tuples"),
        ([], {}, "samples is a list of argument tuples"),
        ([X], {}, r"sample 0 is float32\[3, 4\]; it is a tuple of arguments"),
        ([(X,)], {"test_utils": "test_nothing"}, "the utilities are test_schema, "),
        ([(X,)], {"test_utils": ()}, "the utilities are test_schema, "),
        ([(X,)], {"rtol": 0.1}, "rtol and atol come together"),
    ],
)
def test_wrong_arguments(operator, samples, options, text):
    op = operator(ONE, **SQUARE)
    with pytest.raises(ValueError, match=text):
        check_op(op, samples, **options)


def test_samples_may_be_one_tuple_or_torchs_samples(operator):
    op = operator(ONE, **SQUARE)
    sample = SimpleNamespace(input=X, args=(), kwargs={})
    for samples in ((X,), [((X,), {})], [sample], iter([(X,)])):
        assert check_op(op, samples, test_utils="test_cpu_reference").ok


# Rows of the contract.


def test_C21_what_counts_as_an_operator(operator, device):
    op = operator(ONE, **SQUARE)
    packet = getattr(torch.ops.check_op_test, op.name.partition("::")[2])
    define = torch.library.custom_op("check_op_test::custom", mutates_args=(), schema="(Tensor x) -> Tensor")
    custom = define(torch.clone)
    custom.register_fake(torch.empty_like)
    x = X.to(device)
    for form in (op.overload, packet, custom):
        torch.library.opcheck(form, (x,), test_utils="test_schema")
        assert check_op(form, [(x,)], test_utils="test_schema").ok
    for form in (op, op.name):
        assert check_op(form, [(x,)], test_utils="test_schema").op == op.name
    with pytest.raises(ValueError, match="must be instance of"):
        torch.library.opcheck(torch.sin, (x,))
    with pytest.raises(ValueError, match="is no operator: give a name"):
        check_op(torch.sin, [(x,)])
    with pytest.raises(ValueError, match="subset"):
        torch.library.opcheck(op.overload, (x,), test_utils="blah")
    with pytest.raises(ValueError, match=r"has the overloads .*: give one of them, torch\.ops\.aten\.add\.Tensor"):
        check_op(torch.ops.aten.add, [(x, x)])
    with pytest.raises(ValueError, match="did you mean"):
        check_op(op.name + "_", [(x,)])
    custom._lib._destroy()


def test_C22_the_default_run_and_chosen_utilities(operator, device):
    op = operator(ONE, kernel=lambda x: x.mul_(1), fake=torch.empty_like)
    x = X.to(device)
    wrong = torch.library.opcheck(op.overload, (x,), raise_exception=False)
    assert list(wrong) == [
        "test_schema",
        "test_autograd_registration",
        "test_faketensor",
        "test_aot_dispatch_dynamic",
    ]
    assert isinstance(wrong["test_schema"], Exception)
    report = check_op(op, [(x,)], test_utils=list(wrong), raise_exception=False)
    assert list(report) == list(wrong)
    assert isinstance(report["test_schema"], OpCheckError)
    op.kernel(torch.clone)
    assert set(torch.library.opcheck(op.overload, (x,)).values()) == {"SUCCESS"}
    assert torch.library.opcheck(op.overload, (x,), test_utils="test_schema") == {"test_schema": "SUCCESS"}
    assert check_op(op, [(x,)], test_utils="test_schema") == {"test_schema": "SUCCESS"}


def test_C33_neither_expecttest_nor_torchs_test_utilities_are_needed(run_in_process, name):
    code = f"""
        import sys
        sys.modules["expecttest"] = None
        import torch
        from torch_backplane.testing import check_op, generate_checks
        from torch.library import opcheck
        opcheck(torch.ops.aten.abs.default, (torch.ones(3, device="{name}"),))
        report = check_op("aten::abs", [(torch.linspace(-2, 2, 6),)], test_utils=["test_schema", "test_gradcheck"])
        print(report.ok, "torch.testing._internal.common_utils" in sys.modules)
    """
    assert run_in_process(code).stdout.split() == ["True", "False"]


@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        ("aten::abs", torch.float32),
        ("aten::abs", torch.int64),
        ("aten::mul.Tensor", torch.float64),
        ("aten::mul.Tensor", torch.bool),
        ("aten::cumsum", torch.bfloat16),
        ("aten::cumsum", torch.bool),
        ("aten::add_.Tensor", torch.float32),
        ("aten::add_.Tensor", torch.int64),
    ],
    ids=str,
)
def test_C34_operators_are_checked_over_dtypes_and_samples(op, dtype):
    checked = ("test_schema", "test_cpu_reference", "test_noncontiguous", "test_empty", "test_faketensor")
    x = torch.testing.make_tensor((3, 4), dtype=dtype, device="cpu")
    args = {"aten::abs": (), "aten::cumsum": (1,)}.get(op, (x.clone(),))
    assert failing(op, [(x, *args)], test_utils=checked) == {}
