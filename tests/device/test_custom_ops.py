"""torch_backplane.ops: operators defined from Python, and what is registered for them."""

import copy
import importlib
import pickle
import sys
import warnings

import pytest
import torch
from torch import Tensor
from torch._dispatch.python import enable_python_dispatcher

from torch_backplane import _backend, fallback, ops
from torch_backplane.ops import registry, schema

pytestmark = pytest.mark.once


@pytest.fixture
def x(device):
    return torch.linspace(-2, 2, 5).to(device)


def shift(x: Tensor, by: float = 1.0) -> Tensor:
    return x + by


@pytest.fixture
def shifted(made):
    """An operator with a kernel for the device alone."""
    return made(ops.custom_op("bp_ops::shift", shift, mutates_args=()))


def empty_operator(made, name="bp_ops::empty", text="(Tensor x) -> Tensor"):
    """An operator that has no kernel: defined by a library, which the returned object does not own."""
    library = torch.library.Library(name.partition("::")[0], "FRAGMENT")
    library.define(name.partition("::")[2] + text)
    op = ops.get(name)
    made(type("Library", (), {"destroy": lambda self: (op.destroy(), library._destroy())})())
    return op


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


@pytest.mark.parametrize("namespace", [*schema.RESERVED, "my.lib"])
def test_A02_reserved_namespaces_are_refused(namespace):
    with pytest.raises(ValueError, match=r"PyTorch's own namespace|has no dot"):
        ops.custom_op(f"{namespace}::f", shift, mutates_args=())
    assert f"{namespace}::f" not in torch._C._dispatch_get_all_op_names()


@pytest.mark.parametrize("name", ["f", "::f", "bp_ops::", "bp_ops::f g", "bp-ops::f", "bp_ops::f.", "a::b::c"])
def test_A03_a_name_is_namespace_and_name(name):
    with pytest.raises(ValueError, match="name of an operator"):
        ops.custom_op(name, shift, mutates_args=())


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


def test_A04_a_name_that_says_nothing_is_not(made):
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


def test_A07_a_destroyed_operator_is_gone_and_its_name_free(x):
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


def test_a_second_definition_takes_the_firsts_place_and_says_so(made, shifted, x):
    with pytest.warns(ops.OperatorWarning, match=r"is defined already: it is at \S+:\d+, and the one at \S+:\d+"):
        second = made(ops.custom_op("bp_ops::shift", lambda_of(5), mutates_args=()))
    assert not shifted.defined
    assert torch.equal(torch.ops.bp_ops.shift(x), x + 5)
    with pytest.raises(ops.OperatorWarning), ops.strict():
        ops.custom_op("bp_ops::shift", shift, mutates_args=())
    assert torch.equal(second(x), x + 5)


# Kernels


def test_A08_one_function_serves_several_devices(made, name, x):
    op = made(ops.custom_op("bp_ops::a08", shift, mutates_args=(), device_types=["cpu", name, "cpu"]))
    assert torch.equal(op(x), x + 1)
    assert torch.equal(op(x.cpu()), x.cpu() + 1)


def test_overriding_one_devices_kernel_touches_that_device_alone(made, name, x):
    stock = torch.library.custom_op("bp_ops::stock", shift, mutates_args=(), device_types=["cpu", name])
    stock.register_kernel(name, lambda x, by=1.0: x + 10)
    cpu = x.cpu()
    assert torch.equal(stock(cpu), cpu + 10)  # torch's closures share the last device type
    made(ops.get("bp_ops::stock"))
    op = made(ops.custom_op("bp_ops::ours", shift, mutates_args=(), device_types=["cpu", name]))
    with pytest.warns(ops.OperatorWarning):
        op.register_kernel(name, lambda x, by=1.0: x + 10)
    assert torch.equal(op(cpu), cpu + 1)
    assert torch.equal(op(x), x + 10)
    with op.set_kernel_enabled("cpu", False):
        assert torch.equal(op(x), x + 10)


