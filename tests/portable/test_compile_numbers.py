"""Numbers beside tensors in a graph: those on the CPU, and what Python computes of sizes and of items read."""

import math
import operator

import pytest
import torch
from torch._inductor import config
from torch._inductor.utils import run_and_get_code

from portable.test_aoti import needs_cpp_wrapper
from portable.test_compile import same
from portable.test_compile_targets import lacking_target

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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
@pytest.mark.parametrize("case", BESIDE)
def test_F22_a_number_on_the_cpu_comes_first(device, case, dtype):
    function, number, x = BESIDE[case], torch.tensor(3, dtype=dtype), torch.randn(4, 5)
    torch._dynamo.reset()
    got, wanted = torch.compile(function)(number, x.to(device)), function(number, x)
    got, wanted = (one if isinstance(one, tuple) else (one,) for one in (got, wanted))
    assert {one.device.type for one in got} == {device.type}
    same(got, wanted, 1e-4)


@pytest.mark.parametrize("case", ["sum", "quotient", "where", "computed on the CPU first", "reduced", "scanned"])
def test_F22_its_gradient_is_on_the_cpu(device, case):
    function, x = BESIDE[case], torch.randn(4, 5)
    gradients = []
    for run, on in ((torch.compile(function), device), (function, "cpu")):
        torch._dynamo.reset()
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


@pytest.mark.parametrize("case", FRACTIONS)
def test_F22_what_a_program_makes_of_a_size(device, case):
    def function(x, n):
        return x + FRACTIONS[case](n / 16)

    torch._dynamo.reset()
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


@pytest.mark.parametrize("wrapper", ["python", pytest.param("cpp", marks=needs_cpp_wrapper)])
@pytest.mark.parametrize("case", ITEMS)
def test_F22_what_a_program_makes_of_an_item(device, case, wrapper):
    def function(x):
        return ITEMS[case](x, x.sum().item())

    x = torch.full((3,), 1.26)
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_scalar_outputs=True), config.patch(cpp_wrapper=wrapper == "cpp"):
        same(torch.compile(function, fullgraph=True)(x.to(device)), function(x), 1e-6)


def test_F22_a_target_without_doubles_takes_the_nearest_float(device, monkeypatch):
    def function(x, n):
        return x * (n / 16) + math.sqrt(n / 3) * 1e300

    lacking_target(monkeypatch, {"dtypes": 1 << 9})
    torch._dynamo.reset()
    x = torch.tensor([1.0, -2.0])
    got, (code,) = run_and_get_code(torch.compile(function, dynamic=True), x.to(device), 7)
    assert "f64" not in code
    same(got, function(x, 7), 1e-6)
