"""torch_backplane.testing.check_op: wrong operators, each found by its utility, whose message says what to write."""

import itertools
import re
from pathlib import Path

import pytest
import torch
from checked_operators import AOT, ONE, SQUARE, X, _Square, failing, square_backward, square_setup

from torch_backplane.testing import check_op
from torch_backplane.testing.opchecks import UTILITIES
from torch_backplane.testing.opchecks.check import OpCheckError

NEWER = torch.__version__ >= (2, 13)

pytestmark = pytest.mark.once  # these operators are wrong on any kind of device


def test_a_right_operator_passes_everything(operator, device):
    op = operator(ONE, **SQUARE)
    sample = X.to(device).requires_grad_()
    report = check_op(op, [(X,), (sample,), ((X,), {})])
    assert dict(report) == dict.fromkeys(UTILITIES, "SUCCESS")
    assert report.ok
    assert report.untested == {}
    assert torch.equal(sample.detach().cpu(), X)
    assert sample.grad is None


# What is wrong, its utility, the message, and what corrects it.


def mutating(operator):
    def kernel(x):
        out = x.abs()
        x.abs_()
        return out

    op = operator(ONE, kernel=kernel, fake=torch.empty_like)
    return op, "test_schema", "x.clone()", lambda: op.kernel(lambda x: x.clone().abs_())


def aliasing(operator):
    op = operator(ONE, kernel=lambda x: x.unsqueeze(0), fake=lambda x: x.unsqueeze(0))

    def cure():
        op.kernel(lambda x: x.unsqueeze(0).clone())
        op.fake(lambda x: torch.empty_like(x.unsqueeze(0)))

    return op, "test_schema", f"{op.name.partition('::')[2]}(Tensor(a) x) -> Tensor(a)", cure


def returning_its_input(operator):
    op = operator("(Tensor(a) x) -> Tensor(a)", kernel=lambda x: x, fake=lambda x: x)
    return op, "test_schema", "return x.clone()", None


def results_that_share(operator):
    def kernel(x):
        y = x * 2
        return y, y

    def fake(x):
        y = torch.empty_like(x)
        return y, y

    op = operator("(Tensor x) -> (Tensor, Tensor)", kernel=kernel, fake=fake)

    def cure():
        op.kernel(lambda x: (x * 2, x * 2))
        op.fake(lambda x: (torch.empty_like(x), torch.empty_like(x)))

    return op, "test_schema", ".clone() result 1", cure


def wrong_values(operator):
    op = operator(ONE, on_cpu=lambda x: x * 2, on_device=lambda x: x * 2 + 1e-3, fake=torch.empty_like)
    line = f'register_kernel("{op.name}", "{op.device_type}")'
    return op, "test_cpu_reference", line, lambda: op.on_device(lambda x: x * 2)


def wrong_strides(operator):
    def transposed(x):
        return x.t().clone(memory_format=torch.contiguous_format).t()

    op = operator(ONE, on_cpu=torch.clone, on_device=transposed)
    op.fake(lambda x: torch.empty_like(x) if x.device.type == "cpu" else transposed(x))

    def cure():
        op.on_device(torch.clone)
        op.fake(torch.empty_like)

    return op, "test_cpu_reference", "strides of (3, 4)", cure


def no_reference(operator):
    op = operator(ONE, on_device=lambda x: x * 2, fake=torch.empty_like)
    line = f'@torch.library.register_kernel("{op.name}", "cpu")'
    return op, "test_cpu_reference", line, lambda: op.on_cpu(lambda x: x * 2)


def contiguous_only(operator):
    def kernel(x):  # assumes that it is contiguous
        flat = torch.as_strided(x, (x.numel(),), (1,)) if x.numel() else x.reshape(-1)
        return (flat * 2).view(x.shape)

    op = operator(ONE, on_cpu=lambda x: x * 2, on_device=kernel, fake=lambda x: x.new_empty(x.shape))
    op.on_cpu(lambda x: (x * 2).contiguous())
    return op, "test_noncontiguous", "x = x.contiguous()", lambda: op.on_device(lambda x: kernel(x.contiguous()))


def wrong_on_empty(operator):
    def kernel(x):
        return x / x.abs().max()

    def right(x):
        return kernel(x) if x.numel() else torch.empty_like(x)

    op = operator(ONE, on_cpu=right, on_device=kernel, fake=torch.empty_like)
    return op, "test_empty", "if x.numel() == 0: return", lambda: op.on_device(right)


