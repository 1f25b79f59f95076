"""torch_backplane.testing.check_op: wrong operators, each found by the utility that is for it, which tells the cure."""

import itertools
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from torch_backplane.compat import override_kernel
from torch_backplane.testing import check_op
from torch_backplane.testing.check_op import OpCheckError
from torch_backplane.testing.opchecks import UTILITIES

pytestmark = pytest.mark.once  # what is wrong with these operators is so on any kind of device

_numbers = itertools.count()


class Operator:
    """An operator of a test: right in all, until a part is given that is not."""

    def __init__(self, lib, name, schema, **parts):
        self.lib, self.device_type = lib, name
        self.name = f"{lib.ns}::op_{next(_numbers)}"
        lib.define(self.name.partition("::")[2] + schema, tags=parts.pop("tags", ()))
        for part, value in parts.items():
            getattr(self, part)(value)

    @property
    def overload(self):
        return getattr(getattr(torch.ops, self.lib.ns), self.name.partition("::")[2]).default

    def impl(self, function, *keys):
        for key in keys:
            override_kernel(self.lib, self.name.partition("::")[2], function, key)

    def kernel(self, function):
        """The kernel, on the CPU and on the device."""
        self.impl(function, "CPU", "PrivateUse1")

    def on_cpu(self, function):
        self.impl(function, "CPU")

    def on_device(self, function):
        self.impl(function, "PrivateUse1")

    def fake(self, function):
        torch.library.register_fake(self.name, function, lib=self.lib, allow_override=True)

    def formula(self, functions):
        backward, setup_context = functions
        torch.library.register_autograd(self.name, backward, setup_context=setup_context, lib=self.lib)

    def rule(self, function):
        torch.library.register_vmap(self.name, function, lib=self.lib)


@pytest.fixture
def operator(name):
    with torch.library._scoped_library("check_op_test", "FRAGMENT") as lib:
        yield lambda schema, **parts: Operator(lib, name, schema, **parts)


def failing(op, samples, **options):
    """Which utilities fail, with what text."""
    report = check_op(op, samples, raise_exception=False, **options)
    return {utility: str(result) for utility, result in report.items() if result != "SUCCESS"}


X = torch.linspace(-2, 3, 12).view(3, 4)
ONE = "(Tensor x) -> Tensor"


def square_setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def square_backward(ctx, grad):
    (x,) = ctx.saved_tensors
    return 2 * x * grad


SQUARE = {"kernel": lambda x: x * x, "fake": torch.empty_like, "formula": (square_backward, square_setup)}


class _Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return square_backward(ctx, grad)


def test_a_right_operator_passes_everything(operator, device):
    op = operator(ONE, **SQUARE)
    sample = X.to(device).requires_grad_()
    report = check_op(op, [(X,), (sample,), ((X,), {})])
    assert dict(report) == dict.fromkeys(UTILITIES, "SUCCESS")
    assert report.ok
    assert report.untested == {}
    assert torch.equal(sample.detach().cpu(), X)
    assert sample.grad is None


# What is wrong, and what puts it right.


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
    return (
        op,
        "test_cpu_reference",
        f'register_kernel("{op.name}", "{op.device_type}")',
        lambda: op.on_device(lambda x: x * 2),
    )


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
    return (
        op,
        "test_cpu_reference",
        f'@torch.library.register_kernel("{op.name}", "cpu")',
        lambda: op.on_cpu(lambda x: x * 2),
    )


def contiguous_alone(operator):
    def kernel(x):  # as if it were contiguous
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

    return op, "test_vmap", f'@torch.library.register_vmap("{op.name}")\n  def _(info, in_dims, x):', cure


def one_dtype(operator):
    def kernel(x, y):
        if x.dtype != y.dtype:
            raise TypeError("x and y differ in dtype")
        return x + y

    op = operator("(Tensor x, Tensor y) -> Tensor", kernel=kernel, fake=lambda x, y: torch.empty_like(x))
    line = f'torch.library.register_autocast("{op.name}", "{op.device_type}", torch.float32)'
    return (
        op,
        "test_autocast",
        line,
        lambda: torch.library.register_autocast(op.name, op.device_type, torch.float32, lib=op.lib),
    )


