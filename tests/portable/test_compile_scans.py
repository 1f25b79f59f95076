"""Scans of torch.compile as generated kernels, against eager on the CPU; torch_backplane/inductor/scans.py."""

import os

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan, associative_scan_op
from torch._inductor.utils import run_and_get_code

from portable.compare import each, real
from portable.test_compile import same
from torch_backplane import compiler, fallback

pytestmark = pytest.mark.usefixtures("each_compiles")


def ties(*shape):
    """Equal values, and a NaN in some rows and columns."""
    x = torch.randn(shape).round()
    x[::3, 5] = torch.nan
    return x


def both(operator):
    """Along rows and along columns."""
    return lambda x: (operator(x + 1, 1), operator(x + 1, 0))


def several(operator):
    return lambda x: (*operator(x, 1), *operator(x, 0))


# Rows that end within a tile and with it, shorter than one and of several: of a core 64 elements, of 64 items 256.
SHAPES = (64, 129), (300, 7), (128, 64), (9, 1030), (2, 256)
HALVES = torch.float16, torch.bfloat16
# A function, its argument, how many kernels, and how far the results may be apart.
CASES = {
    **{f"sums of {shape}": (both(torch.cumsum), lambda shape=shape: real(*shape), 2, 1e-3) for shape in SHAPES},
    "products": (lambda x: (x.tanh() + 1).cumprod(1), lambda: real(64, 129), 1, 1e-4),
    "logarithms of sums": (both(torch.logcumsumexp), lambda: real(64, 129), 2, 1e-4),
    "logarithms of sums, infinite": (both(torch.logcumsumexp), lambda: real(64, 129).log() * torch.inf, 2, 0),
    "largest, with places": (several(torch.cummax), lambda: ties(300, 129), 2, 0),
    "least, with places": (several(torch.cummin), lambda: ties(300, 129), 2, 0),
    "float16": (both(torch.cumsum), lambda: real(64, 129, dtype=HALVES[0]), 2, 1e-1),
    "bfloat16": (both(torch.cumsum), lambda: real(64, 129, dtype=HALVES[1]), 2, 5e-1),
    "float64": (both(torch.cumsum), lambda: real(64, 129, dtype=torch.float64), 2, 1e-11),
    "integers": (
        lambda x: (x.cumsum(1), x.cumprod(1), x.cumsum(0, dtype=torch.int8)),
        lambda: torch.randint(-5, 5, (64, 129)),
        2,
        0,
    ),
    "truth": (both(torch.cumsum), lambda: real(64, 129) > 0, 2, 0),
    "strided rows": (lambda x: x[:, ::2].cumsum(1) * 2, lambda: real(64, 258), 1, 1e-3),
    "transposed": (lambda x: x.t().cumsum(0) + 1, lambda: real(64, 129), 2, 1e-3),
    "the middle of three": (lambda x: x.cumsum(1), lambda: real(5, 60, 7), 1, 1e-4),
    "between others": (lambda x: (x.exp() + 1).cumsum(1).sqrt() * 2, lambda: real(64, 129), 1, 1e-3),
    "of a scan": (lambda x: x.cumsum(1).cumsum(1), lambda: real(64, 129), 1, 1e-2),
    "two of a row": (lambda x: x.cumsum(1) + (x.tanh() + 1).cumprod(1), lambda: real(64, 70), 1, 1e-3),
    "after a fold": (lambda x: (x.softmax(1).cumsum(1), x.softmax(1)), lambda: real(64, 129), 1, 1e-4),
    "before a fold": (lambda x: x.cumsum(1) / x.cumsum(1).abs().amax(1, keepdim=True), lambda: real(64, 129), 1, 1e-4),
    "beside a fold": (lambda x: (x.cumsum(1), x.amax(1)), lambda: real(64, 129), 1, 1e-3),
    "one row": (lambda x: x.cumsum(0), lambda: real(5000), 1, 1e-2),
}


SHORT = [case for case in CASES if not case.startswith("sums of") or case == "sums of (64, 129)"]


def compiled(function, device, *arguments, **settings):
    """The results, and the module that Inductor wrote."""
    torch._dynamo.reset()
    with fallback.budget(calls=0):
        found, (code,) = run_and_get_code(
            torch.compile(function, fullgraph=True, **settings), *(one.to(device) for one in arguments)
        )
    return found, code


