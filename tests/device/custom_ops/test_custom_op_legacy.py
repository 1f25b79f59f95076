"""Operators made by torch's older APIs, on the device: what works, and the errors of what does not."""

import pytest
import torch
from torch import Tensor, _custom_ops

pytestmark = [pytest.mark.once, pytest.mark.filterwarnings("ignore:torch._custom_op is deprecated")]

NAMESPACE = "bp_test_legacy"


@pytest.fixture
def legacy(backend_package, device):
    """``legacy(name, schema, kernel)``: an op of the legacy API, with a kernel for the device; its packet."""
    from torch._custom_op.impl import global_registry

    library = torch.library.Library(NAMESPACE, "IMPL")
    made = []

    def make(name, schema, kernel):
        _custom_ops.custom_op(f"{NAMESPACE}::{name}", schema)
        made.append(f"{NAMESPACE}::{name}")
        library.impl(name, kernel, "PrivateUse1")
        return getattr(getattr(torch.ops, NAMESPACE), name)

    yield make
    library._destroy()
    for name in made:
        global_registry[name]._destroy()


@pytest.fixture
def leaf(device):
    return lambda: torch.arange(1.0, 4, device=device).requires_grad_()


@pytest.fixture
def total(legacy):
    return legacy("total", "(Tensor[] xs, Tensor y, float n) -> Tensor", lambda xs, y, n: (sum(xs) + y) * n)


@pytest.mark.parametrize("where", ["tensor", "list"])
def test_C55_without_a_formula_forward_raises_if_a_gradient_is_required(total, leaf, where):
    x, plain = leaf(), leaf().detach()
    arguments = ([plain, plain], x, 2.0) if where == "tensor" else ([plain, x], plain, 2.0)
    with pytest.raises(RuntimeError, match="Autograd has not been implemented for operator"):
        total(*arguments)
    with torch.no_grad():
        assert total(*arguments).tolist() == [6, 12, 18]
    assert total([plain, plain], plain, 2.0).tolist() == [6, 12, 18]


@pytest.fixture
def answered(total):
    """``answered(answer)``: gives the op a formula whose backward returns ``answer(gradient)``."""

    def set_answer(answer, save=True):
        if save:
            _custom_ops.impl_save_for_backward(f"{NAMESPACE}::total")(lambda inputs, output: inputs.n)
        _custom_ops.impl_backward(f"{NAMESPACE}::total")(lambda ctx, n, grad: answer(grad * n))

    return set_answer


def test_A17_C58_a_formula_in_two_parts_whose_dictionary_is_right_gives_the_gradients(total, answered, leaf):
    x, unused, y = leaf(), leaf(), leaf()
    _custom_ops.impl_save_for_backward(f"{NAMESPACE}::total")(lambda inputs, output: inputs.n)
    with pytest.raises(RuntimeError, match="backward"):
        total([x, unused], y, 2.0)
    answered(lambda grad: {"xs": [grad, None], "y": grad * 10}, save=False)
    total([x, unused], y, 2.0).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    assert unused.grad is None
    assert y.grad.tolist() == [20, 20, 20]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda grad: grad, "to be a dict"),
        (lambda grad: {"y": grad}, "to have keys"),
        (lambda grad: {"xs": [None, None], "y": None, "n": None}, "to have keys"),
        (lambda grad: {"xs": [None, None], "y": 1.0}, "either None or a Tensor"),
        (lambda grad: {"xs": grad, "y": None}, "hold a list of gradients"),
        (lambda grad: {"xs": [grad], "y": None}, "hold a list of 2 gradients but got 1"),
        (lambda grad: {"xs": [grad, 1], "y": None}, "list of None or Tensor gradients"),
    ],
)
def test_C58_a_wrong_dictionary_is_refused_with_the_place_of_the_formula(total, answered, leaf, answer, reason):
    answered(answer)
    with pytest.raises(RuntimeError, match=reason) as caught:
        total([leaf(), leaf()], leaf(), 2.0).sum().backward()
    assert __file__ in str(caught.value)


def test_C68_the_decorators_of_a_library_define_a_composite_that_runs_on_the_device(backend_package, device):
    with torch.library._scoped_library(NAMESPACE, "FRAGMENT") as library:

        @torch.library.define(library, "shift(Tensor x) -> Tensor")
        def shift(x: Tensor) -> Tensor:
            return x * 3 + 1

        op = torch.ops.bp_test_legacy.shift
        x = torch.ones(2, device=device, requires_grad=True)
        assert op(x).tolist() == [4, 4]
        op(x).sum().backward()  # composite: differentiable by its parts
        assert x.grad.tolist() == [3, 3]
        assert shift(torch.ones(2)).tolist() == op(torch.ones(2)).tolist() == [4, 4]

        @torch.library.impl(library, "shift", "PrivateUse1")
        def _(x):
            return x - 1

        assert op(x.detach()).tolist() == [0, 0]
        assert op(torch.ones(2)).tolist() == [4, 4]