WRONG = [
    mutating,
    aliasing,
    returning_its_input,
    results_that_share,
    wrong_values,
    wrong_strides,
    no_reference,
    contiguous_alone,
    wrong_on_empty,
    wrong_formula,
    no_formula,
    formula_in_the_kernel,
    no_fake,
    wrong_fake,
    fake_that_reads,
    state_between_calls,
    untraceable_backward,
    fake_without_symbols,
    wrong_rule,
    one_dtype,
]
AOT = {"test_aot_dispatch_static", "test_aot_dispatch_dynamic"}
# What fails with it: AOT functionalizes, and runs fake and backward.
FOLLOWS = dict.fromkeys((returning_its_input, no_fake, fake_that_reads, state_between_calls, untraceable_backward), AOT)
FOLLOWS |= {formula_in_the_kernel: {"test_faketensor", *AOT}}
REQUIRE_GRAD = (no_formula, formula_in_the_kernel)
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "testing-ops.md").read_text()
TODO = re.findall(r"^\| `(test_\w+)` \| .+? \| (.+) \|$", PAGE, re.MULTILINE)


def test_every_row_of_the_page_has_a_wrong_operator():
    assert len(TODO) == len(WRONG)


@pytest.mark.parametrize(
    ("wrong", "row"), list(zip(WRONG, TODO, strict=False)), ids=[wrong.__name__ for wrong in WRONG]
)
def test_each_failure_is_found_by_its_utility_which_tells_the_cure(wrong, row, operator):
    op, utility, text, cure = wrong(operator)
    samples = [(X, X + 1)] if wrong is one_dtype else [(X.clone().requires_grad_(wrong in REQUIRE_GRAD),)]
    checked = [name for name in UTILITIES if wrong is not state_between_calls or name in AOT]
    # In CI torch makes an error of the warning that a compiled operator's results share memory.
    with torch._functorch.config.patch(error_on_custom_op_aliasing=False):
        found = failing(op, samples, test_utils=checked)
    for key, value in found.items():
        print("##", key, value)
    assert next(iter(found)) == utility
    assert set(found) == {utility} | FOLLOWS.get(wrong, set())
    assert text in found[utility]
    assert row[0] == utility
    said = found[utility].replace(op.name, "vendor::op")
    assert [line for line in re.findall("`(.+?)`", row[1]) if line not in said] == []
    if cure is not None:
        cure()
        assert failing(op, samples, test_utils=checked) == {}


# What else the utilities find, and what they leave alone.


def test_in_place_operators_are_compared_by_what_they_wrote(operator):
    def kernel(x, y):
        x.add_(y)

    def off_by_one(x, y):
        x.add_(y).add_(1)

    op = operator("(Tensor(a!) x, Tensor y) -> ()", on_cpu=kernel, on_device=kernel, fake=lambda x, y: None)
    sample = (X.clone(), X.clone())
    assert failing(op, [sample]) == {}
    assert torch.equal(sample[0], X)
    op.on_device(off_by_one)
    assert "not the CPU reference's" in failing(op, [sample], test_utils="test_cpu_reference")["test_cpu_reference"]


def test_out_arguments_are_compared(operator):
    def kernel(x, *, out):
        torch.mul(x, 2, out=out)
        return out

    op = operator(
        "(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", kernel=kernel, fake=lambda x, *, out: out, tags=(torch.Tag.out,)
    )
    sample = ((X,), {"out": torch.zeros(3, 4)})
    checked = [u for u in UTILITIES if not u.startswith("test_aot")]
    report = check_op(op, [sample], test_utils=checked, raise_exception=False)
    assert report.ok, str(report)
    op.on_device(lambda x, *, out: out.fill_(1))
    with pytest.raises(OpCheckError, match="not the CPU reference's"):
        check_op(op, [sample], test_utils="test_cpu_reference")