def formula_in_the_kernel(operator):
    op = operator(ONE, kernel=_Square.apply, fake=torch.empty_like)

    def cure():
        op.kernel(lambda x: (x * x).detach())
        op.formula((square_backward, square_setup))

    line = f'torch.library.register_autograd("{op.name}", backward, setup_context=setup_context)'
    return op, "test_autograd_registration", line, cure


def no_formula(operator):
    op = operator(ONE, kernel=lambda x: x.detach() * x.detach(), fake=torch.empty_like)
    line = f'torch.library.register_autograd("{op.name}", backward, setup_context=setup_context)'
    return op, "test_gradcheck", line, lambda: op.formula((square_backward, square_setup))


def state_between_calls(operator):
    """Outputs that differ once AOT traces: the last call's."""
    calls = itertools.count()
    op = operator(ONE, kernel=lambda x: x + next(calls), fake=torch.empty_like)
    return op, "test_aot_dispatch_static", "depend on the arguments alone", lambda: op.kernel(torch.clone)


def wrong_formula(operator):
    op = operator(ONE, **{**SQUARE, "formula": (lambda ctx, grad: 3 * ctx.saved_tensors[0] * grad, square_setup)})
    return op, "test_gradcheck", f'torch.library.register_autograd("{op.name}", backward', None


def no_fake(operator):
    op = operator(ONE, kernel=lambda x: x * 2)
    line = f'register_fake("{op.name}")\n  def _(x):\n      return torch.empty_like(x)'
    return op, "test_faketensor", line, lambda: op.fake(torch.empty_like)


def wrong_fake(operator):
    op = operator(ONE, kernel=lambda x: x.sum(1), fake=torch.empty_like)
    line = "return x.new_empty_strided((3,), (1,), dtype=torch.float32)"
    return op, "test_faketensor", line, lambda: op.fake(lambda x: x.new_empty(x.shape[0]))


def fake_that_reads(operator):
    op = operator(ONE, kernel=lambda x: x * 2, fake=lambda x: torch.empty_like(x) if x.sum().item() else x)
    return op, "test_faketensor", "new_dynamic_size()", lambda: op.fake(torch.empty_like)


def untraceable_backward(operator):
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * torch.tensor(x.tolist(), device=x.device, dtype=x.dtype) * grad

    op = operator(ONE, **{**SQUARE, "formula": (backward, square_setup)})
    return op, "test_aot_dispatch_static", "no .item()", None


def fake_without_symbols(operator):
    def fake(x):
        return x.new_empty({3: 4, 5: 6}[x.shape[0]])

    op = operator(ONE, kernel=lambda x: x.new_zeros(x.shape[0] + 1), fake=fake)
    return op, "test_aot_dispatch_dynamic", "sizes are symbols", lambda: op.fake(lambda x: x.new_empty(x.shape[0] + 1))


def wrong_rule(operator):
    op = operator(ONE, kernel=lambda x: x * 2, fake=torch.empty_like, rule=lambda info, in_dims, x: (x * 2, 0))

    def cure():
        op.rule(lambda info, in_dims, x: (x * 2, in_dims[0]))

    text = f'@torch.library.register_vmap("{op.name}")\n  def _(info, in_dims, x):'
    return op, "test_vmap", text, cure if NEWER else None  # an older torch does not support a second rule


def one_dtype(operator):
    def kernel(x, y):
        if x.dtype != y.dtype:
            raise TypeError("x and y differ in dtype")
        return x + y

    op = operator("(Tensor x, Tensor y) -> Tensor", kernel=kernel, fake=lambda x, y: torch.empty_like(x))
    line = f'torch.library.register_autocast("{op.name}", "{op.device_type}", torch.float32)'

    def cure():
        torch.library.register_autocast(op.name, op.device_type, torch.float32, lib=op.lib)

    return op, "test_autocast", line, cure if NEWER else None  # an older torch does not support a renamed device


WRONG = [
    *(mutating, aliasing, returning_its_input, results_that_share, wrong_values, wrong_strides, no_reference),
    *(contiguous_only, wrong_on_empty, wrong_formula, no_formula, formula_in_the_kernel, no_fake, wrong_fake),
    *(fake_that_reads, state_between_calls, untraceable_backward, fake_without_symbols, wrong_rule, one_dtype),
]
# The utilities that fail as well: AOT functionalizes, and runs fake and backward.
FOLLOWS = dict.fromkeys((returning_its_input, no_fake, fake_that_reads, state_between_calls, untraceable_backward), AOT)
FOLLOWS |= {formula_in_the_kernel: {"test_faketensor", *AOT}}
REQUIRE_GRAD = (no_formula, formula_in_the_kernel)
PAGE = (Path(__file__).resolve().parents[3] / "docs" / "testing-ops.md").read_text()
TODO = re.findall(r"^\| `(test_\w+)` \| .+? \| (.+) \|$", PAGE, re.MULTILINE)


