"""torch_backplane.ops: gradients of operators on the device."""

import pytest
import torch
from torch import Tensor

from torch_backplane import ops

pytestmark = pytest.mark.once


@pytest.fixture
def leaf(device):
    return torch.linspace(-2, 2, 5).to(device).requires_grad_()


@pytest.fixture
def sine(made):
    """An operator with a formula."""

    @ops.custom_op("bp_grad::sine", mutates_args=())
    def sine(x: Tensor) -> Tensor:
        return x.sin()

    sine.register_autograd(backward, setup_context=save_input)
    return made(sine)


def backward(ctx, gradient):
    (x,) = ctx.saved_tensors
    return gradient * x.cos()


def save_input(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


def gradient_of(function, leaf):
    (gradient,) = torch.autograd.grad(function(leaf).sum(), leaf)
    return gradient


@pytest.mark.parametrize("form", ["op", "name", "overload", "definition", "library"])
def test_C50_C51_a_formula_by_object_name_overload_and_library(made, leaf, form):
    with torch.library._scoped_library("bp_grad", "FRAGMENT") as library:
        formula = {"setup_context": save_input}
        if form == "library":
            library.define("c51(Tensor x) -> Tensor")
            library.impl("c51", torch.sin, "PrivateUse1")
            torch.library.register_autograd("bp_grad::c51", backward, lib=library, **formula)
        else:
            op = made(ops.custom_op("bp_grad::c51", sine_of, mutates_args=()))
            if form == "op":
                op.register_autograd(backward, **formula)
            else:
                targets = {"name": op.name, "overload": op.overload, "definition": op._definition}
                torch.library.register_autograd(targets[form], backward, **formula)
        y = torch.ops.bp_grad.c51(leaf)
        torch.testing.assert_close(y.detach(), leaf.detach().sin())
        y.sum().backward()
        torch.testing.assert_close(leaf.grad, leaf.detach().cos())


def sine_of(x: Tensor) -> Tensor:
    return x.sin()


def test_C51_ours_supports_an_operator_of_a_library(leaf):
    with torch.library._scoped_library("bp_grad", "FRAGMENT") as library:
        library.define("lib(Tensor x) -> Tensor")
        op = ops.get("bp_grad::lib")
        with ops.strict():
            op.register_kernel(None, torch.sin)
            op.register_fake(torch.empty_like)
            op.register_autograd(backward, setup_context=save_input)
        torch.testing.assert_close(gradient_of(torch.ops.bp_grad.lib, leaf), leaf.detach().cos())
        op.destroy()


def test_C52_the_context_is_set_up_only_if_a_gradient_is_required(made, leaf):
    count = [0]

    def counting(ctx, inputs, output):
        count[0] += 1
        save_input(ctx, inputs, output)

    op = made(ops.custom_op("bp_grad::c52", sine_of, mutates_args=()))
    op.register_autograd(backward, setup_context=counting)
    with torch.no_grad():
        op(leaf)
    op(leaf.detach())
    assert count == [0]
    op(leaf)
    assert count == [1]


def test_C53_keyword_only_inputs_and_defaults_reach_the_context(made, leaf):
    seen = []

    @ops.custom_op("bp_grad::c53", mutates_args=())
    def c53(x: Tensor, n: int = 3, *, y: float, z: float = 2.0) -> Tensor:
        return x * y * z * n

    def setup_context(ctx, inputs, keyword_only_inputs, output):
        seen.append((inputs[1:], keyword_only_inputs))
        ctx.factor = inputs[1] * keyword_only_inputs["y"] * keyword_only_inputs["z"]

    made(c53).register_autograd(lambda ctx, gradient: (gradient * ctx.factor, None), setup_context=setup_context)
    assert torch.equal(gradient_of(lambda x: c53(x, y=5.0), leaf), torch.full_like(leaf, 30))
    assert seen == [((3,), {"y": 5.0, "z": 2.0})]


def two_outputs(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * 3, x * 5


@pytest.mark.parametrize("marked", [(True, False), [False, True], (True, True), None])
def test_C59_outputs_are_marked_as_not_differentiable(made, leaf, marked):
    op = made(ops.custom_op("bp_grad::c59", two_outputs, mutates_args=()))
    op.register_autograd(lambda ctx, a, b: a * 3 + b * 5, output_differentiability=marked)
    outputs = op(leaf)
    assert [output.requires_grad for output in outputs] == list(marked or (True, True))
    next(output for output in outputs if output.requires_grad).sum().backward()
    assert torch.equal(leaf.grad, torch.full_like(leaf, 3.0 if outputs[0].requires_grad else 5.0))


def test_C59_also_a_list_and_with_a_context(made, leaf):
    @ops.custom_op("bp_grad::listed", mutates_args=())
    def listed(x: Tensor) -> tuple[Tensor, list[Tensor]]:
        return x.sin(), [x * 1, x * 2]

    def formula(ctx, gradient, others):
        return backward(ctx, gradient)

    made(listed).register_autograd(formula, setup_context=save_input, output_differentiability=[True, False])
    y, others = listed(leaf)
    assert [t.requires_grad for t in (y, *others)] == [True, False, False]
    y.sum().backward()
    torch.testing.assert_close(leaf.grad, leaf.detach().cos())


def test_C59_what_does_not_fit_is_refused(made):
    @ops.custom_op("bp_grad::mixed", mutates_args=())
    def mixed(x: Tensor) -> tuple[Tensor, int]:
        return x * 3, 1

    made(mixed)
    for wrong, error, text in [
        ([True], ValueError, "has 1 values, and the operator 2 outputs"),
        ([True, False], ValueError, "output 1 of bp_grad::mixed is int, which has no gradient"),
        ([1, 0], TypeError, "a list of bools, and not"),
        (True, TypeError, "a list of bools, and not True"),
    ]:
        with pytest.raises(error, match=text):
            mixed.register_autograd(lambda ctx, a, b: a, output_differentiability=wrong)


def test_C61_a_kernel_without_a_formula_can_be_made_an_error(leaf):
    with torch.library._scoped_library("bp_grad", "FRAGMENT") as library:
        library.define("none(Tensor x) -> Tensor")
        library.impl("none", lambda x: x.detach() * 2, "PrivateUse1")
        with pytest.warns(UserWarning, match="an autograd kernel was not registered"):
            torch.ops.bp_grad.none(leaf).sum().backward()
        assert leaf.grad is None  # the silent failure
        with ops.strict(), pytest.raises(UserWarning, match="bp_grad::none: an autograd kernel was not registered"):
            torch.ops.bp_grad.none(leaf).sum().backward()
        with ops.strict(), torch.no_grad():
            torch.ops.bp_grad.none(leaf)


# Which operators may have a formula, or a fake


def test_A14_a_fake_is_refused_over_another_where_overriding_is_off(made, leaf):
    library = torch.library.Library("bp_grad", "FRAGMENT")
    try:
        for kind in ("meta", "implicit", "explicit"):
            library.define(f"{kind}(Tensor x) -> Tensor")
        library.impl("meta", torch.empty_like, "Meta")
        library.impl("implicit", torch.sin, "CompositeImplicitAutograd")
        library.impl("explicit", torch.sin, "CompositeExplicitAutograd")
        fake = lambda x: x.new_empty(x.shape)  # noqa: E731
        for kind in ("meta", "implicit"):
            with pytest.raises(RuntimeError, match="already has"):
                made(ops.get(f"bp_grad::{kind}")).register_fake(fake, allow_override=False)
        made(ops.get("bp_grad::explicit")).register_fake(fake, allow_override=False)
        ops.get("bp_grad::meta").register_fake(fake)
    finally:
        for kind in ("meta", "implicit", "explicit"):
            ops.get(f"bp_grad::{kind}").destroy()
        library._destroy()


def test_A14_over_the_fake_of_a_custom_op_too(sine):
    sine.register_fake(torch.empty_like, allow_override=False)
    with pytest.raises(RuntimeError, match="bp_grad::sine has a fake already: it is at "):
        sine.register_fake(lambda x: x.new_empty(x.shape), allow_override=False)
    sine.register_fake(lambda x: x.new_empty(x.shape))


def test_A15_a_formula_only_for_operators_that_can_have_one(made):
    @ops.custom_op("bp_grad::writes", mutates_args={"x"})
    def writes(x: Tensor) -> Tensor:
        return x.add_(1).clone()

    with pytest.raises(RuntimeError, match="non-functional operator"):
        made(writes).register_autograd(backward, setup_context=save_input)


def test_A16_a_formula_over_the_devices_autograd_kernel_is_refused(made):
    op = made(ops.custom_op("bp_grad::a16", sine_of, mutates_args=()))
    with torch.library._scoped_library("bp_grad", "IMPL") as library:
        library.impl("a16", torch.library.fallthrough_kernel, "AutogradPrivateUse1")
        with pytest.raises(ValueError, match=r"a16 has an autograd kernel for \w+ already, registered at \S+"):
            op.register_autograd(backward, setup_context=save_input)
    op.register_autograd(backward, setup_context=save_input)


def test_A16_a_formula_over_one_of_cpp_is_refused():
    with pytest.raises(ValueError, match=r"aten::gelu has an autograd kernel under AutogradCPU already|under Autograd"):
        ops.get("aten::gelu").register_autograd(backward)


def test_a_second_formula_replaces_the_first_with_a_warning(sine, leaf):
    with pytest.raises(ops.OperatorWarning, match="has a formula"), ops.strict():
        sine.register_autograd(lambda ctx, gradient: gradient)
    with pytest.warns(ops.OperatorWarning, match=r"it is at \S+:\d+, and the one at \S+:\d+ takes its place"):
        sine.register_autograd(lambda ctx, gradient: gradient * 7)
    assert torch.equal(gradient_of(sine, leaf), torch.full_like(leaf, 7))


def test_a_context_with_other_parameters_is_refused(sine):
    with pytest.raises(TypeError, match=r"Write: def setup_context\(ctx, inputs, output\)"):
        sine.register_autograd(backward, setup_context=lambda ctx, x, result: None)


def test_a_formula_works_compiled(sine, leaf):
    sine.register_fake(torch.empty_like)
    compiled = torch.compile(lambda x: sine(x) * 2, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(gradient_of(compiled, leaf), leaf.detach().cos() * 2)


def test_B15_a_kernel_that_would_cut_off_a_composites_gradient_is_refused(leaf):
    with torch.library._scoped_library("bp_grad", "FRAGMENT") as library:
        library.define("composite(Tensor x) -> Tensor")
        library.impl("composite", lambda x: x.sin(), "CompositeImplicitAutograd")
        op = ops.get("bp_grad::composite")
        with pytest.raises(ValueError, match=r"is a composite operator: .* Register the formula first"):
            op.register_kernel(None, torch.sin)
        torch.testing.assert_close(gradient_of(op, leaf), leaf.detach().cos())
        op.register_autograd(backward, setup_context=save_input)
        op.register_kernel(None, lambda x: x.sin() + 1)
        torch.testing.assert_close(op(leaf).detach(), leaf.detach().sin() + 1)
        torch.testing.assert_close(gradient_of(op, leaf), leaf.detach().cos())
        op.destroy()
