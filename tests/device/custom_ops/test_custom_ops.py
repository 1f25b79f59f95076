"""torch_backplane.ops: operators defined from Python, how they are named, called and found."""

import copy
import pickle
import warnings

import pytest
import torch
from torch import Tensor

from torch_backplane import ops
from torch_backplane.ops import registry, schema

pytestmark = pytest.mark.once


def shift(x: Tensor, by: float = 1.0) -> Tensor:
    return x + by


# The name


def test_A01_the_renamed_device_is_a_device_type(made, device, x):
    qualname = "bp_ops::a01"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch._custom_ops.custom_op(qualname, "(Tensor x) -> Tensor")
    try:
        with pytest.raises(ValueError, match="we only support device_type"):  # torch's older table: cpu and cuda
            torch._custom_ops.impl(qualname, device_types=device.type)(lambda x: x + 1)
        op = made(ops.get(qualname))
        op.register_kernel(device.type, lambda x: x + 1)
        assert torch.equal(op(x), x + 1)
        assert torch.equal(torch.ops.bp_ops.a01(x), x + 1)
    finally:
        op.destroy()
        torch._custom_ops._destroy(qualname)


RESERVED = [f"{namespace}::f" for namespace in (*schema.RESERVED, "my.lib")]
NO_NAMES = ["f", "::f", "bp_ops::", "bp_ops::f g", "bp-ops::f", "bp_ops::f.", "a::b::c"]


@pytest.mark.parametrize("name", [*RESERVED, *NO_NAMES])
def test_A02_A03_a_reserved_namespace_and_what_is_no_name_are_refused(name):
    reason = r"PyTorch's own namespace|has no dot" if name in RESERVED else "name of an operator"
    with pytest.raises(ValueError, match=reason):
        ops.custom_op(name, shift, mutates_args=())
    assert name not in torch._C._dispatch_get_all_op_names()


def test_A03_an_overload_may_follow(made, shifted, x):
    @ops.custom_op("bp_ops::shift.Tensor", mutates_args=())
    def shift(x: Tensor, by: Tensor) -> Tensor:
        return x + by

    made(shift)
    assert sorted(torch.ops.bp_ops.shift.overloads()) == ["Tensor", "default"]
    assert torch.equal(torch.ops.bp_ops.shift(x, 2.0), x + 2)
    assert torch.equal(torch.ops.bp_ops.shift(x, x), x + x)
    assert ops.get("bp_ops::shift.Tensor") is shift
    assert ops.get("bp_ops::shift.default") is shifted


def test_A04_a_function_of_another_name_is_warned_about(made):
    with pytest.warns(ops.OperatorWarning, match=r"'shfit' at \S+:\d+ defines bp_ops::shift4"):

        @ops.custom_op("bp_ops::shift4", mutates_args=())
        def shfit(x: Tensor) -> Tensor:
            return x + 1

    made(shfit)
    with pytest.raises(ops.OperatorWarning), ops.strict():
        ops.custom_op("bp_ops::shift5", mutates_args=())(shift)
    assert "bp_ops::shift5" not in torch._C._dispatch_get_all_op_names()

    # A generic name, or one with an underscore, is not.
    def _(x: Tensor) -> Tensor:
        return x + 1

    def _shift(x: Tensor) -> Tensor:
        return x + 1

    with ops.strict():
        for name, function in [("shift", _), ("shift", _shift), ("shift.out_of_place", _shift)]:
            ops.custom_op(f"bp_ops::{name}", mutates_args=())(function).destroy()


# The schema


