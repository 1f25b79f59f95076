"""The Python dispatcher, under which torch traces, on the device (B16-B18, B21)."""

import pytest
import torch
from torch._C import DispatchKey, DispatchKeySet
from torch._dispatch.python import enable_python_dispatcher
from torch._ops import HigherOrderOperator, key_extractor
from torch.utils._python_dispatch import TorchDispatchMode

import torch_backplane
from torch_backplane.ops import Library, guards

NS = "bp_test_python_dispatcher"
OPS = getattr(torch.ops, NS)

pytestmark = pytest.mark.once


@pytest.fixture
def op():
    with Library(NS, "FRAGMENT") as library:
        library.define("f(Tensor x) -> Tensor")
        library.impl("f", lambda x: x + 1, "PrivateUse1")
        yield OPS.f.default


def test_B16_an_override_acts_only_while_that_dispatcher_is_on(op, x):
    calls = []

    @op.py_impl(DispatchKey.PrivateUse1)
    def override(x):
        calls.append(x)
        return x + 10

    assert torch.equal(op(x), x + 1)
    with enable_python_dispatcher():
        assert torch.equal(op(x), x + 10)
        assert torch.equal(OPS.f(x), x + 10)
    assert torch.equal(op(x), x + 1)
    assert len(calls) == 2


def test_B16_what_is_registered_later_is_found(x):
    """torch's own library leaves the kernel that was found first; see test_library_lifetimes.py."""
    call = torch.ops.aten.selu.default
    formula = {"backward": lambda ctx, gradient: gradient, "setup_context": lambda ctx, inputs, output: None}
    with enable_python_dispatcher():
        before = call(x)
        with torch_backplane.kernel("aten::selu", lambda self: self + 7, **formula):
            assert torch.equal(call(x), x + 7)
        torch.testing.assert_close(call(x), before)
    torch.testing.assert_close(before.cpu(), torch.selu(x.cpu()))


class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_B17_an_override_can_be_bound_to_a_mode(op, x):
    seen = []

    @op.py_impl(Mode)
    def override(mode, x):
        seen.append(type(mode))
        return x + 20

    with enable_python_dispatcher():
        assert torch.equal(op(x), x + 1)
        with Mode():
            assert torch.equal(op(x), x + 20)
    assert seen == [Mode]


def test_B17_a_second_override_and_the_python_key_are_refused(op):
    op.py_impl(DispatchKey.PrivateUse1)(lambda x: x)
    with pytest.raises(RuntimeError, match=r"override a python impl for .*PrivateUse1"):
        op.py_impl(DispatchKey.PrivateUse1)(lambda x: x)
    op.py_impl(Mode)(lambda mode, x: x)
    with pytest.raises(AssertionError, match="already registered"):
        op.py_impl(Mode)(lambda mode, x: x)
    with pytest.raises(AssertionError, match="register a mode"):
        op.py_impl(DispatchKey.Python)(lambda x: x)


def test_B17_registering_one_clears_what_was_found_before(op, x):
    with enable_python_dispatcher():
        assert torch.equal(op(x), x + 1)
        assert op._dispatch_cache
        op.py_impl(DispatchKey.PrivateUse1)(lambda x: x + 30)
        assert not op._dispatch_cache
        assert torch.equal(op(x), x + 30)


@pytest.fixture
def twice():
    """A higher-order operator that applies a function twice."""

    class Twice(HigherOrderOperator):
        def __call__(self, f, x):
            return super().__call__(f, x)

    made = Twice(f"{NS}_twice")
    yield made
    del torch._ops._higher_order_ops[f"{NS}_twice"]


def test_B18_one_rule_serves_key_functorch_and_mode(twice, x):
    from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode

    contexts = []

    def plain(f, x):
        return f(f(x))

    twice.py_impl(DispatchKey.PrivateUse1)(plain)
    twice.py_autograd_impl(plain)

    @twice.py_functionalize_impl
    def rule(ctx, f, x):
        contexts.append(type(ctx).__name__)
        (unwrapped,) = ctx.unwrap_tensors((x,))
        with ctx.redispatch_to_next():
            return ctx.wrap_tensors(twice(ctx.functionalize(f), unwrapped))

    def program(x):
        y = x.clone()
        y[1:].mul_(2)
        return twice(lambda t: t.clone().add_(1), y)

    expected = program(x)
    found = [torch.func.functionalize(program)(x)]  # functorch
    wrapped = torch._to_functional_tensor(x)  # the key
    torch._enable_functionalization(reapply_views=False)
    try:
        result = program(wrapped)
        torch._sync(result)
    finally:
        torch._disable_functionalization()
    found.append(torch._from_functional_tensor(result))
    with FunctionalTensorMode():  # the mode
        found.append(program(FunctionalTensor.to_functional(x)).from_functional())
    for result in found:
        assert torch.equal(result, expected)
    assert contexts == ["FunctorchFunctionalizeAPI", "CppFunctionalizeAPI", "PythonFunctionalizeAPI"]


def test_B21_keys_come_from_the_tensors_and_the_threads_sets(x):
    everything = torch._C._dispatch_keyset_full()
    found = key_extractor((x, x.cpu()), everything)
    for key in ("PrivateUse1", "AutogradPrivateUse1", "CPU", "AutogradCPU", "ADInplaceOrView"):
        assert found.has(getattr(DispatchKey, key))
    assert found.highestPriorityTypeId() == DispatchKey.AutogradPrivateUse1  # the accelerator before the CPU
    assert not found.has(DispatchKey.AutocastPrivateUse1)  # excluded while autocast is off
    with torch.autocast(x.device.type):
        assert key_extractor((x,), everything).highestPriorityTypeId() == DispatchKey.AutocastPrivateUse1
    with guards.below_adinplaceorview():
        assert key_extractor((x,), everything).highestPriorityTypeId() == DispatchKey.BackendSelect
    masked = key_extractor((x,), DispatchKeySet(DispatchKey.PrivateUse1))
    assert masked == DispatchKeySet(DispatchKey.PrivateUse1)
    with guards.include("Functionalize"):
        assert key_extractor((), everything).has(DispatchKey.Functionalize)
