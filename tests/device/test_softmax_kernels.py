"""The host kernels of softmax, log_softmax and layer_norm equal the CPU's, and are what ran."""

import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.requires("host_exec")

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
# Gradients of the half types come from results that may differ by a rounding.
TOLERANCE = {
    torch.float32: {"rtol": 1e-5, "atol": 1e-5},
    torch.float64: {},
    torch.bfloat16: {"rtol": 3e-2, "atol": 3e-2},
    torch.float16: {"rtol": 4e-3, "atol": 4e-3},
}
SOFTMAX = {"_softmax": F.softmax, "_log_softmax": F.log_softmax}


def random(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).mul(3).to(dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("op", SOFTMAX)
def test_softmax_over_any_dimension(equals_cpu, op, dim, dtype):
    equals_cpu(op, lambda x: SOFTMAX[op](x, dim), random(5, 67, 40, dtype=dtype), grad=True, **TOLERANCE[dtype])


@pytest.mark.parametrize("op", SOFTMAX)
def test_softmax_of_other_layouts(equals_cpu, op):
    softmax = SOFTMAX[op]
    x = random(6, 7, 40)
    for view in (
        lambda t: t.transpose(0, 2),
        lambda t: t[::2, 1:, ::3],
        lambda t: t[:1].expand_as(t),
        lambda t: t[0, 0, 0],
    ):
        equals_cpu(op, lambda t, view=view: softmax(view(t), 0), x, grad=True, rtol=1e-5, atol=1e-5)
    for shape in ((0, 3), (3, 0)):
        equals_cpu(op, lambda t: softmax(t, 1), torch.ones(shape))


@pytest.mark.parametrize("op", SOFTMAX)
def test_softmax_of_masked_and_extreme_rows(equals_cpu, op):
    inf, nan = float("inf"), float("nan")
    rows = [
        [0.0, -inf, 1.0, -inf], [-inf] * 4, [inf, 0.0, 0.0, 0.0], [nan, 0.0, 1.0, 2.0], [1e30, -1e30, 88.0, 1e30],
        [0.0, -86.9, -87.1, -200.0],
    ]  # fmt: skip
    equals_cpu(op, lambda t: SOFTMAX[op](t, 1), torch.tensor(rows), equal_nan=True)
    equals_cpu(op, lambda t: SOFTMAX[op](t, 1), torch.tensor(rows).repeat(1, 10), equal_nan=True)


@pytest.mark.parametrize("op", SOFTMAX)
def test_softmax_into_out(device, op, kernel_calls):
    raw = getattr(torch, op)
    x = random(9, 20)
    expected = raw(x, 1, False)
    before = kernel_calls(op)
    for out in (torch.empty(0, device=device), torch.zeros(20, 9, device=device).t()):
        assert raw(x.to(device), 1, False, out=out) is out
        torch.testing.assert_close(out.cpu(), expected)
    assert kernel_calls(op) - before == 2


def test_softmax_with_a_dtype(equals_cpu):
    equals_cpu("_softmax", lambda x: F.softmax(x, -1, dtype=torch.float32), random(5, 6, dtype=torch.bfloat16))
    equals_cpu("_softmax", lambda x: F.softmax(x, -1, dtype=torch.float64), torch.arange(12).view(3, 4))


@pytest.mark.parametrize(
    "bad",
    [lambda d: torch.ones(2, device=d).softmax(2), lambda d: torch.ones(2, device=d, dtype=torch.int64).softmax(0)],
)
def test_softmax_errors_are_the_cpus(device, bad):
    with pytest.raises((RuntimeError, IndexError)) as expected:
        bad("cpu")
    with pytest.raises(type(expected.value)) as found:
        bad(device)
    if isinstance(expected.value, IndexError):
        assert str(found.value).splitlines()[0] == str(expected.value).splitlines()[0]


def parameters(*shape, dtype):
    return random(*shape, dtype=dtype), random(*shape, 1, dtype=dtype).squeeze(-1)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(40,), (7, 40)], ids=str)