@pytest.mark.parametrize(
    ("text", "difference"),
    [
        ("(Tensor input, float by=1.0) -> Tensor", "argument 1 is 'x' and should be 'input'"),
        ("(Tensor x, *, float by=1.0) -> Tensor", None),
        ("(Tensor x, float by=2.0) -> Tensor", "default 1.0 and the schema's is 2.0"),
        ("(Tensor x, float by=1.0, int n=0) -> Tensor", "'n' is missing"),
        ("(Tensor x) -> Tensor", "'by' is not in the schema"),
        ("(float by, Tensor x) -> Tensor", "argument 1 is 'x' and should be 'by'"),
    ],
)
def test_A05_a_schema_and_a_function_that_differ(text, difference):
    if difference is None:
        ops.custom_op("bp_ops::a05", shift, mutates_args=(), schema=text).destroy()
        return
    with pytest.raises(TypeError) as error:
        ops.custom_op("bp_ops::a05", shift, mutates_args=(), schema=text)
    assert difference in str(error.value)
    assert "Write: def shift(" in str(error.value)
    assert "bp_ops::a05" not in torch._C._dispatch_get_all_op_names()


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("(int64_t x) -> Tensor", "'int64_t' is no type of a schema: write int"),  # torch reads a variable
        ("(Tensor x, double[]? y) -> Tensor", "write float"),
        ("(Dict(str, string) x) -> Tensor", "write str"),
        ("(Tensor x) -> (Tensor, uint8_t)", "write int"),
        ("(at::Tensor x) -> Tensor", "write Tensor"),  # torch refuses these itself
        ("(Tensor x, std::optional<int> n) -> Tensor", "write with '[?]'"),
        ("(List[int] n) -> Tensor", r"write int\[\]"),
        ("(Tensor x", "is no schema"),
    ],
)
def test_C08_spellings_of_cpp_and_python_in_a_schema_are_refused_with_the_schemas_own(text, right):
    with pytest.raises(ValueError, match=right):
        schema.parse("f", text)


def test_C08_a_type_variable_and_a_default_text_are_no_spelling():
    assert str(schema.parse("f", "(t x) -> t")) == "f(t x) -> t"
    assert schema.parse("f", '(Tensor x, str s="double x") -> Tensor').arguments[1].default_value == "double x"


def test_A05_a_kernel_a_reference_and_a_fake_that_differ(shifted):
    for register in (shifted.register_kernel(), shifted.reference, shifted.register_fake):
        with pytest.raises(TypeError, match=r"argument 2 is 'n' and should be 'by'.*Write: def \w+\(x, by=1.0\)"):
            register(lambda x, n: x)


def test_A06_functional_mutating_and_viewing_operators(made, x):
    @ops.custom_op("bp_ops::twice", mutates_args=())
    def twice(x: Tensor) -> Tensor:
        return x * 2

    @ops.custom_op("bp_ops::double_", mutates_args={"x"})
    def double_(x: Tensor) -> None:
        x.mul_(2)

    @ops.custom_op("bp_ops::first", mutates_args=(), schema="(Tensor(a) x) -> Tensor(a)")
    def first(x):
        return x[:1]

    for op in (twice, double_, first):
        made(op)
    expected = x * 2
    assert torch.equal(twice(x), expected)
    version = x._version
    double_(x)
    assert torch.equal(x, expected)
    assert x._version > version
    view = first(x)
    assert view._is_view()
    assert view.data_ptr() == x.data_ptr()


def test_A07_a_destroyed_operator_is_removed_and_its_name_is_free(x):
    op = ops.custom_op("bp_ops::a07", shift, mutates_args=())
    op.reference(shift)
    assert torch.equal(torch.ops.bp_ops.a07(x), x + 1)
    op.destroy()
    op.destroy()
    assert not hasattr(torch.ops.bp_ops, "a07")
    assert "bp_ops::a07" not in torch._C._dispatch_get_all_op_names()
    assert repr(op) == "<operator bp_ops::a07, destroyed>"
    with pytest.raises(RuntimeError, match="bp_ops::a07 has been destroyed"):
        op(x)
    with ops.strict(), ops.custom_op("bp_ops::a07", lambda_of(3), mutates_args=()) as again:
        assert torch.equal(torch.ops.bp_ops.a07(x), x + 3)
        assert ops.get("bp_ops::a07") is again
    assert not again.defined


def lambda_of(by):
    def function(x: Tensor) -> Tensor:
        return x + by

    return function


def test_a_name_that_cpp_defined_is_refused_with_its_place(x):
    with pytest.raises(ValueError, match=r"aten::\w+'? |PyTorch's own"):
        ops.custom_op("aten::gelu", shift, mutates_args=())
    with pytest.raises(ValueError, match=r"quantized::add is defined already, at \S+:\d+: add a kernel to it by"):
        ops.custom_op("quantized::add", shift, mutates_args=())


def test_a_second_definition_replaces_the_first_with_a_warning(collected, made, shifted, x):
    with pytest.warns(ops.OperatorWarning, match=r"is defined already: it is at \S+:\d+, and the one at \S+:\d+"):
        second = made(ops.custom_op("bp_ops::shift", lambda_of(5), mutates_args=()))
    assert not shifted.defined
    assert torch.equal(torch.ops.bp_ops.shift(x), x + 5)
    with pytest.raises(ops.OperatorWarning), ops.strict():
        ops.custom_op("bp_ops::shift", shift, mutates_args=())
    assert torch.equal(second(x), x + 5)