def test_A09_the_accelerators_kernel_is_chosen_in_any_order(made, x):
    @ops.custom_op("bp_ops::a09", mutates_args=())
    def a09(x: Tensor, y: Tensor) -> Tensor:
        return torch.ones(1)

    made(a09).reference(lambda x, y: torch.zeros(1))
    cpu = x.cpu()
    assert [a09(*pair).item() for pair in [(x, x), (x, cpu), (cpu, x), (cpu, cpu)]] == [1, 1, 1, 0]


def test_A10_a_second_kernel_names_both_places(shifted, x):
    second = lambda x, by=1.0: x - by  # noqa: E731
    first_site = f"{__file__}:{shift.__code__.co_firstlineno}"
    second_site = f"{__file__}:{second.__code__.co_firstlineno}"
    with pytest.raises(ops.OperatorWarning) as error, ops.strict():
        shifted.register_kernel(None, second)
    assert first_site in str(error.value)
    assert second_site in str(error.value)
    assert torch.equal(shifted(x), x + 1)
    with pytest.warns(ops.OperatorWarning, match="takes its place"):
        shifted.register_kernel(None, second)
    assert torch.equal(shifted(x), x - 1)


MODULE = """
from torch import Tensor
from torch_backplane import ops

@ops.custom_op("bp_ops::reloaded", mutates_args=())
def reloaded(x: Tensor) -> Tensor:
    return x + {number}

@reloaded.reference
def reference(x):
    return x + {number}
"""