SCANS = "cumsum cumprod logcumsumexp cummax cummin".split()


def has_no_calls(code):
    lines = [line for line in code.splitlines() if not line.lstrip().startswith("#")]
    return not any(f"aten.{name}." in line for line in lines for name in SCANS)


@pytest.mark.parametrize("case", each(CASES, *SHORT))
def test_F18_scans_are_generated_kernels(case, device):
    function, make, kernels, tolerance = CASES[case]
    x = make()
    found, code = compiled(function, device, x)
    same(found, function(x), tolerance)
    assert "COMBINE" in code
    assert has_no_calls(code)
    assert code.count("BP_KERNEL") == kernels


def test_F18_one_kernel_scans_rows_of_any_length(device):
    torch._dynamo.reset()
    call = torch.compile(lambda x: (x.cumsum(1), *x.cummax(1)), dynamic=True)
    shapes = (5, 7), (33, 129), (64, 1000)
    call(real(*shapes[0]).to(device))
    with torch.compiler.set_stance("fail_on_recompile"):
        for shape in shapes:
            x = real(*shape)
            same(call(x.to(device)), (x.cumsum(1), *x.cummax(1)), 1e-3)


@pytest.mark.parametrize("shape", each([(300, 64), (300,), (1000, 3)]))
@pytest.mark.parametrize("dtype", each([torch.float32, torch.float16]))
def test_F18_a_scan_by_any_function_of_tuples(shape, dtype, device):
    """x[n] = a[n] * x[n - 1] + b[n], which does not commute."""

    def combine(a, b):
        return [a[0] * b[0], b[0] * a[1] + b[1]]

    def function(a, b):
        return associative_scan_op(lambda *xs: combine(xs[:2], xs[2:]), [a, b], additional_inputs=())

    a, b = torch.rand(shape).to(dtype), real(*shape, dtype=dtype)
    found, code = compiled(function, device, a, b)
    wanted = associative_scan(combine, [a.float(), b.float()], dim=0, combine_mode="generic")
    torch.testing.assert_close([one.float().cpu() for one in found], wanted, rtol=2e-3, atol=2e-3)
    assert code.count("BP_KERNEL") == 1


def test_torchs_associative_scan_is_compiled_where_torch_lets_it(device):
    def function(x, mode):
        return associative_scan(torch.add, x, dim=0, combine_mode=mode)

    x = real(33, 5)

    def call(mode):
        torch._dynamo.reset()
        found = torch.compile(function)(x.to(device), mode).cpu()
        torch.testing.assert_close(found, x.cumsum(0), rtol=1e-4, atol=1e-4)

    call("generic")
    if torch.__version__ >= (2, 14):
        return call("pointwise")
    with pytest.raises(Exception, match="all input tensors need to be on CUDA or XPU"):
        call("pointwise")


@pytest.mark.parametrize("dim", [0, 1])
def test_F18_gradients_of_scans(dim, device):
    x = real(64, 129)
    wanted, given = x.clone().requires_grad_(), x.to(device).requires_grad_()
    (wanted * 2).cumsum(dim).sin().sum().backward()
    torch._dynamo.reset()
    torch.compile(lambda x: (x * 2).cumsum(dim).sin().sum())(given).backward()
    torch.testing.assert_close(given.grad.cpu(), wanted.grad, rtol=1e-3, atol=1e-3)


def test_a_long_row_is_the_operators_where_items_are_many(device):
    """It scans the parts of a row by several groups; a generated kernel takes one."""
    x = torch.ones(2, 1 << 15)
    found, code = compiled(lambda x: (x + 1).cumsum(1), device, x)
    same(found, (x + 1).cumsum(1), 0)
    assert has_no_calls(code) == (compiler.target().group_size == 1)


@pytest.mark.long
@pytest.mark.parametrize("order", ["up", "down"])
def test_F18_the_same_where_items_are_many(order, run_in_process):
    """All of this file's, by groups of 64 items, which run in either order between barriers."""
    options = ",".join(filter(None, (os.environ.get("MYDEVICE_OPTIONS"), "items=64", f"order={order}")))
    arguments = [__file__, "-q", "-n", "0", "-p", "no:cacheprovider", "-k", "not the_same_where"]
    code = f"import sys, pytest; sys.exit(pytest.main({arguments}))"
    done = run_in_process(code, env={"MYDEVICE_OPTIONS": options})
    assert " passed" in done.stdout