def test_a_kernel_that_writes_between_the_elements(operator):
    def kernel(x, y):
        wide = torch.as_strided(x, (2 * x.numel() - 1,), (1,), x.storage_offset()) if not x.is_contiguous() else x
        torch.as_strided(wide, (min(wide.numel(), 2),), (1,)).fill_(7)
        x.copy_(y)

    op = operator("(Tensor(a!) x, Tensor y) -> ()", kernel=kernel, fake=lambda x, y: None)
    found = failing(op, [(torch.arange(4), torch.arange(4))], test_utils="test_noncontiguous")
    assert "wrote to a gap" in found["test_noncontiguous"]
    assert "x.copy_(result)" in found["test_noncontiguous"]


def test_a_backward_that_takes_gradients_for_contiguous(operator):
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
    report = check_op(op, [(X, X + 1)])
    assert "test_gradcheck" not in report.untested
    found = failing(op, [(X, (X + 1).requires_grad_())], test_utils="test_gradcheck")  # now it is asked for
    assert f'torch.library.register_autograd("{op.name}"' in found["test_gradcheck"]


def test_an_operator_without_a_formula(operator):
    op = operator(ONE, kernel=lambda x: x.detach() * 2, fake=torch.empty_like)
    report = check_op(op, [(X,)])
    assert report.untested["test_gradcheck"] == "no input requires grad"
    found = failing(op, [(X.clone().requires_grad_(),)], test_utils="test_gradcheck")
    assert "has no gradient formula" in found["test_gradcheck"]
    assert "return grad_of_x  # None where there is none" in found["test_gradcheck"]


def test_where_the_device_lacks_float64_the_cpu_is_differentiated(operator):
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


def test_vmap_over_the_first_argument_alone(operator):
    def rule(info, in_dims, x, y):  # as if both had a batch
        return x + y.movedim(in_dims[1] or 0, 0), 0

    op = operator("(Tensor x, Tensor y) -> Tensor", kernel=lambda x, y: x + y, fake=lambda x, y: torch.empty_like(x))
    assert failing(op, [(X, X)], test_utils="test_vmap") == {}
    op.rule(rule)
    assert set(failing(op, [(X, X)], test_utils="test_vmap")) == {"test_vmap"}


def test_what_torch_cannot_loop_over_is_untested_and_said_so(operator):
    op = operator("(Tensor[] xs) -> Tensor", kernel=lambda xs: xs[0] + xs[1], fake=lambda xs: torch.empty_like(xs[0]))
    report = check_op(op, [([X, X],)])
    assert "no batching rule" in report.untested["test_vmap"]
    assert "test_vmap" in str(report)


def test_a_result_whose_shape_depends_on_values(operator):
    def fake(x):
        return x.new_empty(torch.library.get_ctx().new_dynamic_size())

    op = operator(ONE, kernel=lambda x: x[x > 1], fake=fake)
    report = check_op(op, [(X,)])
    assert set(report.untested) >= {"test_aot_dispatch_static", "test_vmap"}
    assert "test_aot_dispatch_dynamic" not in report.untested


def test_a_layout_that_the_cpu_refuses_may_be_refused(operator):
    def kernel(x):
        return x.view(-1).clone()

    op = operator(ONE, kernel=kernel, fake=lambda x: x.new_empty(x.numel()))
    assert failing(op, [(X,)]) == {}
    op.on_cpu(lambda x: x.reshape(-1).clone())
    assert set(failing(op, [(X,)])) == {"test_noncontiguous"}


def test_random_operators_are_compared_but_for_their_numbers(operator):
    op = operator(
        "(Tensor x) -> Tensor", kernel=torch.rand_like, fake=torch.empty_like, tags=(torch.Tag.nondeterministic_seeded,)
    )
    report = check_op(op, [(X,)], test_utils=("test_cpu_reference", "test_noncontiguous", "test_vmap"))
    assert set(report.untested) == {"test_noncontiguous", "test_vmap"}
    op.on_device(lambda x: torch.rand_like(x).double())
    assert "dtype" in failing(op, [(X,)], test_utils="test_cpu_reference")["test_cpu_reference"]