def test_layer_norm(equals_cpu, shape, dtype):
    tolerance = {"rtol": 5e-2, "atol": 2e-1} if dtype == torch.bfloat16 else TOLERANCE[dtype]
    if dtype == torch.float16:
        tolerance = {"rtol": 1e-2, "atol": 3e-2}
    x = random(5, 7, 40, dtype=dtype)
    weight, bias = parameters(*shape, dtype=dtype)
    op = "native_layer_norm"
    equals_cpu(op, lambda x, w, b: F.layer_norm(x, shape, w, b), x, weight, bias, grad=True, **tolerance)
    equals_cpu(op, lambda x, w: F.layer_norm(x, shape, w), x, weight, grad=True, **tolerance)
    equals_cpu(op, lambda x: F.layer_norm(x, shape), x, grad=True, **tolerance)
    equals_cpu(
        op, lambda x: F.layer_norm(x.transpose(0, 1).contiguous().transpose(0, 1), shape), x, grad=True, **tolerance
    )


def test_layer_norm_backward_is_the_kernel(device, kernel_calls):
    x = random(4, 8).to(device).requires_grad_()
    before = kernel_calls("native_layer_norm_backward")
    F.layer_norm(x, (8,)).sum().backward()
    assert kernel_calls("native_layer_norm_backward") - before == 1


def test_layer_norm_far_from_zero_keeps_its_digits(equals_cpu):
    equals_cpu("native_layer_norm", lambda x: F.layer_norm(x, (512,)), random(3, 512) + 1000, rtol=1e-3, atol=1e-3)


def test_layer_norm_of_nothing(equals_cpu):
    equals_cpu("native_layer_norm", lambda x: F.layer_norm(x, (8,)), torch.ones(0, 8))
    equals_cpu("native_layer_norm", lambda x, w: F.layer_norm(x, (0,), w), torch.ones(3, 0), torch.ones(0), calls=0)


def test_layer_norm_of_single_elements_goes_to_the_fallback(equals_cpu):
    equals_cpu("native_layer_norm", lambda x: F.layer_norm(x, (1,)), random(3, 1), calls=0, grad=True)


def test_layer_norm_of_mixed_dtypes_goes_to_the_fallback(equals_cpu):
    x, weight, bias = random(3, 8, dtype=torch.bfloat16), torch.ones(8), torch.zeros(8)
    equals_cpu("native_layer_norm", lambda x, w, b: F.layer_norm(x, (8,), w, b), x, weight, bias, calls=0)


@pytest.mark.parametrize(
    "bad",
    [
        lambda d: F.layer_norm(torch.ones(3, 4, device=d), (5,)),
        lambda d: F.layer_norm(torch.ones(3, 4, device=d), (4,), torch.ones(5, device=d)),
        lambda d: F.layer_norm(torch.ones(3, 4, device=d), ()),
    ],
)
def test_layer_norm_errors_are_the_cpus(device, bad):
    with pytest.raises(RuntimeError) as expected:
        bad("cpu")
    with pytest.raises(RuntimeError) as found:
        bad(device)
    assert str(found.value).splitlines()[0] == str(expected.value).splitlines()[0]


LONG = {
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "log_softmax": lambda x: F.log_softmax(x, 1),
    "softmax": lambda x: F.softmax(x, 1) * x.shape[1],
    "matrix times vector": lambda x: (x @ x[0]) / x.shape[1],
}


@pytest.mark.parametrize("call", LONG)
def test_rows_of_millions_lose_no_precision(device, call):
    x = torch.rand(2, 1 << 22, generator=torch.Generator().manual_seed(0)) + 1
    right = LONG[call](x.double())
    error = (LONG[call](x.to(device)).cpu().double() - right).abs().max().item()
    cpus = (LONG[call](x).double() - right).abs().max().item() if call.startswith("matrix") else 0.0
    assert error <= max(4e-6, cpus)
