"""torch_backplane.kernel: kernels written in Python, checked when they are registered."""

import gc
import importlib
import re

import pytest
import torch

import torch_backplane
from torch_backplane import fallback
from torch_backplane.ops import kernels

OP = "aten::erfinv"  # an operator that no backend of the tests has a kernel for


def erfinv(self):
    return self + 100


@pytest.fixture
def x(device):
    return torch.linspace(-0.9, 0.9, 5).to(device)


def test_a_decorated_function_is_the_devices_kernel_until_it_is_removed(x, kernel_calls):
    calls = kernel_calls("erfinv") if kernels.calls(OP) is not None else 0

    @torch_backplane.kernel(OP)
    def mine(self):
        return self + 100

    fallback.reset_calls()
    assert torch.equal(x.erfinv(), x + 100)
    assert torch.equal(mine(x), x + 100)  # the function is still one
    assert f"{OP}.out" not in fallback.calls()
    assert kernel_calls("erfinv") == calls + 1
    assert mine.registration.active
    assert mine.registration.site == f"{__file__}:{mine.__code__.co_firstlineno}"
    mine.registration.remove()
    mine.registration.remove()
    assert not mine.registration.active
    torch.testing.assert_close(x.erfinv().cpu(), x.cpu().erfinv())
    assert kernel_calls("erfinv") == calls + 1


def test_a_registration_is_a_context_manager(x):
    with torch_backplane.kernel(OP, erfinv) as registration:
        assert torch.equal(x.erfinv(), x + 100)
        assert registration.op == OP
    assert not torch.equal(x.erfinv(), x + 100)


def test_it_stays_without_a_reference_to_it(x):
    torch_backplane.kernel(OP, erfinv)
    gc.collect()
    try:
        assert torch.equal(x.erfinv(), x + 100)
    finally:
        kernels._active[OP][-1].remove()


def test_arguments_are_passed_as_in_the_schema(x):
    seen = []

    def gelu(self, *, approximate="none"):
        seen.append(approximate)
        return self.clone()

    with torch_backplane.kernel("aten::gelu", gelu, override=True):
        torch.nn.functional.gelu(x)
        torch.nn.functional.gelu(x, approximate="tanh")
    assert seen == ["none", "tanh"]
    with torch_backplane.kernel("aten::gelu", lambda *args, **kwargs: args[0] + 1, override=True):
        assert torch.equal(torch.nn.functional.gelu(x), x + 1)


def test_calls_that_a_kernel_does_not_support_go_to_the_cpu(x, kernel_calls):
    def mine(self):
        return self + 100 if self.dtype == torch.float32 else NotImplemented

    double = x.double()
    with torch_backplane.kernel(OP, mine):
        before = kernel_calls("erfinv")
        fallback.reset_calls()
        assert torch.equal(x.erfinv(), x + 100)
        torch.testing.assert_close(double.erfinv().cpu(), double.cpu().erfinv())
        assert kernel_calls("erfinv") == before + 1
        assert fallback.calls()[f"{OP}.out"] == 1  # torch makes the operator from that one
        with fallback.policy("error"), pytest.raises(NotImplementedError, match=OP):
            double.erfinv()


def test_a_kernel_with_several_results_or_keywords_can_decline(x):
    with torch_backplane.kernel("aten::frexp.Tensor", lambda self: NotImplemented):
        for mine, cpu in zip(torch.frexp(x), torch.frexp(x.cpu()), strict=True):
            assert mine.device == x.device
            assert torch.equal(mine.cpu(), cpu)
    with torch_backplane.kernel("aten::gelu", lambda self, *, approximate="none": NotImplemented, override=True):
        result = torch.nn.functional.gelu(x, approximate="tanh")
    torch.testing.assert_close(result.cpu(), torch.nn.functional.gelu(x.cpu(), approximate="tanh"))


def test_torchs_own_formula_gives_the_gradient_and_takes_no_other(x):
    leaf = x.clone().requires_grad_()
    with torch_backplane.kernel(OP, lambda self: self.cpu().erfinv().to(self.device)):
        leaf.erfinv().sum().backward()
    expected = x.cpu().requires_grad_()
    expected.erfinv().sum().backward()
    torch.testing.assert_close(leaf.grad.cpu(), expected.grad)
    with pytest.raises(ValueError, match="leave out backward="):
        torch_backplane.kernel(OP, erfinv, backward=lambda ctx, gradient: gradient)


@pytest.mark.parametrize(
    ("op", "nearest"),
    [
        ("aten::erfinw", "aten::erfinv"),
        ("aten::add", "aten::add.Tensor"),
        ("aten::add.Tensors", "aten::add.Tensor"),
        ("erfinv", "aten::erfinv"),
        ("nothing at all", "the form is aten::name"),
    ],
)
def test_an_operator_that_does_not_exist_is_refused_with_the_nearest(op, nearest):
    with pytest.raises(ValueError, match=f"no operator '{op}'.*{nearest}"):
        torch_backplane.kernel(op, erfinv)