def test_a_reference_of_its_own(operator):
    op = operator(ONE, on_device=lambda x: x * 2, fake=torch.empty_like)
    assert failing(op, [(X,)], reference=lambda x: x + x) == {}
    assert set(failing(op, [(X,)], reference=lambda x: x + 1)) == {"test_cpu_reference"}


def test_tolerances_are_those_that_are_given(operator):
    op = operator(ONE, on_cpu=lambda x: x * 2, on_device=lambda x: x * 2 + 1e-3, fake=torch.empty_like)
    assert failing(op, [(X,)], rtol=0, atol=1e-2) == {}
    op.on_device(lambda x: x * 2 + 1e-6)
    assert failing(op, [(X,)]) == {}
    assert set(failing(op, [(X,)], rtol=0, atol=0)) == {"test_cpu_reference"}


def test_an_operator_that_the_fallback_computes_is_said_to_be(operator):
    op = operator(ONE, on_cpu=lambda x: x * 2, fake=torch.empty_like)
    report = check_op(op, [(X,)], test_utils="test_cpu_reference")
    assert "the device has no kernel" in report.untested["test_cpu_reference"]


def test_a_sample_with_a_device_tensor_is_taken_as_it_is(operator, device):
    def kernel(x, sizes):
        assert sizes.device.type == "cpu"
        return x * sizes[0].item()

    op = operator("(Tensor x, Tensor sizes) -> Tensor", kernel=kernel, fake=lambda x, sizes: torch.empty_like(x))
    checked = ("test_schema", "test_cpu_reference", "test_noncontiguous", "test_empty", "test_faketensor")
    assert failing(op, [(X.to(device), torch.tensor([2]))], test_utils=checked) == {}


@pytest.mark.requires("multi_device")
def test_samples_go_to_the_device_that_is_asked_for(operator, name):
    places = []
    op = operator(
        ONE, on_cpu=torch.clone, on_device=lambda x: places.append(x.device) or x.clone(), fake=torch.empty_like
    )
    assert check_op(op, [(X,)], device=f"{name}:1").ok
    assert set(places) == {torch.device(name, 1)}
    report = check_op(op, [(X,)], device="cpu")
    assert report.untested["test_cpu_reference"] == "the call is on the CPU"
    assert set(places) == {torch.device(name, 1)}


def test_a_call_that_fails_is_every_utilitys_failure(operator):
    def kernel(x):
        raise TypeError("float32 alone")

    op = operator(ONE, on_cpu=torch.clone, on_device=kernel, fake=torch.empty_like)
    found = failing(op, [(X,)])
    assert list(found) == list(UTILITIES)
    assert all("the call itself fails on sample 0, (float32[3, 4])" in text for text in found.values())
    with pytest.raises(OpCheckError, match="float32 alone"):
        check_op(op, [(X,)])


@pytest.mark.parametrize(
    ("samples", "options", "text"),
    [
        (X, {}, "samples is a list of argument tuples"),
        ([], {}, "samples is a list of argument tuples"),
        ([X], {}, r"sample 0 is float32\[3, 4\]; it is a tuple of arguments"),
        ([(X,)], {"test_utils": "test_nothing"}, "the utilities are test_schema, "),
        ([(X,)], {"test_utils": ()}, "the utilities are test_schema, "),
        ([(X,)], {"rtol": 0.1}, "rtol and atol come together"),
    ],
)
def test_wrong_arguments(operator, samples, options, text):
    op = operator(ONE, **SQUARE)
    with pytest.raises(ValueError, match=text):
        check_op(op, samples, **options)


def test_samples_may_be_one_tuple_or_torchs_samples(operator):
    op = operator(ONE, **SQUARE)
    sample = SimpleNamespace(input=X, args=(), kwargs={})
    for samples in ((X,), [((X,), {})], [sample], iter([(X,)])):
        assert check_op(op, samples, test_utils="test_cpu_reference").ok


# Rows of the contract.


