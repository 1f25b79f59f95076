"""torch_backplane.ops: kernels of operators, for several devices, one for another, switched off, and missing."""

import warnings

import pytest
import torch
from torch import Tensor
from torch._dispatch.python import enable_python_dispatcher

from torch_backplane import _backend, fallback, ops

pytestmark = pytest.mark.once


def shift(x: Tensor, by: float = 1.0) -> Tensor:
    return x + by


def lambda_of(by):
    def function(x: Tensor) -> Tensor:
        return x + by

    return function


def empty_operator(made, name="bp_ops::empty", text="(Tensor x) -> Tensor"):
    """An operator that has no kernel: defined by a library, which the returned object does not own."""
    library = torch.library.Library(name.partition("::")[0], "FRAGMENT")
    library.define(name.partition("::")[2] + text)
    op = ops.get(name)
    made(type("Library", (), {"destroy": lambda self: (op.destroy(), library._destroy())})())
    return op


# Kernels


def test_overriding_one_devices_kernel_changes_only_that_device(made, name, x):
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


def test_A10_loading_a_module_again_replaces_silently(x, load_module):
    load_module(MODULE.format(number=1))
    with ops.strict():
        module = load_module(MODULE.format(number=23))
    try:
        assert torch.equal(module.reloaded(x), x + 23)
        assert torch.equal(module.reloaded(x.cpu()), x.cpu() + 23)
    finally:
        module.reloaded.destroy()


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


# Several devices


@pytest.mark.parametrize("types", ["cpu", "default"])
def test_C64_C65_a_kernel_of_the_cpu_or_of_all_devices_and_one_added_later(made, x, types):
    op = made(ops.custom_op("bp_ops::c64", shift, mutates_args=(), device_types=types))
    fallback.reset_calls()
    assert torch.equal(op(x), x + 1)
    assert fallback.calls().get("bp_ops::c64", 0) == (types == "cpu")
    with ops.strict():
        op.register_kernel(None, lambda x, by=1.0: x - by)
    assert torch.equal(op(x), x - 1)
    assert torch.equal(op(x.cpu()), x.cpu() + 1)


@pytest.mark.parametrize("types", ["name", "PrivateUse1", ("cpu", "name"), "default", "library", "decorator"])
def test_C66_torchs_impl_accepts_device_key_tuple_and_default(name, x, types):
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


@pytest.mark.parametrize("types", ["name", ["cpu", "name", "cpu"], "default", None])
def test_A08_C66_ours_accepts_the_same(made, name, x, types):
    op = empty_operator(made)
    given = [one.replace("name", name) for one in types] if isinstance(types, list) else types
    op.register_kernel(name if given == "name" else given)(lambda x: x + 1)
    assert torch.equal(op(x), x + 1)
    if types not in ("name", None):
        assert torch.equal(op(x.cpu()), x.cpu() + 1)


@pytest.mark.parametrize("definition", ["python", "library"])
def test_C69_a_disabled_kernel_leaves_the_default_also_one_that_is_registered_meanwhile(made, name, x, definition):
    if definition == "python":
        op = made(ops.custom_op("bp_ops::c69", lambda_of(1), mutates_args=(), device_types="default"))
    else:
        op = empty_operator(made)
        op.register_kernel("default", lambda_of(1))
    op.register_kernel(name, lambda_of(-1))
    with op.set_kernel_enabled(name, False):
        assert torch.equal(op(x), x + 1)
        with op.set_kernel_enabled(name, True):
            assert torch.equal(op(x), x - 1)
        assert torch.equal(op(x), x + 1)
        with pytest.warns(ops.OperatorWarning):
            op.register_kernel(name, lambda_of(-7))
        assert torch.equal(op(x), x + 1)
    assert torch.equal(op(x), x - 7)


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
    """The dispatcher of tracing caches its first lookup, here the kernel for every device."""
    op = made(ops.custom_op("bp_ops::later", shift, mutates_args=(), device_types="default"))
    with enable_python_dispatcher():
        assert torch.equal(op(x).cpu(), x.cpu() + 1)
    op.register_kernel(None, lambda x, by=1.0: x - by)
    with enable_python_dispatcher():
        assert torch.equal(op(x).cpu(), x.cpu() - 1)


# What is missing


def test_A18_the_error_of_an_operator_without_a_kernel_has_the_line_to_add(made, shifted, name, x):
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


def test_C18_C19_no_kernel_no_fake_and_no_tensor_raise_different_errors(made, name, x):
    @ops.custom_op("bp_ops::c18", mutates_args=(), device_types="cpu")
    def c18(x: list[Tensor]) -> Tensor:
        return x[0] + 1

    made(c18)
    with fallback.policy("cpu"):
        assert torch.equal(c18([x]), x + 1)  # by the reference
    with fallback.policy("error"), pytest.raises(NotImplementedError) as error:
        c18([x])
    assert f"bp_ops::c18 has no kernel for Float on {name}" in str(error.value)
    assert f'torch_backplane.ops.get("bp_ops::c18").register_kernel("{name}", function)' in str(error.value)
    with pytest.raises(RuntimeError, match="no fake impl registered"):
        c18([x.to("meta")])
    with pytest.raises(NotImplementedError, match=r"c18 got no tensor \(an empty list\?\)"):
        c18([])


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