@pytest.mark.parametrize(
    ("function", "difference"),
    [
        (lambda input, *, approximate="none": input, "argument 1 is 'input' and should be 'self'"),
        (lambda self: self, "'approximate' is missing"),
        (lambda self, *, approximate: self, "'approximate' has no default"),
        (lambda self, *, approximate="tanh": self, "the default 'tanh' and the schema's is 'none'"),
        (lambda self, *, approximate="none", more=1: self, "'more' is not in the schema"),
        (lambda: None, "'self' is missing"),
    ],
)
def test_a_signature_that_differs_is_refused_and_the_right_one_named(function, difference):
    with pytest.raises(TypeError, match=re.escape(difference)) as error:
        torch_backplane.kernel("aten::gelu", function, override=True)
    assert "(self, *, approximate='none')" in str(error.value)
    assert f"{__file__}:" in str(error.value)


def test_a_second_kernel_is_refused_naming_both(x):
    with torch_backplane.kernel(OP, erfinv) as first:
        second = lambda self: self - 1  # noqa: E731
        with pytest.raises(ValueError, match="already") as error:
            torch_backplane.kernel(OP, second)
        assert first.site in str(error.value)
        assert f"{__file__}:{second.__code__.co_firstlineno}" in str(error.value)
        with torch_backplane.kernel(OP, second, override=True):
            assert torch.equal(x.erfinv(), x - 1)
        assert torch.equal(x.erfinv(), x + 100)


def test_a_kernel_in_cpp_is_named_and_can_be_overridden_and_comes_back(x, recwarn):
    def mine(self, value):
        return self

    with pytest.raises(ValueError, match=r"already: it is at \S+\.cpp:\d+, and this one at \S+\.py:\d+"):
        torch_backplane.kernel("aten::fill_.Scalar", mine)
    with torch_backplane.kernel("aten::fill_.Scalar", mine, override=True):
        assert torch.equal(x.clone().fill_(3), x)
    assert x.clone().fill_(3).cpu().tolist() == [3.0] * 5
    assert [str(warning.message) for warning in recwarn] == []


def test_B15_a_composite_operator_would_lose_its_gradient_and_is_refused(x):
    with pytest.raises(ValueError, match="composite operator") as error:
        torch_backplane.kernel("aten::selu", lambda self: self.clone())
    assert "backward=" in str(error.value)
    leaf = x.clone().requires_grad_()
    torch.selu(leaf).sum().backward()
    assert leaf.grad is not None


def test_B15_with_a_formula_a_composite_operator_keeps_its_gradient(x):
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def backward(ctx, gradient):
        (saved,) = ctx.saved_tensors
        return gradient * saved * 3

    with torch_backplane.kernel("aten::selu", lambda self: self * 7, backward=backward, setup_context=setup_context):
        leaf = x.clone().requires_grad_()
        y = torch.selu(leaf)
        y.sum().backward()
        torch.testing.assert_close(y.detach(), x * 7)
        torch.testing.assert_close(leaf.grad, x * 3)
        cpu = x.cpu().requires_grad_()
        torch.selu(cpu).sum().backward()  # another device keeps torch's own
    torch.testing.assert_close(torch.selu(x).cpu(), torch.selu(x.cpu()))
    leaf = x.clone().requires_grad_()
    torch.selu(leaf).sum().backward()
    torch.testing.assert_close(leaf.grad.cpu(), cpu.grad)


def test_B15_no_kernel_of_the_sdk_cuts_off_a_composites_gradient(backend_package):
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    lost = [
        op
        for op in torch._C._dispatch_get_all_op_names()
        if has(op, "PrivateUse1") and has(op, "CompositeImplicitAutograd")
        if not has(op, "Autograd") and not has(op, "AutogradPrivateUse1")
        if "Tensor" in str(torch._C._get_schema(*op.partition(".")[::2])).rpartition("->")[2]
    ]
    assert lost == []


MODULE = """
import torch_backplane

@torch_backplane.kernel("aten::erfinv")
def erfinv(self):
    return self + {number}
"""


def test_loading_the_kernels_module_again_replaces_its_kernels(x, load_module):
    load_module(MODULE.format(number=1))
    assert torch.equal(x.erfinv(), x + 1)
    module = load_module(MODULE.format(number=23))
    assert torch.equal(x.erfinv(), x + 23)
    module.erfinv.registration.remove()
    assert not torch.equal(x.erfinv(), x + 23)


def test_kernels_survive_a_reload_of_the_runtime(x):
    registration = torch_backplane.kernel(OP, erfinv)
    try:
        importlib.reload(kernels)
        gc.collect()
        assert torch.equal(x.erfinv(), x + 100)
        with pytest.raises(ValueError, match="already"):
            torch_backplane.kernel(OP, lambda self: self)
    finally:
        registration.remove()


def test_D09_the_autograd_fallback_outlives_every_registration(x):
    """Only this fallback runs a custom op without a formula on tensors that require a gradient."""
    with torch.library._scoped_library("bp_test_d09", "DEF") as library:
        library.define("f(Tensor x) -> Tensor")
        library.impl("f", lambda x: x + 1, "PrivateUse1")
        leaf = x.clone().requires_grad_()

        def calls():
            return torch.equal(torch.ops.bp_test_d09.f(leaf), x + 1)

        formula = {"backward": lambda ctx, gradient: gradient, "setup_context": lambda ctx, inputs, output: None}
        with torch_backplane.kernel("aten::selu", lambda self: self.clone(), **formula):
            assert calls()
        gc.collect()
        assert calls()
        assert torch._C._dispatch_has_backend_fallback(torch._C.DispatchKey.AutogradPrivateUse1)
