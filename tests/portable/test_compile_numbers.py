"""Numbers beside tensors in a graph: those on the CPU, and what Python computes of sizes and of items read."""

import math
import operator

import pytest
import torch
from sympy import oo
from torch._inductor import config
from torch._inductor.utils import run_and_get_code
from torch.utils._sympy.numbers import int_oo

from portable.compare import FLOATS, each
from portable.test_aoti import needs_cpp_wrapper
from portable.test_compile import compiled, gradients, same
from portable.test_compile_targets import target_without
from torch_backplane.inductor.dtypes import sizes

pytestmark = pytest.mark.usefixtures("each_compiles")

# Of a number on the CPU and a tensor of the device.
BESIDE = {
    "sum": operator.add,
    "quotient": operator.truediv,
    "comparison": operator.lt,
    "where": lambda a, x: torch.where(x > 0, a, x),
    "maximum": torch.maximum,
    "power": lambda a, x: torch.pow(a.abs(), x),
    "computed on the CPU first": lambda a, x: (a * 2 + 1) * x,
    "reduced": lambda a, x: (a * x).sum(1),
    "scanned": lambda a, x: (a + x).cumsum(1),
    "multiplied": lambda a, x: (a * x) @ x.T,
    "a power of whole numbers": lambda a, x: ((x * 4).int() ** a.abs().int()).float() + a.abs().int() ** (x > 0).int(),
    "filled in": lambda a, x: x.index_fill(1, torch.tensor([0, 2], device=x.device), a.to(x.dtype)),
    "filled in place": lambda a, x: x.clone().index_fill_(0, torch.tensor([1], device=x.device), a.to(x.dtype)) + 1,
    "in a list": lambda a, x: tuple(torch._foreach_add([x, x * 2], [a * x, a + x])),
}


@pytest.mark.parametrize("dtype", each([torch.float32, torch.float64, torch.int64]))
@pytest.mark.parametrize("case", BESIDE)
def test_F22_a_number_on_the_cpu_comes_first(device, case, dtype):
    function, number, x = BESIDE[case], torch.tensor(3, dtype=dtype), torch.randn(4, 5)
    got, wanted = torch.compile(function)(number, x.to(device)), function(number, x)
    assert {one.device.type for one in (got if isinstance(got, tuple) else (got,))} == {device.type}
    same(got, wanted, 1e-4)


@pytest.mark.long_after_first
@pytest.mark.parametrize("case", ["sum", "quotient", "where", "computed on the CPU first", "reduced", "scanned"])
def test_F22_its_gradient_is_on_the_cpu(device, case):
    function, x = BESIDE[case], torch.randn(4, 5)
    gradients = []
    for run, on in ((torch.compile(function), device), (function, "cpu")):
        number, other = torch.tensor(1.5, requires_grad=True), x.to(on, copy=True).requires_grad_()
        run(number, other).square().sum().backward()
        assert number.grad.device.type == "cpu"
        gradients.append((number.grad, other.grad))
    same(*gradients, 1e-4)


# Of the half of a number.
FRACTIONS = {
    "itself": lambda v: v,
    "rounded": round,
    "to digits": lambda v: round(v, 2),
    "to tens": lambda v: round(v * 100, -1),
    "cut": int,
    "rounded down": math.floor,
    "rounded up": math.ceil,
    "a quotient": lambda v: 1 / (v + 1),
    "a power": lambda v: v**1.5,
    "a size": lambda v: int(v * 100) // 7 + int(v * 100) % 7,
    "chosen": lambda v: max(v, 0.7) + min(v, 0.2),
    "double": lambda v: v + 1e12 - 1e12,
    **{
        name: getattr(math, name)
        for name in "sqrt exp log log2 sin cos tan asin acos atan sinh cosh tanh asinh".split()
    },
}


def test_F22_what_a_program_makes_of_a_size(device):
    def function(x, n):
        return [x + one(n / 16) for one in FRACTIONS.values()]

    run = torch.compile(function, dynamic=True, fullgraph=True)
    for n in (7, 5):
        same(run(torch.zeros(3, device=device), n), function(torch.zeros(3), n), 1e-7)


