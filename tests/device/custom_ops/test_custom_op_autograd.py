"""Gradients of a vendor's operators on the device: without a formula, refused formulas, lists, errors in backward."""

import pytest
import torch
from torch import Tensor
from torch._library.autograd import supports_tensorlist

NAMESPACE = "bp_test_autograd"


@pytest.fixture
def leaf(device):
    return lambda: torch.arange(1.0, 4, device=device).requires_grad_()


def test_C54_without_a_formula_backward_raises_and_names_the_operator(ops, leaf, device):
    def sine(x: Tensor) -> Tensor:
        return x.sin()

    op = ops.custom("sine", sine, device_types=device.type)
    x = leaf()
    y = op(x)
    torch.testing.assert_close(y.detach().cpu(), x.detach().cpu().sin())
    assert y.requires_grad
    with pytest.raises(RuntimeError, match=rf"backward through {NAMESPACE}.sine.default but no autograd formula"):
        y.sum().backward()
    assert x.grad is None


def test_C56_a_formula_on_a_mutating_or_viewing_operator_is_refused(ops):
    def mutates(x: Tensor) -> None:
        x.add_(1)

    def returns_nothing(x: Tensor) -> None: ...

    operators = [ops.custom("mutates", mutates, mutates_args=["x"]), ops.custom("nothing", returns_nothing)]
    for i, schema in enumerate(("(Tensor(a!) x) -> ()", "(Tensor(a) x) -> Tensor(a)", "(Tensor x) -> ()")):
        operators.append(ops.define(f"of_a_library_{i}{schema}"))
    for op in operators:
        with pytest.raises(RuntimeError, match="Cannot register autograd formula for non-functional operator"):
            torch.library.register_autograd(op, lambda ctx, grad: grad)


def test_C56_nor_one_tagged_out(ops):
    op = ops.define("f(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", tags=torch.Tag.out)
    with pytest.raises(RuntimeError, match="Out variants do not support autograd"):
        torch.library.register_autograd(op, lambda ctx, grad: grad)


def test_C56_a_custom_op_that_views_its_only_tensor_may_have_one(ops, leaf):
    op = ops.custom("tail", lambda x: x[1:], schema="(Tensor(a) x) -> Tensor(a)")
    op.register_autograd(lambda ctx, grad: torch.cat([grad.new_zeros(1), grad * 5]))
    x = leaf()
    op(x).sum().backward()
    assert x.grad.tolist() == [0, 5, 5]


@supports_tensorlist
class Scaled(torch.autograd.Function):
    """Each tensor of a list times a number, stacked."""

    @staticmethod
    def forward(ctx, tensors, factor, answer):
        ctx.factor, ctx.answer = factor, answer
        return torch.stack([tensor * factor for tensor in tensors])

    @staticmethod
    def backward(ctx, grad):
        return ctx.answer([part * ctx.factor for part in grad.unbind()]), None, None


def test_C57_a_list_gets_a_list_of_gradients_some_of_which_may_be_none(leaf):
    x, y, z = leaf(), leaf(), leaf()
    Scaled.apply([x, y], 2.0, list).sum().backward()
    assert x.grad.tolist() == y.grad.tolist() == [2, 2, 2]
    Scaled.apply([z, y], 2.0, lambda grads: [None, grads[1]]).sum().backward()
    assert z.grad is None
    assert y.grad.tolist() == [4, 4, 4]


@pytest.mark.parametrize(
    "answer",
    [lambda grads: grads[:1], lambda grads: [*grads, None], lambda grads: grads[0], lambda grads: [grads[0], 1.0]],
    ids=["short", "long", "a tensor", "a number"],
)
def test_C57_a_list_of_another_length_or_type_is_an_error(leaf, answer):
    with pytest.raises(RuntimeError, match="to be of the same structure as the inputs"):
        Scaled.apply([leaf(), leaf()], 2.0, answer).sum().backward()


def test_C57_repeated_and_nested_use(leaf):
    @supports_tensorlist
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, tensors):
            ctx.save_for_backward(*tensors)
            return [tensor * tensor for tensor in tensors]

        @staticmethod
        def backward(ctx, grads):
            inner = [tensor.detach().requires_grad_() for tensor in ctx.saved_tensors]
            with torch.enable_grad():
                Scaled.apply(inner, 2.0, list).sum().backward()
            return [grad * value.grad * value.detach() for grad, value in zip(grads, inner, strict=True)]

    x, y = leaf(), leaf()
    squares = Twice.apply([x, x, y])
    again = Twice.apply([squares[0], squares[2]])
    (again[0] + again[1] + squares[1]).sum().backward()
    values = torch.tensor([1.0, 2, 3])
    assert torch.equal(x.grad.cpu(), 4 * values**3 + 2 * values)
    assert torch.equal(y.grad.cpu(), 4 * values**3)


def test_C57_an_operator_with_a_list_on_the_device(ops, leaf, device):
    def total(tensors: list[Tensor], factor: float) -> Tensor:
        return torch.stack(tensors).sum(0) * factor

    def setup(ctx, inputs, output):
        ctx.count, ctx.factor = len(inputs[0]), inputs[1]

    op = ops.custom("total", total, device_types=device.type)
    op.register_autograd(lambda ctx, grad: ([grad * ctx.factor] * ctx.count, None), setup_context=setup)
    x, y = leaf(), leaf()
    op([x, y, x], 3.0).sum().backward()
    assert x.grad.tolist() == [6, 6, 6]
    assert y.grad.tolist() == [3, 3, 3]


def test_C60_a_formula_on_the_devices_autograd_key_leaves_the_cpu_alone(ops, leaf):
    ops.define("f(Tensor x) -> Tensor", CompositeExplicitAutograd=lambda x: x * 2)

    class Formula(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with torch._C._AutoDispatchBelowAutograd():
                return ops.f(x)

        @staticmethod
        def backward(ctx, grad):
            return grad * 10

    ops.library.impl("f", Formula.apply, "AutogradPrivateUse1")
    x, host = leaf(), leaf().detach().cpu().requires_grad_()
    y, on_host = ops.f(x), ops.f(host)
    assert torch.equal(y.detach().cpu(), on_host.detach())
    assert "Formula" in y.grad_fn.name()
    assert "Formula" not in on_host.grad_fn.name()
    y.sum().backward()
    assert x.grad.tolist() == [10, 10, 10]


@pytest.fixture
def fails_late(ops, device):
    def identity(x: Tensor) -> Tensor:
        return x.clone()

    def backward(ctx, grad):
        raise ArithmeticError("from the vendor's backward")

    op = ops.custom("fails_late", identity, device_types=device.type)
    op.register_autograd(backward)
    return op


def test_C63_an_error_in_backward_is_raised_when_backward_runs(fails_late, leaf):
    x = leaf()
    y = fails_late(x)
    with pytest.raises(ArithmeticError, match="from the vendor's backward"):
        y.sum().backward()
    assert x.grad is None
    assert (x.detach() * 2).tolist() == [2, 4, 6]  # the device stays usable


def test_C63_without_a_gradient_it_is_not_raised(fails_late, leaf):
    x, weight = leaf(), leaf()
    with torch.no_grad():
        fails_late(x)
    (fails_late(x.detach()) * weight).sum().backward()
    (grad,) = torch.autograd.grad((fails_late(x) * weight).sum(), weight)
    assert grad.tolist() == weight.grad.tolist() == [1, 2, 3]