def test_C21_what_counts_as_an_operator(operator, device):
    op = operator(ONE, **SQUARE)
    packet = getattr(torch.ops.check_op_test, op.name.partition("::")[2])
    define = torch.library.custom_op("check_op_test::custom", mutates_args=(), schema="(Tensor x) -> Tensor")
    custom = define(torch.clone)
    custom.register_fake(torch.empty_like)
    x = X.to(device)
    for form in (op.overload, packet, custom):
        torch.library.opcheck(form, (x,), test_utils="test_schema")
        assert check_op(form, [(x,)], test_utils="test_schema").ok
    for form in (op, op.name):
        assert check_op(form, [(x,)], test_utils="test_schema").op == op.name
    with pytest.raises(ValueError, match="must be instance of"):
        torch.library.opcheck(torch.sin, (x,))
    with pytest.raises(ValueError, match="checks operators, and this is a builtin_function_or_method"):
        check_op(torch.sin, [(x,)])
    with pytest.raises(ValueError, match="subset"):
        torch.library.opcheck(op.overload, (x,), test_utils="blah")
    with pytest.raises(ValueError, match=r"several overloads; name one: torch\.ops\.aten\.add\.Tensor"):
        check_op(torch.ops.aten.add, [(x, x)])
    with pytest.raises(ValueError, match="did you mean"):
        check_op(op.name + "_", [(x,)])
    custom._lib._destroy()


def test_C22_the_default_run_and_chosen_utilities(operator, device):
    op = operator(ONE, kernel=lambda x: x.mul_(1), fake=torch.empty_like)
    x = X.to(device)
    wrong = torch.library.opcheck(op.overload, (x,), raise_exception=False)
    assert list(wrong) == [
        "test_schema",
        "test_autograd_registration",
        "test_faketensor",
        "test_aot_dispatch_dynamic",
    ]
    assert isinstance(wrong["test_schema"], Exception)
    report = check_op(op, [(x,)], test_utils=list(wrong), raise_exception=False)
    assert list(report) == list(wrong)
    assert isinstance(report["test_schema"], OpCheckError)
    op.kernel(torch.clone)
    assert set(torch.library.opcheck(op.overload, (x,)).values()) == {"SUCCESS"}
    assert torch.library.opcheck(op.overload, (x,), test_utils="test_schema") == {"test_schema": "SUCCESS"}
    assert check_op(op, [(x,)], test_utils="test_schema") == {"test_schema": "SUCCESS"}
    assert list(check_op(op, [(x,)])) == list(UTILITIES)


def test_C23_an_undeclared_mutation_is_found(operator, device):
    op, _, _, _ = mutating(operator)
    with pytest.raises(OpCheckError, match="not defined as mutable but was mutated"):
        torch.library.opcheck(op.overload, (X.to(device),))
    with pytest.raises(OpCheckError, match=r'mutates_args=\["x"\]'):
        check_op(op, [(X,)])


def test_C24_an_undeclared_alias_is_found(operator, device):
    op, _, _, _ = aliasing(operator)
    with pytest.raises(OpCheckError, match="not defined to alias output but was aliasing"):
        torch.library.opcheck(op.overload, (X.to(device),))
    with pytest.raises(OpCheckError, match="return a new tensor"):
        check_op(op, [(X,)])


def test_C25_inputs_that_require_grad(operator, device):
    """Torch's opcheck knows CPU, CUDA and XPU; ours the device."""
    op = operator(ONE, **SQUARE)
    x = X.to(device).requires_grad_()
    with pytest.raises(OpCheckError, match="NYI devices other than CPU/CUDA/XPU"):
        torch.library.opcheck(op.overload, (x,))
    assert check_op(op, [(x,)]).untested == {}


def _at_autograd(op, x):
    class Redispatch(_Square):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            with torch._C._AutoDispatchBelowAutograd():
                return op.overload(x)

    return Redispatch.apply(x)


