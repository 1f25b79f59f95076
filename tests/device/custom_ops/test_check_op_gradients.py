"""torch_backplane.testing.check_op: gradients, by which formula and at which key. C25, C26, C28 and C31."""

import itertools

import pytest
import torch
from checked_operators import AOT, ONE, SQUARE, X, _Square, failing, square_setup

from torch_backplane.testing import check_op
from torch_backplane.testing.opchecks.check import OpCheckError

pytestmark = pytest.mark.once  # these operators are wrong on any kind of device


def test_a_backward_that_assumes_contiguous_gradients(operator):
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * torch.as_strided(grad, x.shape, x.stride())

    op = operator(ONE, **{**SQUARE, "formula": (backward, square_setup)})
    found = failing(op, [(X,)], test_utils="test_noncontiguous")
    assert "gradients" in found["test_noncontiguous"]
    assert "grad = grad.contiguous()" in found["test_noncontiguous"]


def test_gradients_are_checked_where_the_formula_has_one(operator):
    """Without requires_grad in the samples: those inputs that the backward returns a gradient for."""

    def setup(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    op = operator(
        "(Tensor x, Tensor scale) -> Tensor",
        kernel=lambda x, scale: x * scale,
        fake=lambda x, scale: torch.empty_like(x),
        formula=(lambda ctx, grad: (grad * ctx.saved_tensors[0], None), setup),
    )
    report = check_op(op, [(X, X + 1)], test_utils="test_gradcheck")
    assert report.untested == {}
    found = failing(op, [(X, (X + 1).requires_grad_())], test_utils="test_gradcheck")  # now it is required
    assert f'torch.library.register_autograd("{op.name}"' in found["test_gradcheck"]


def test_an_operator_without_a_formula(operator):
    op = operator(ONE, kernel=lambda x: x.detach() * 2, fake=torch.empty_like)
    report = check_op(op, [(X,)], test_utils="test_gradcheck")
    assert report.untested == {"test_gradcheck": "no input requires grad"}
    found = failing(op, [(X.clone().requires_grad_(),)], test_utils="test_gradcheck")
    assert "has no gradient formula" in found["test_gradcheck"]
    assert "return grad_of_x  # None where there is none" in found["test_gradcheck"]


def test_without_float64_on_the_device_the_cpu_is_differentiated(operator):
    def kernel(x):
        if x.dtype == torch.float64:
            raise TypeError("no float64")
        return x * x

    op = operator(ONE, **{**SQUARE, "on_device": kernel, "kernel": lambda x: x * x})
    op.on_device(kernel)
    assert failing(op, [(X,)], test_utils="test_gradcheck") == {}
    op = operator(ONE, **{**SQUARE, "formula": (lambda ctx, grad: grad, square_setup)})
    op.on_device(kernel)
    assert "Jacobian mismatch" in failing(op, [(X,)], test_utils="test_gradcheck")["test_gradcheck"]


def test_device_gradients_are_the_cpus(operator):
    """A formula that is right in float64 and wrong in what the device computes in."""

    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        wrong = x.device.type != "cpu" and x.dtype == torch.float32
        return (3 if wrong else 2) * x * grad

    op = operator(ONE, **{**SQUARE, "formula": (backward, square_setup)})
    assert "the device's gradients" in failing(op, [(X,)], test_utils="test_gradcheck")["test_gradcheck"]


# Rows of the contract.


def test_C25_inputs_that_require_grad(operator, device):
    """Torch's opcheck supports CPU, CUDA and XPU; ours the device."""
    op = operator(ONE, **SQUARE)
    x = X.to(device).requires_grad_()
    with pytest.raises(OpCheckError, match="NYI devices other than CPU/CUDA/XPU"):
        torch.library.opcheck(op.overload, (x,))
    assert check_op(op, [(x,)], test_utils="test_autograd_registration").untested == {}


def _at_autograd(op, x):
    class Redispatch(_Square):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            with torch._C._AutoDispatchBelowAutograd():
                return op.overload(x)

    return Redispatch.apply(x)


@pytest.mark.parametrize("key", ["Autograd", "AutogradPrivateUse1", "CompositeImplicitAutograd", None])
def test_C26_a_gradient_at_an_autograd_key_is_right_and_none_at_all(operator, key):
    op = operator(ONE)
    if key is None:
        op.kernel(lambda x: x.detach().clone())
    elif key == "CompositeImplicitAutograd":
        op.impl(lambda x: x * x, key)
    else:
        op.kernel(lambda x: x * x)
        op.fake(torch.empty_like)
        op.impl(lambda x: _at_autograd(op, x), key)
    assert failing(op, [(X.clone().requires_grad_(),)], test_utils="test_autograd_registration") == {}
    if key is not None:
        assert failing(op, [(X.clone().requires_grad_(),)], test_utils="test_gradcheck") == {}


@pytest.mark.parametrize(
    ("key", "kernel"), [("PrivateUse1", _Square.apply), ("CompositeExplicitAutograd", lambda x: x * x)]
)
def test_C26_a_gradient_below_is_wrong(operator, key, kernel):
    op = operator(ONE)
    op.impl(kernel, key)
    found = failing(op, [(X.clone().requires_grad_(),)], test_utils="test_autograd_registration")
    text = found["test_autograd_registration"]
    assert f"Registered are:\n  {key}: " in text
    assert f'torch.library.register_autograd("{op.name}", backward' in text
    assert "CompositeImplicitAutograd" in text


@pytest.mark.long_after_first
@pytest.mark.parametrize("utility", sorted(AOT))
def test_C28_results_and_gradients_under_aot(operator, device, utility):
    x = X.to(device).requires_grad_()
    op = operator(ONE, **SQUARE)
    assert torch.library.opcheck(op.overload, (x,), test_utils=utility) == {utility: "SUCCESS"}
    assert check_op(op, [(x,)], test_utils=utility).ok
    count = itertools.count(2)
    op = operator(ONE, **{**SQUARE, "formula": (lambda ctx, grad: grad * next(count), square_setup)})
    with pytest.raises(OpCheckError, match="Gradients of the operator are different"):
        check_op(op, [(x,)], test_utils=utility)


@pytest.mark.parametrize(
    ("function", "grad"),
    [(lambda x: x.detach() * 2, False), (lambda x: (x * 2, (x > 0)), True), (lambda x: x.argmax(), True)],
    ids=["detached", "one of two", "integers"],
)
def test_C31_degenerate_functions_pass_aot(device, function, grad):
    from torch.testing._internal.optests import aot_autograd_check

    aot_autograd_check(function, (X.to(device).requires_grad_(grad),), {}, dynamic=False, check_gradients="auto")