def test_A10_loading_a_module_again_replaces_silently(x, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    path = tmp_path / "module_with_an_operator.py"
    path.write_text(MODULE.format(number=1))
    module = importlib.import_module("module_with_an_operator")
    try:
        path.write_text(MODULE.format(number=23))
        with ops.strict():
            importlib.reload(module)
        assert torch.equal(module.reloaded(x), x + 23)
        assert torch.equal(module.reloaded(x.cpu()), x.cpu() + 23)
    finally:
        module.reloaded.destroy()
        del sys.modules["module_with_an_operator"]


def test_A10_a_kernel_in_cpp_is_named_by_its_place(x):
    op = ops.get("aten::fill_.Scalar")
    with pytest.raises(ops.OperatorWarning, match=r"it is at \S+\.cpp:\d+"), ops.strict():
        op.register_kernel(None, lambda self, value: self)
    assert x.fill_(3).tolist() == [3.0] * 5


def test_A11_the_fallback_is_no_kernel(made, device, x):
    op = empty_operator(made)
    assert torch._C._dispatch_has_computed_kernel_for_dispatch_key(op.name, "PrivateUse1") == fallback.is_registered()
    with ops.strict():
        op.register_kernel(device.type, lambda x: x + 1)
    assert torch.equal(op(x), x + 1)
    with pytest.raises(ops.OperatorWarning), ops.strict():
        op.register_kernel(device.type, lambda x: x + 2)


# Operators that make tensors


def test_A12_a_factory_reaches_the_devices_kernel(made, device):
    @ops.custom_op("bp_ops::a12", mutates_args=())
    def a12(n: int, device: torch.device) -> Tensor:
        return torch.ones(n, device=device)

    made(a12).reference(lambda n, device: torch.zeros(n))
    for asked in (device, device.type, torch.device(device.type, 0)):
        result = a12(2, asked)
        assert result.device == device
        assert result.tolist() == [1, 1]
    assert a12(2, device="cpu").tolist() == [0, 0]


def positional(n: int, device: torch.device | None = None) -> Tensor:
    return torch.ones(n, device=device)


def keyword(n: int, *, device: torch.device) -> Tensor:
    return torch.ones(n, device=device)


def keyword_with_default(n: int, *, device: torch.device | None = None) -> Tensor:
    return torch.ones(n, device=device)


@pytest.mark.parametrize("function", [positional, keyword, keyword_with_default])
def test_A13_the_device_may_be_keyword_only_or_left_out(made, device, function):
    op = made(ops.custom_op("bp_ops::a13", function, mutates_args=()))
    op.reference(lambda *args, **kwargs: torch.zeros(args[0]))
    op.register_fake(function)
    assert op(2, device=device).tolist() == [1, 1]
    assert op(2, device=device.type).device == device
    assert op(2, device="cpu").tolist() == [0, 0]
    if function is not keyword:
        assert op(2).tolist() == [0, 0]  # torch's default device
    if function is keyword_with_default:
        with torch.device(device.type):
            assert op(2).tolist() == [1, 1]
    with torch._subclasses.FakeTensorMode():
        assert op(2, device=device).device == device
    traced = torch.fx.experimental.proxy_tensor.make_fx(lambda: op(2, device=device) + 1, tracing_mode="fake")()
    assert traced().tolist() == [2, 2]
    assert traced().device == device


def test_A13_under_compilation(made, device):
    op = made(ops.custom_op("bp_ops::a13", keyword_with_default, mutates_args=()))
    op.register_fake(keyword_with_default)
    compiled = torch.compile(lambda: op(3, device=device) * 2, backend="aot_eager", fullgraph=True)
    assert compiled().tolist() == [2, 2, 2]


def test_a_factory_has_a_default_kernel_and_says_what_is_missing(made, device):
    op = made(ops.custom_op("bp_ops::made", keyword, mutates_args=(), device_types="default"))
    assert op(2, device=device).tolist() == [1, 1]
    op.register_kernel(None, lambda n, *, device: torch.zeros(n, device=device))
    assert op(2, device=device).tolist() == [0, 0]
    assert op(2, device="cpu").tolist() == [1, 1]
    with pytest.raises(ValueError, match=r"`device: torch.device` must choose the kernel"):
        ops.custom_op("bp_ops::chooses_nothing", lambda_without_tensors, mutates_args=())
    assert "bp_ops::chooses_nothing" not in torch._C._dispatch_get_all_op_names()


def lambda_without_tensors(n: int) -> Tensor:
    return torch.ones(n)


# What is missing


def test_A18_an_operator_without_a_kernel_names_the_line_to_add(made, shifted, name, x):
    line = f'torch_backplane.ops.get("bp_ops::empty").register_kernel("{name}"'
    op = empty_operator(made)
    with pytest.raises(NotImplementedError) as error:  # the CPU has no kernel, either
        op(x)
    assert f"bp_ops::empty has no kernel for Float on {name}" in str(error.value)
    assert line in str(error.value)
    with pytest.raises(NotImplementedError) as error:
        shifted(x.cpu())
    assert str(error.value) == (
        "bp_ops::shift has no kernel for cpu. Add one:\n"
        '    @torch_backplane.ops.get("bp_ops::shift").reference\n'
        "    def shift(x, by=1.0): ..."
    )


def test_A18_without_a_fallback(run_in_process, name):
    program = f"""
        import torch
        import torch_backplane
        from torch import Tensor

        @torch_backplane.ops.custom_op("bp_ops::f", mutates_args=(), device_types="cpu")
        def f(x: Tensor) -> Tensor:
            return x + 1

        try:
            f(torch.ones(2, device="{name}"))
        except NotImplementedError as error:
            print(error)
    """
    done = run_in_process(program, env={_backend.env_name("FALLBACK"): "none"}).stdout
    assert f"bp_ops::f has no kernel for {name}. Add one:" in done
    assert f'@torch_backplane.ops.get("bp_ops::f").register_kernel("{name}")' in done


def test_C18_no_kernel_no_fake_and_no_tensor_are_told_apart(made, name, x):
    @ops.custom_op("bp_ops::c18", mutates_args=(), device_types="cpu")
    def c18(x: list[Tensor]) -> Tensor:
        return x[0] + 1

    made(c18)
    with fallback.policy("error"), pytest.raises(NotImplementedError, match=f"c18 has no kernel .*on {name}"):
        c18([x])
    with pytest.raises(RuntimeError, match="no fake impl registered"):
        c18([x.to("meta")])
    with pytest.raises(NotImplementedError, match=r"c18 got no tensor \(an empty list\?\)"):
        c18([])


def test_C19_under_the_policy_error_the_device_is_named(made, name, x):
    op = made(ops.custom_op("bp_ops::c19", shift, mutates_args=(), device_types="cpu"))
    with fallback.policy("cpu"):
        assert torch.equal(op(x), x + 1)  # by the reference
    with fallback.policy("error"), pytest.raises(NotImplementedError) as error:
        op(x)
    assert f"bp_ops::c19 has no kernel for Float on {name}" in str(error.value)
    assert f'torch_backplane.ops.get("bp_ops::c19").register_kernel("{name}", function)' in str(error.value)


def test_C16_an_unknown_device_type_is_refused_with_the_valid_ones(shifted, name):
    for given, meant in [(f"{name}x", name), ("PrivateUse1", name), ("cup", "cpu"), ("defualt", "default")]:
        with pytest.raises(ValueError, match=f"no device type '{given}': did you mean '{meant}'") as error:
            shifted.register_kernel(given, shift)
        assert f"Valid are {name}, cpu, cuda, " in str(error.value)
        assert "privateuseone" not in str(error.value)


def test_C17_a_device_with_an_index_is_refused_with_what_to_write(shifted, name):
    for given in (f"{name}:0", torch.device(name, 1)):
        with pytest.raises(ValueError, match=f"'{name}:[01]' has an index: write '{name}'"):
            shifted.register_kernel(given, shift)
    with pytest.raises(ValueError, match="has an index"):
        ops.custom_op("bp_ops::c17", shift, mutates_args=(), device_types=f"{name}:0")


# Calls, look-up and tags


def test_A19_a_call_is_the_boxed_call_of_the_dispatcher(shifted, x):
    handle = torch._C._dispatch_find_schema_or_throw("bp_ops::shift", "")
    results = [torch._C._dispatch_call_boxed(handle, x, 2.0), torch.ops.bp_ops.shift(x, 2.0), shifted(x, 2.0)]
    for result in [*results, shifted(x, by=2.0), shifted.overload(x, 2.0)]:
        assert torch.equal(result, x + 2)


def test_A20_an_operator_of_cpp_is_found_and_takes_what_python_adds(x):
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
    with pytest.raises(ValueError, match=r"If a library defines any of 'bp_unknown', load it first.*load_library"):
        ops.get("bp_unknown::f")
    with pytest.raises(ValueError, match="has the overloads Tensor, Scalar"):
        ops.get(torch.ops.aten.add)


def test_A20_whatever_names_it_gives_the_same_object(made, shifted):
    names = ["bp_ops::shift", "bp_ops::shift.default", torch.ops.bp_ops.shift, torch.ops.bp_ops.shift.default, shifted]
    assert [ops.get(name) for name in names] == [shifted] * len(names)
    stock = torch.library.custom_op("bp_ops::stock", shift, mutates_args=())
    op = made(ops.get(stock))
    assert ops.get("bp_ops::stock") is op


def test_an_operator_is_copied_and_saved_by_its_name(shifted):
    model = torch.nn.Identity()
    model.op = shifted
    assert copy.deepcopy(model).op is shifted
    assert pickle.loads(pickle.dumps(shifted)) is shifted


def test_A20_an_operator_defined_anew_elsewhere_is_found_anew(x):
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


def test_A21_a_tag_that_was_given_stands(made):
    tags = (torch.Tag.needs_fixed_stride_order,)
    op = made(ops.custom_op("bp_ops::a21", shift, mutates_args=(), tags=tags))
    assert torch._library.utils.get_layout_constraint_tag(op.overload) == tags[0]
    without = made(ops.custom_op("bp_ops::without", shift, mutates_args=()))
    assert without.overload.tags == [torch.Tag.pt2_compliant_tag]
    assert torch._library.utils.get_layout_constraint_tag(without.overload) == torch.Tag.needs_exact_strides
    with pytest.raises(ValueError, match="two answers"):
        ops.custom_op("bp_ops::a21", shift, mutates_args=(), tags=tags, strides="any")
    with pytest.raises(ValueError, match="is none of 'exact', 'order'"):
        ops.custom_op("bp_ops::a21", shift, mutates_args=(), strides="fixed")


# Several devices


def test_C64_kernels_of_several_devices_and_one_added_later(made, x):
    op = made(ops.custom_op("bp_ops::c64", shift, mutates_args=(), device_types="cpu"))
    with ops.strict():
        op.register_kernel(None, lambda x, by=1.0: x - by)
    assert torch.equal(op(x), x - 1)
    assert torch.equal(op(x.cpu()), x.cpu() + 1)


def test_C65_a_default_serves_until_the_device_has_its_own(made, x):
    op = made(ops.custom_op("bp_ops::c65", shift, mutates_args=(), device_types="default"))
    assert torch.equal(op(x), x + 1)
    assert fallback.calls().get("bp_ops::c65") is None
    with ops.strict():
        op.register_kernel(None, lambda x, by=1.0: x - by)
    assert torch.equal(op(x), x - 1)
    assert torch.equal(op(x.cpu()), x.cpu() + 1)


@pytest.mark.parametrize("types", ["name", "PrivateUse1", ("cpu", "name"), "default", "library", "decorator"])
def test_C66_torchs_impl_takes_device_key_tuple_and_default(name, x, types):
    with torch.library._scoped_library("bp_c66", "FRAGMENT") as library:
        library.define("f(Tensor x) -> Tensor")
        if types == "library":
            library.impl("f", lambda x: x + 1, "PrivateUse1")
        elif types == "decorator":
            torch.library.impl("bp_c66::f", name, lib=library)(lambda x: x + 1)
        else:
            types = tuple(one.replace("name", name) for one in types) if isinstance(types, tuple) else types
            torch.library.impl("bp_c66::f", name if types == "name" else types, lambda x: x + 1, lib=library)
        assert torch.equal(torch.ops.bp_c66.f(x), x + 1)


@pytest.mark.parametrize("types", ["name", ["cpu", "name"], "default", None])
def test_C66_ours_takes_the_same(made, name, x, types):
    op = empty_operator(made)
    given = [one.replace("name", name) for one in types] if isinstance(types, list) else types
    op.register_kernel(name if given == "name" else given)(lambda x: x + 1)
    assert torch.equal(op(x), x + 1)
    if types not in ("name", None):
        assert torch.equal(op(x.cpu()), x.cpu() + 1)


def test_C69_a_switched_off_kernel_leaves_the_default(made, name, x):
    op = made(ops.custom_op("bp_ops::c69", shift, mutates_args=(), device_types="default"))
    op.register_kernel(None, lambda x, by=1.0: x - by)
    with op.set_kernel_enabled(name, False):
        assert torch.equal(op(x), x + 1)
        with op.set_kernel_enabled(name, True):
            assert torch.equal(op(x), x - 1)
        assert torch.equal(op(x), x + 1)
        with pytest.warns(ops.OperatorWarning):
            op.register_kernel(None, lambda x, by=1.0: x - 7)
        assert torch.equal(op(x), x + 1)  # what is registered meanwhile is off, too
    assert torch.equal(op(x), x - 7)


def test_C69_what_is_registered_meanwhile_is_off_for_an_operator_of_a_library_too(made, name, x):
    op = empty_operator(made)
    op.register_kernel("default", lambda x: x + 1)
    op.register_kernel(name, lambda x: x + 2)
    with op.set_kernel_enabled(name, False):
        with pytest.warns(ops.OperatorWarning):
            op.register_kernel(name, lambda x: x + 3)
        assert torch.equal(op(x), x + 1)
    assert torch.equal(op(x), x + 3)


def test_C69_without_a_default_the_cpu_computes(shifted, name, x):
    shifted.reference(lambda x, by=1.0: x + 50)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with shifted.set_kernel_enabled(enabled=False):
            fallback.reset_calls()
            assert torch.equal(shifted(x), x + 50)
            assert fallback.calls()["bp_ops::shift"] == 1
            with fallback.policy("error"), pytest.raises(NotImplementedError, match=f"on {name}"):
                shifted(x)
    assert torch.equal(shifted(x), x + 1)
    with pytest.raises(ValueError, match="no kernel for cuda to switch"), shifted.set_kernel_enabled("cuda", False):
        pass


def test_tracing_finds_a_kernel_that_came_later(made, x):
    """The dispatcher of tracing keeps what it found first, here the kernel for every device."""
    op = made(ops.custom_op("bp_ops::later", shift, mutates_args=(), device_types="default"))
    with enable_python_dispatcher():
        assert torch.equal(op(x).cpu(), x.cpu() + 1)
    op.register_kernel(None, lambda x, by=1.0: x - by)
    with enable_python_dispatcher():
        assert torch.equal(op(x).cpu(), x.cpu() - 1)