@pytest.mark.parametrize("key", ["Autograd", "AutogradPrivateUse1", "CompositeImplicitAutograd"])
def test_C26_a_gradient_at_an_autograd_key_is_right(operator, key):
    op = operator(ONE)
    if key == "CompositeImplicitAutograd":
        op.impl(lambda x: x * x, key)
    else:
        op.kernel(lambda x: x * x)
        op.fake(torch.empty_like)
        op.impl(lambda x: _at_autograd(op, x), key)
    assert failing(op, [(X.clone().requires_grad_(),)], test_utils="test_autograd_registration") == {}
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


def test_C26_without_a_gradient_nothing_is_wrong(operator):
    op = operator(ONE, kernel=lambda x: x.detach().clone())
    assert failing(op, [(X.clone().requires_grad_(),)], test_utils="test_autograd_registration") == {}


@pytest.mark.parametrize(
    ("fake", "text"),
    [
        (lambda x: x.new_empty(4, 3), "Shapes"),
        (lambda x: torch.empty_like(x, dtype=torch.float64), "Dtypes"),
        (lambda x: x.new_empty(4, 3).t(), "Stride mismatch"),
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


@pytest.mark.parametrize("utility", sorted(AOT))
def test_C30_global_state_is_found(operator, device, utility):
    calls = itertools.count()
    op = operator(ONE, kernel=lambda x: x + next(calls), fake=torch.empty_like)
    with pytest.raises(OpCheckError, match="Outputs of the operator are different"):
        torch.library.opcheck(op.overload, (X.to(device),), test_utils=utility)
    with pytest.raises(OpCheckError, match="depend on the arguments alone"):
        check_op(op, [(X,)], test_utils=utility)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.detach() * 2,
        lambda x: (x * 2, (x > 0)),
        lambda x: x.argmax(),
    ],
    ids=["detached", "one of two", "integers"],
)
@pytest.mark.parametrize("grad", [False, True])
def test_C31_degenerate_functions_pass_aot(device, function, grad):
    from torch.testing._internal.optests import aot_autograd_check

    aot_autograd_check(function, (X.to(device).requires_grad_(grad),), {}, dynamic=False, check_gradients="auto")


def test_C32_alias_marks_of_results_are_refused_by_functionalization(operator):
    def kernel(x):
        return x.add_(1)

    op = operator("(Tensor(a!) x) -> Tensor(a!)", kernel=kernel, fake=lambda x: x)
    with pytest.raises(OpCheckError, match="whose output has alias annotations") as caught:
        check_op(op, [(X,)], test_utils="test_aot_dispatch_static")
    assert f"{op.name.partition('::')[2]}(Tensor(a!) x) -> ()" in str(caught.value)
    op = operator("(Tensor(a!) x) -> ()", kernel=lambda x: None if x.add_(1) is x else 0, fake=lambda x: None)
    assert failing(op, [(X,)]) == {}


def test_C33_neither_expecttest_nor_torchs_test_utilities_are_needed(run_in_process, name):
    code = f"""
        import sys
        sys.modules["expecttest"] = None
        import torch
        from torch_backplane.testing import check_op, generate_checks
        from torch.library import opcheck
        opcheck(torch.ops.aten.abs.default, (torch.ones(3, device="{name}"),))
        report = check_op("aten::abs", [(torch.linspace(-2, 2, 6),)], test_utils=["test_schema", "test_gradcheck"])
        print(report.ok, "torch.testing._internal.common_utils" in sys.modules)
    """
    assert run_in_process(code).stdout.split() == ["True", "False"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("op", ["aten::abs", "aten::mul.Tensor", "aten::cumsum", "aten::add_.Tensor"])
def test_C34_operators_are_checked_over_dtypes_and_samples(op, dtype):
    if op == "aten::abs" and dtype == torch.bool:
        return
    checked = ("test_schema", "test_cpu_reference", "test_noncontiguous", "test_empty", "test_faketensor")
    x = torch.testing.make_tensor((3, 4), dtype=dtype, device="cpu")
    args = {"aten::abs": (), "aten::cumsum": (1,)}.get(op, (x.clone(),))
    assert failing(op, [(x, *args)], test_utils=checked) == {}