# Of what a graph read of a tensor.
ITEMS = {
    "added": lambda x, v: x + v,
    "rounded": lambda x, v: x * round(v, 1),
    "cut": lambda x, v: x * int(v),
    "filled": lambda x, v: torch.full((3,), v, device=x.device),
    "chosen": lambda x, v: torch.where(x > 1, v, 2.0),
    "a limit": lambda x, v: x.clamp(max=v / 2),
    "the length of a loop": lambda x, v: torch.arange(6, device=x.device) * (v + 0.5),
}


@pytest.mark.parametrize("wrapper", ["python", pytest.param("cpp", marks=[needs_cpp_wrapper, pytest.mark.long])])
def test_F22_what_a_program_makes_of_an_item(device, wrapper):
    def function(x):
        v = x.sum().item()
        return [one(x, v) for one in ITEMS.values()]

    x = torch.full((3,), 1.26)
    with torch._dynamo.config.patch(capture_scalar_outputs=True), config.patch(cpp_wrapper=wrapper == "cpp"):
        same(torch.compile(function, fullgraph=True)(x.to(device)), function(x), 1e-6)


def test_F22_a_target_without_doubles_takes_the_nearest_float(device, monkeypatch):
    def function(x, n):
        return x * (n / 16) + math.sqrt(n / 3) * 1e300

    target_without(monkeypatch, {"dtypes": 1 << 9})
    x = torch.tensor([1.0, -2.0])
    got, (code,) = run_and_get_code(torch.compile(function, dynamic=True), x.to(device), 7)
    assert "f64" not in code
    same(got, function(x, 7), 1e-6)


def test_a_number_that_changes_needs_no_compilation(device):
    x = torch.randn(64, 129)
    function = torch.compile(lambda x, a: x * a + a + 1)
    for a in (1.5, 2.5):  # the first may be a constant
        function(x.to(device), a)
    with torch.compiler.set_stance("fail_on_recompile"):
        for a in (3.5, -4.5):
            same(function(x.to(device), a), x * a + a + 1, 1e-4)


def test_quotients_and_roots_of_sizes_are_reals(device):
    def function(x):
        return x / (x.shape[0] - 1) + x.shape[1] / x.shape[0], x * x.shape[0] ** 0.5, x + x.shape[1] / 7

    x = torch.randn(5, 7)
    same(compiled(function, device, [x], dynamic=True), function(x), 1e-5)


def test_sizes_without_bound():
    for positive, negative in ((oo, -oo), (int_oo, -int_oo)):
        assert sizes(positive) == "9223372036854775807"
        assert sizes(negative) == "(-9223372036854775807 - 1)"


def test_the_gradient_of_a_deviation_where_sizes_are_dynamic(device):
    x, function = torch.randn(5, 7), torch.compile(lambda x: x.std(), dynamic=True)
    same(gradients(function)(x.to(device)), gradients(torch.std)(x), 1e-5)


def test_F22_numbers_on_the_cpu_are_arguments(device):
    """Not only constants: an optimizer's step is a tensor there, and so is a learning rate."""
    x = torch.randn(64, 129)
    numbers = [torch.tensor(2.5, dtype=dtype) for dtype in FLOATS]
    numbers += [torch.tensor(-3), torch.tensor(-5, dtype=torch.int8), torch.tensor(200, dtype=torch.uint8)]
    numbers += [torch.tensor(True), torch.tensor(-(2**62)), torch.tensor(2**63 + 2, dtype=torch.uint64)]

    def function(x, *numbers):
        *kept, large, unsigned = numbers
        computed = [(x * (one + one)).sum(1) for one in kept]  # on the CPU first
        return *(x * one for one in kept), *computed, (x > 0) * large, (x > 0).to(torch.uint64) * unsigned

    call = torch.compile(function, fullgraph=True)
    for changed in (numbers, [-numbers[0], numbers[1], numbers[2] + 1, *numbers[3:]]):
        same(call(x.to(device), *changed), function(x, *changed), 1e-4)