# Calls, look-up and tags


def test_A19_a_call_is_the_boxed_call_of_the_dispatcher(shifted, x):
    handle = torch._C._dispatch_find_schema_or_throw("bp_ops::shift", "")
    results = [torch._C._dispatch_call_boxed(handle, x, 2.0), torch.ops.bp_ops.shift(x, 2.0), shifted(x, 2.0)]
    for result in [*results, shifted(x, by=2.0), shifted.overload(x, 2.0)]:
        assert torch.equal(result, x + 2)


def test_A20_an_operator_of_cpp_is_found_and_python_can_add_a_kernel(x):
    op = ops.get("aten::erfinv")
    assert ops.get(torch.ops.aten.erfinv.default) is op
    assert op.overload is torch.ops.aten.erfinv.default
    x = x / 4
    assert torch.equal(op(x), torch.erfinv(x))
    op.register_kernel(None, lambda self: self + 100)
    try:
        assert torch.equal(torch.erfinv(x), x + 100)
    finally:
        op.destroy()
    assert op.defined  # C++ defined it; what Python added is gone
    assert not registry.has_kernel("aten::erfinv", "PrivateUse1")
    assert not torch.equal(op(x), x + 100)


def test_A20_a_miss_names_the_nearest_and_what_to_load(shifted):
    with pytest.raises(ValueError, match=r"no operator 'bp_ops::shfit': did you mean bp_ops::shift\? .*load it first"):
        ops.get("bp_ops::shfit")
    with pytest.raises(ValueError, match=r"no operator of 'bp_unknown' is loaded; load it first: .*load_library"):
        ops.get("bp_unknown::f")
    with pytest.raises(ValueError, match="has the overloads Tensor, Scalar"):
        ops.get(torch.ops.aten.add)


def test_A20_every_form_of_its_name_gives_the_same_object(collected, made, shifted):
    names = ["bp_ops::shift", "bp_ops::shift.default", torch.ops.bp_ops.shift, torch.ops.bp_ops.shift.default, shifted]
    assert [ops.get(name) for name in names] == [shifted] * len(names)
    stock = torch.library.custom_op("bp_ops::stock", shift, mutates_args=())
    op = made(ops.get(stock))
    assert ops.get("bp_ops::stock") is op
    assert copy.deepcopy(shifted) is shifted
    assert pickle.loads(pickle.dumps(shifted)) is shifted


def test_A20_an_operator_that_is_defined_again_elsewhere_is_found(x):
    for by in (1, 2):
        with torch.library._scoped_library("bp_anew", "FRAGMENT") as library:
            library.define("f(Tensor x) -> Tensor")
            library.impl("f", lambda x, by=by: x + by, "PrivateUse1")
            op = ops.get("bp_anew::f")
            assert op.overload is torch.ops.bp_anew.f.default
            assert torch.equal(op(x), x + by)
    with pytest.raises(ValueError, match="no operator 'bp_anew::f'"):
        ops.get("bp_anew::f")


@pytest.mark.parametrize(
    ("strides", "tag"),
    [("exact", "needs_exact_strides"), ("order", "needs_fixed_stride_order"), ("any", "flexible_layout")],
)
def test_A21_an_operator_carries_the_tag_of_its_strides(made, strides, tag):
    op = made(ops.custom_op("bp_ops::a21", shift, mutates_args=(), strides=strides, tags=torch.Tag.pointwise))
    assert {torch.Tag.pointwise, torch.Tag.pt2_compliant_tag, getattr(torch.Tag, tag)} == set(op.overload.tags)


def test_A21_a_given_tag_is_kept(made):
    tags = (torch.Tag.needs_fixed_stride_order,)
    op = made(ops.custom_op("bp_ops::a21", shift, mutates_args=(), tags=tags))
    assert torch._library.utils.get_layout_constraint_tag(op.overload) == tags[0]
    without = made(ops.custom_op("bp_ops::without", shift, mutates_args=()))
    assert without.overload.tags == [torch.Tag.pt2_compliant_tag]
    assert torch._library.utils.get_layout_constraint_tag(without.overload) == torch.Tag.needs_exact_strides
    with pytest.raises(ValueError, match="contradict each other"):
        ops.custom_op("bp_ops::a21", shift, mutates_args=(), tags=tags, strides="any")
    with pytest.raises(ValueError, match="is none of 'exact', 'order'"):
        ops.custom_op("bp_ops::a21", shift, mutates_args=(), strides="fixed")
