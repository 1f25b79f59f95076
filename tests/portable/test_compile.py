"""torch.compile: values, gradients and errors of what Inductor generates in the dialect, against eager on the CPU."""

import pytest
import torch
import torch.nn.functional as F
from torch._inductor.utils import run_and_get_code

from portable.compare import each, real

ROWS = 64, 129
pytestmark = pytest.mark.usefixtures("each_compiles")


def same(got, wanted, tolerance):
    if isinstance(wanted, torch.Tensor):
        got, wanted = [got], [wanted]
    torch.testing.assert_close([one.cpu() for one in got], list(wanted), rtol=tolerance, atol=tolerance, equal_nan=True)


def compiled(function, device, arguments, **settings):
    torch._dynamo.reset()
    return torch.compile(function, **settings)(*(one.to(device) for one in arguments))


# A function, what makes its arguments, and how far the results may be apart. What test_compile_fusions.py compares,
# with gradients and counts, and single operators (test_compile_expressions.py) are not repeated here.
FORWARD = {
    "sums of the outer and the inner": (lambda x: x.sum((0, 2)), lambda: [real(5, 6, 7)], 1e-4),
    "variance of columns": (lambda x: x.var(0), lambda: [real(*ROWS)], 1e-4),
    "first of equal extremes": (lambda x: (x.argmax(1), x.argmin(1)), lambda: [torch.ones(7, 100)], 0),
    "folds of columns": (lambda x: (x.argmin(0), (x > 0).all(0), x.amin(0)), lambda: [real(8, 40)], 1e-4),
    "NaN wins": (
        lambda x: (x.amax(1), x.argmax(1), torch.maximum(x, x.flip(1))),
        lambda: [torch.tensor([[1.0, torch.nan, 3.0], [1.0, 2.0, torch.inf]])],
        0,
    ),
    "of two layouts": (
        lambda x: (x[:, :70].t() + x[:70, :70], x[:, :70].t().exp() * x[:70, :70].t()),
        lambda: [real(70, 131)],
        1e-5,
    ),
    "of two layouts, in half": (
        lambda x: x.transpose(1, 2) + x.permute(0, 1, 2)[:, :70],
        lambda: [real(3, 70, 70, dtype=torch.bfloat16)],
        1e-2,
    ),
    "of two layouts, in whole blocks": (
        lambda x, i, b: (x.t() + x, i.t() - i, b.t() ^ b),
        lambda: [
            real(128, 128),
            torch.randint(-(2**40), 2**40, (64, 64)),
            torch.randint(-9, 9, (80, 80)).to(torch.int8),
        ],
        1e-6,
    ),
    "broadcast": (lambda x: (x[:, None, :] * x[None, :, :]).mean((0, 2)), lambda: [real(8, 16)], 1e-5),
    "masked loads": (lambda x: F.pad(torch.cat([x, x * 2], 1), (1, 2)), lambda: [real(*ROWS)], 0),
    "a part of a square": (lambda x: x.tril() + x.triu(), lambda: [real(16, 16)], 0),
    "summed into places, double": (
        lambda x, i: torch.zeros(64, 9, device=x.device, dtype=x.dtype).scatter_add(0, i, x),
        lambda: [real(64, 9, dtype=torch.float64), torch.randint(0, 64, (64, 9))],
        1e-9,
    ),
    "what has no lowering": (lambda x: (x.sort(1)[0], x.cumsum(1)), lambda: [real(*ROWS)], 1e-3),
    "bfloat16": (lambda x: (x * 3).relu() + 1, lambda: [real(*ROWS, dtype=torch.bfloat16)], 1e-2),
    "float16": (
        lambda x: (x.softmax(1), x.sum(1), x.exp()),
        lambda: [real(*ROWS, dtype=torch.float16)],
        1e-2,
    ),
    "float64": (lambda x: (x.sin() * 2).sum(1), lambda: [real(*ROWS, dtype=torch.float64)], 1e-12),
    "integers": (lambda i: (i // 3, i % 5, i * 2 - 7, i >> 1, i << 2), lambda: [torch.arange(-20, 20)], 0),
    "bits": (lambda i: (i & 3, i | 8, i ^ 5, ~i), lambda: [torch.arange(-20, 20)], 0),
    "bytes wrap": (lambda i: (i + 200, i * 3, i // 7), lambda: [torch.arange(0, 40, dtype=torch.uint8)], 0),
    "fractions and floors": (lambda x: (x.frac(), x % 0.7, torch.fmod(x, 0.7), x // 0.7), lambda: [real(*ROWS)], 1e-4),
    "powers": (lambda x: (x.abs() ** 1.5, x**3), lambda: [real(*ROWS)], 1e-4),
    "norms": (lambda x: (x.std(0), x.norm(dim=1)), lambda: [real(*ROWS)], 1e-4),
    "places, so many": (lambda x: torch.nonzero_static(x > 0, size=5) + 1, lambda: [real(3, 4)], 0),
    "no elements": (lambda x: (x + 1, x.sum(1)), lambda: [real(3, 0)], 0),
}


@pytest.mark.parametrize("case", FORWARD)
def test_F14_forward(case, device):
    function, make, tolerance = FORWARD[case]
    arguments = make()
    same(compiled(function, device, arguments), function(*arguments), tolerance)


def gradients(function):
    def both(*arguments):
        arguments = [one.detach().clone().requires_grad_(one.is_floating_point()) for one in arguments]
        function(*arguments).float().pow(2).sum().backward()
        return [one.grad for one in arguments if one.grad is not None]

    return both


BACKWARD = {
    "batch norm": (lambda x: F.batch_norm(x, None, None, training=True), lambda: [real(4, 8, 5, 5)]),
    "group norm": (lambda x: F.group_norm(x, 2), lambda: [real(4, 8, 5, 5)]),
    "embedding": (lambda w: F.embedding(torch.tensor([1, 1, 3], device=w.device), w), lambda: [real(8, 16)]),
    "cross entropy": (
        lambda x, w: F.cross_entropy(x @ w, torch.arange(64, device=x.device) % 10),
        lambda: [real(*ROWS), real(129, 10)],
    ),
    "upsampling": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), lambda: [real(2, 3, 8, 8)]),
}


@pytest.mark.parametrize("case", BACKWARD)
def test_F14_backward(case, device):
    function, make = BACKWARD[case]
    arguments = make()
    got = gradients(torch.compile(function))(*(one.to(device) for one in arguments))
    same(got, gradients(function)(*arguments), 1e-3)


def test_the_second_device(device):
    if torch.accelerator.device_count() < 2:
        pytest.skip("the device is alone")
    other = torch.device(device.type, 1)
    x = real(*ROWS)
    got = compiled(lambda x: (x * 2).sum(1), other, [x])
    assert got.device == other
    same(got, (x * 2).sum(1), 1e-4)


@pytest.mark.parametrize(
    "read",
    [lambda x, i: x[i], lambda x, i: x.index_select(0, i), lambda x, i: x.t().gather(1, i[None])],
    ids=["index", "index_select", "gather"],
)
def test_F14_a_place_out_of_range_is_an_error_and_the_device_goes_on(device, read):
    x, run = real(*ROWS).to(device), torch.compile(read)

    def read_and_wait(index):
        run(x, torch.tensor([index], device=device))
        torch.accelerator.synchronize()

    for index in (99, -65):
        with pytest.raises(IndexError, match=f"index {index} is out of range for 64 elements"):
            read_and_wait(index)
        assert (x + 0).shape == ROWS


DIVISIONS = {
    "floor": lambda a, b: a // b,
    "remainder": lambda a, b: a % b,
    "fmod": torch.fmod,
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "chosen afterwards": lambda a, b: torch.where(b == 0, 0, a // b),
}


@pytest.mark.parametrize("dtype", each([torch.int64, torch.int32, torch.uint8]))
@pytest.mark.parametrize("case", DIVISIONS)
def test_F14_a_division_of_integers_by_zero_is_an_error_as_in_eager(device, case, dtype):
    a, b = torch.arange(70).to(dtype), (torch.arange(70) % 7).to(dtype)
    for place in ("cpu", device):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            DIVISIONS[case](a.to(place), b.to(place))
    run = torch.compile(DIVISIONS[case])
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        run(a.to(device), b.to(device)).cpu()
    same(run(a.to(device), (b + 1).to(device)), DIVISIONS[case](a, b + 1), 0)


def test_a_quotient_that_a_mask_hides_is_not_reported(device):
    """Elements that belong to another part of the result are computed from zeros."""

    def function(a, b):
        return torch.cat([a // b, a]), torch.nn.functional.pad(a % b, (1, 1)), a // 3

    a, b = torch.arange(8), torch.arange(1, 9)
    same(torch.compile(function)(a.to(device), b.to(device)), function(a, b), 0)
    _, (code,) = run_and_get_code(torch.compile(lambda a: (a // 3, a % -5)), a.to(device))
    assert "bp_report" not in code  # of numbers that are none


def test_an_assertion_is_eagers(device):
    x = torch.ones(3, device=device)
    call = torch.compile(lambda x: (torch._assert_async(x.sum() > 0, "the sum is positive"), x + 1)[1])

    def call_and_wait(x):
        y = call(x)
        torch.accelerator.synchronize()
        return y

    same(call_and_wait(x), torch.full((3,), 2.0), 0)
    with pytest.raises(RuntimeError, match="the sum is positive"):
        call_and_wait(-x)
    same(call_and_wait(x), torch.full((3,), 2.0), 0)


def test_what_the_dialect_does_not_have_is_a_call_of_the_operator(device):
    x = real(5, 7).abs() + 1

    def function(x):
        zeta, gamma = torch.special.zeta(x + 1, x) + x, torch.polygamma(2, x) + 1
        return torch.special.bessel_j0(x) * 2, zeta, gamma, torch.special.erfcx(x) + 1

    same(compiled(function, device, [x]), function(x), 1e-4)
    y = x.double()
    same(compiled(lambda y: torch.special.i0(y) + y.digamma(), device, [y]), torch.special.i0(y) + y.digamma(), 1e-9)


@pytest.mark.long
def test_the_cpus_kernels_have_such_operators_still():
    x = real(5, 7).abs() + 1
    same(torch.compile(lambda x: torch.special.i0(x.double()) + 1)(x), torch.special.i0(x.double()) + 1, 1e-9)