def test_every_row_of_the_page_has_a_wrong_operator():
    assert len(TODO) == len(WRONG)


@pytest.mark.parametrize(
    ("wrong", "row"), list(zip(WRONG, TODO, strict=False)), ids=[wrong.__name__ for wrong in WRONG]
)
def test_each_failure_is_found_by_its_utility_which_says_what_to_write(wrong, row, operator):
    op, utility, text, cure = wrong(operator)
    samples = [(X, X + 1)] if wrong is one_dtype else [(X.clone().requires_grad_(wrong in REQUIRE_GRAD),)]
    checked = [name for name in UTILITIES if wrong is not state_between_calls or name in AOT]
    # In CI torch makes an error of the warning that a compiled operator's results share memory.
    with torch._functorch.config.patch(error_on_custom_op_aliasing=False):
        found = failing(op, samples, test_utils=checked)
    assert next(iter(found)) == utility
    assert set(found) == {utility} | FOLLOWS.get(wrong, set())
    assert text in found[utility]
    assert row[0] == utility
    said = found[utility].replace(op.name, "vendor::op")
    assert [line for line in re.findall("`(.+?)`", row[1]) if line not in said] == []
    if cure is not None:
        cure()
        assert failing(op, samples, test_utils=list(found)) == {}


# Rows of the contract.


@pytest.mark.parametrize(
    ("wrong", "torchs", "ours"),
    [
        (mutating, "not defined as mutable but was mutated", r'mutates_args=\["x"\]'),
        (aliasing, "not defined to alias output but was aliasing", "return a new tensor"),
    ],
)
def test_C23_C24_undeclared_mutations_and_aliases_are_found(operator, device, wrong, torchs, ours):
    op, _, _, _ = wrong(operator)
    with pytest.raises(OpCheckError, match=torchs):
        torch.library.opcheck(op.overload, (X.to(device),), test_utils="test_schema")
    with pytest.raises(OpCheckError, match=ours):
        check_op(op, [(X,)], test_utils="test_schema")


@pytest.mark.parametrize(
    ("fake", "text"),
    [
        (lambda x: x.new_empty(4, 3), "Shapes"),
        (lambda x: torch.empty_like(x, dtype=torch.float64), "Dtypes"),
        pytest.param(
            lambda x: x.new_empty(4, 3).t(),
            "Stride mismatch",
            marks=pytest.mark.skipif(not NEWER, reason="torch compares strides from 2.13 on"),
        ),
        (lambda x: torch.empty_like(x, device="cpu"), "Devices"),
        (None, "UnsupportedOperatorException"),
    ],
    ids=["shape", "dtype", "strides", "device", "none"],
)
def test_C27_a_fake_that_differs_is_found(operator, device, fake, text):
    op = operator(ONE, kernel=torch.clone)
    if fake is not None:
        op.fake(fake)
    with pytest.raises(OpCheckError):
        torch.library.opcheck(op.overload, (X.to(device),), test_utils="test_faketensor")
    found = failing(op, [(X,)], test_utils="test_faketensor")["test_faketensor"]
    assert text in found
    assert "return torch.empty_like(x)" in found


@pytest.mark.long_after_first
@pytest.mark.parametrize("utility", sorted(AOT))
def test_C30_global_state_is_found(operator, device, utility):
    op, _, text, _ = state_between_calls(operator)
    with pytest.raises(OpCheckError, match="Outputs of the operator are different"):
        torch.library.opcheck(op.overload, (X.to(device),), test_utils=utility)
    with pytest.raises(OpCheckError, match=text):
        check_op(op, [(X,)], test_utils=utility)


def test_C32_alias_marks_of_results_are_refused_by_functionalization(operator):
    def kernel(x):
        return x.add_(1)

    op = operator("(Tensor(a!) x) -> Tensor(a!)", kernel=kernel, fake=lambda x: x)
    with pytest.raises(OpCheckError, match="whose output has alias annotations") as caught:
        check_op(op, [(X,)], test_utils="test_aot_dispatch_static")
    assert f"{op.name.partition('::')[2]}(Tensor(a!) x) -> ()" in str(caught.value)
    op = operator("(Tensor(a!) x) -> ()", kernel=lambda x: None if x.add_(1) is x else 0, fake=lambda x: None)
    assert failing(op, [(X,)]) == {}
