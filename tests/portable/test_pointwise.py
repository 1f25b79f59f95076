"""Every operator of the pointwise tables against the CPU: dtypes, layouts, forms, promotion, numbers."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from portable.compare import ALL, FLOATS, INTEGERS, NUMBERS, cases, each, same, same_error, same_with_gradients
from portable.pointwise import compare, tensor

aten = torch.ops.aten
BOOL = [torch.bool]
BITS = INTEGERS + BOOL
USUAL = [torch.float32, torch.bfloat16, torch.int64, torch.bool]

# kernel -> what is called, number of tensors, dtypes. Alone: not on the whole line; from 0 to 1, or above -1 or 0.
UNARY = {
    "abs": (torch.abs, NUMBERS),
    "neg": (torch.neg, NUMBERS),
    "sign": (torch.sign, NUMBERS),
    "sgn": (torch.sgn, NUMBERS),
    "bitwise_not": (torch.bitwise_not, INTEGERS),
    "logical_not": (torch.logical_not, ALL),
    "isposinf": (torch.isposinf, FLOATS),
    "isneginf": (torch.isneginf, FLOATS),
    "isnan": (torch.isnan, FLOATS),
    **{name: (getattr(torch, name), FLOATS) for name in ("ceil", "floor", "round", "trunc", "frac")},
    **{
        name: (getattr(torch, name), ALL)
        for name in (
            *("sqrt", "rsqrt", "reciprocal", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p"),
            *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
            *("erf", "erfc", "sigmoid"),
        )
    },
    "relu": (torch.relu, NUMBERS),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.3), FLOATS),
    "gelu": (F.gelu, FLOATS),
    "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), FLOATS),
    "silu": (F.silu, FLOATS),
    "mish": (F.mish, FLOATS),
    "elu": (lambda x: aten.elu(x, 1.5, 0.7, 1.2), FLOATS),
    "hardtanh": (lambda x: F.hardtanh(x, -1, 2), FLOATS + INTEGERS[:4]),
    "hardswish": (F.hardswish, FLOATS),
    "hardsigmoid": (F.hardsigmoid, FLOATS),
    "softplus": (lambda x: F.softplus(x, 1.3, 4.0), FLOATS),
    "threshold": (lambda x: F.threshold(x, 1, -2), FLOATS + INTEGERS[:4]),
    "softshrink": (lambda x: F.softshrink(x, 0.8), FLOATS),
    "hardshrink": (lambda x: F.hardshrink(x, 0.8), FLOATS),
    "logit": (torch.logit, FLOATS),
    "logit eps": (lambda x: torch.logit(x, 0.1), FLOATS),
    "pow.Tensor_Scalar": (lambda x: x**2.5, FLOATS),
    "pow.Tensor_Scalar of integers": (lambda x: x**5, INTEGERS),
    "pow.Tensor_Scalar square": (lambda x: x**2, NUMBERS),
    "pow.Tensor_Scalar cube": (lambda x: x**3, FLOATS),
    "pow.Tensor_Scalar root": (lambda x: x.clamp(min=-9) ** 0.5, FLOATS),  # of -inf, float16's CPU kernel alone has inf
    "pow.Tensor_Scalar to 1": (lambda x: x**1.0, FLOATS),
    "pow.Tensor_Scalar to 0": (lambda x: x**0.0, FLOATS),
    "pow.Tensor_Scalar inverse": (lambda x: x**-1, FLOATS),
    "pow.Tensor_Scalar inverse square": (lambda x: x**-2, FLOATS),
    "pow.Tensor_Scalar inverse root": (lambda x: (x.clamp(min=-9) + 0.0) ** -0.5, FLOATS),  # of -0.0, likewise
    "pow.Scalar": (lambda x: 2.5**x, FLOATS),
    **{
        f"{name}.Scalar": ((lambda f: lambda x: f(x, 1))(getattr(torch, name)), ALL)
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
    },
    "clamp": (lambda x: torch.clamp(x, -1, 2), FLOATS + INTEGERS[:4]),
    "clamp min": (lambda x: torch.clamp(x, min=1), NUMBERS),
    "clamp max": (lambda x: torch.clamp(x, max=1), NUMBERS),
    "clamp_min": (lambda x: torch.clamp_min(x, 1), NUMBERS),
    "clamp_max": (lambda x: torch.clamp_max(x, 1), NUMBERS),
}
BINARY = {
    "add.Tensor": (lambda x, y: torch.add(x, y, alpha=2), NUMBERS),
    "add.Tensor of bool": (torch.add, BOOL),
    "sub.Tensor": (lambda x, y: torch.sub(x, y, alpha=3), NUMBERS),
    "rsub.Tensor": (lambda x, y: torch.rsub(x, y, alpha=3), NUMBERS),
    "mul.Tensor": (torch.mul, ALL),
    "div.Tensor": (torch.div, ALL),
    "div.Tensor_mode trunc": (lambda x, y: torch.div(x, y, rounding_mode="trunc"), FLOATS),
    "div.Tensor_mode floor": (lambda x, y: torch.div(x, y, rounding_mode="floor"), FLOATS),
    "remainder.Tensor": (torch.remainder, FLOATS),
    "fmod.Tensor": (torch.fmod, FLOATS),
    "pow.Tensor_Tensor": (torch.pow, FLOATS),
    "atan2": (torch.atan2, ALL),
    "hypot": (torch.hypot, FLOATS),
    "copysign.Tensor": (torch.copysign, ALL),
    "logaddexp": (torch.logaddexp, FLOATS),
    "xlogy.Tensor": (torch.xlogy, ALL),
    "heaviside": (torch.heaviside, ALL),
    **{name: (getattr(torch, name), ALL) for name in ("maximum", "minimum", "fmax", "fmin")},
    **{f"{name}.Tensor": (getattr(torch, name), ALL) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{name: (getattr(torch, name), ALL) for name in ("logical_and", "logical_or", "logical_xor")},
    **{f"{name}.Tensor": (getattr(torch, name), BITS) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    "bitwise_left_shift.Tensor": (lambda x, y: torch.bitwise_left_shift(x, y.abs().clamp(max=5)), INTEGERS),
    "bitwise_right_shift.Tensor": (lambda x, y: torch.bitwise_right_shift(x, y.abs().clamp(max=5)), INTEGERS),
    "_prelu_kernel": (aten._prelu_kernel, FLOATS),
    "sigmoid_backward": (aten.sigmoid_backward, FLOATS),
    "tanh_backward": (aten.tanh_backward, FLOATS),
    "threshold_backward": (lambda g, x: aten.threshold_backward(g, x, 0.5), FLOATS),
    "leaky_relu_backward": (lambda g, x: aten.leaky_relu_backward(g, x, 0.2, False), FLOATS),
    "gelu_backward": (aten.gelu_backward, FLOATS),
    "gelu_backward tanh": (lambda g, x: aten.gelu_backward(g, x, approximate="tanh"), FLOATS),
    "silu_backward": (aten.silu_backward, FLOATS),
    "mish_backward": (aten.mish_backward, FLOATS),
    "elu_backward": (lambda g, x: aten.elu_backward(g, 1.5, 0.7, 1.2, False, x), FLOATS),
    "elu_backward result": (lambda g, x: aten.elu_backward(g, 1.5, 0.7, 1.2, True, x), FLOATS),
    "hardtanh_backward": (lambda g, x: aten.hardtanh_backward(g, x, -1, 2), FLOATS),
    "hardswish_backward": (aten.hardswish_backward, FLOATS),
    "hardsigmoid_backward": (aten.hardsigmoid_backward, FLOATS),
    "softplus_backward": (lambda g, x: aten.softplus_backward(g, x, 1.3, 4.0), FLOATS),
    "softshrink_backward": (lambda g, x: aten.softshrink_backward(g, x, 0.8), FLOATS),
    "hardshrink_backward": (lambda g, x: aten.hardshrink_backward(g, x, 0.8), FLOATS),
    "logit_backward": (aten.logit_backward, FLOATS),
    "logit_backward eps": (lambda g, x: aten.logit_backward(g, x, 0.1), FLOATS),
    "clamp.Tensor min": (lambda x, y: torch.clamp(x, min=y), NUMBERS),
    "clamp.Tensor max": (lambda x, y: torch.clamp(x, max=y), NUMBERS),
    "clamp_min.Tensor": (torch.clamp_min, NUMBERS),
    "clamp_max.Tensor": (torch.clamp_max, NUMBERS),
    "lerp.Scalar": (lambda x, y: torch.lerp(x, y, 0.3), FLOATS),
    "masked_fill_.Scalar": (lambda x, y: x.clone().masked_fill_(y > 0, 3), NUMBERS),
    "masked_fill_.Tensor": (
        lambda x, y: x.clone().masked_fill_(y > 0, torch.tensor(3, dtype=x.dtype, device=x.device)),
        NUMBERS,
    ),
}
TERNARY = {
    "where.self": (lambda x, y, z: torch.where(x > 0, y, z), ALL),
    "clamp.Tensor": (torch.clamp, NUMBERS),
    "lerp.Tensor": (torch.lerp, FLOATS),
    "addcmul": (lambda x, y, z: torch.addcmul(x, y, z, value=2), NUMBERS),
    "addcdiv": (lambda x, y, z: torch.addcdiv(x, y, z, value=0.5), FLOATS),
}
CASES = {
    name: (function, arity)
    for arity, table in ((1, UNARY), (2, BINARY), (3, TERNARY))
    for name, (function, _) in table.items()
}
DTYPES = {name: every for name, (_, every) in (UNARY | BINARY | TERNARY).items()}


def is_short(name, dtype):
    """float32; of every second operator also another usual dtype in turn, as all operators share the kernel's text."""
    others = [one for one in DTYPES[name] if one in USUAL[1:]]
    turn = list(DTYPES).index(name)
    is_turn = turn % 2 == 0 or torch.float32 not in DTYPES[name]
    return dtype == torch.float32 or (is_turn and bool(others) and dtype == others[turn // 2 % len(others)])


@pytest.mark.parametrize(("name", "dtype"), cases(DTYPES, is_short))
def test_F07_every_operator_and_dtype(device, ran, name, dtype):
    function, arity = CASES[name]
    inputs = [tensor((5, 31), dtype, seed) for seed in range(arity)]
    if name.startswith(("pow.Tensor_Tensor", "div.Tensor_mode")) and dtype in (torch.bfloat16, torch.float16):
        inputs[1] = inputs[1].clamp(-3, 3)
    if "backward" in name or name.startswith("gelu"):  # where the CPU's vectors and its rest differ
        inputs = [x.nan_to_num(0.25, 5, -5) for x in inputs]
    expected = function(*inputs)
    on_device = [x.to(device) for x in inputs]
    with ran(name.split()[0]):
        got = function(*on_device)
    assert got.dtype == expected.dtype
    compare(got, expected, name)


LAYOUTS = {
    "transposed": lambda x: x.t(),
    "every second": lambda x: x[:, ::2],
    "row": lambda x: x[:1].expand(6, -1),
    "column": lambda x: x[:, :1].expand(-1, 8),
    "offset": lambda x: x[1:, 3:],
    "reversed dims": lambda x: x.reshape(2, 3, 2, 2, 2).permute(4, 2, 0, 3, 1),
    "many dims": lambda x: x.reshape(2, 3, 2, 2, 2).permute(4, 2, 0, 3, 1)[None, :, None],
    "number of elements 1": lambda x: x[:1, :1],
    "none": lambda x: x[:0],
    "0-dim": lambda x: x[0, 0],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", each(["exp", "where.self", "add.Tensor"], "exp", "where.self"))
def test_F07_layouts(device, ran, name, layout):
    function, arity = CASES[name]
    inputs = [tensor((6, 8), torch.float32, seed) for seed in range(arity)]
    first, *others = (LAYOUTS[layout](x) for x in inputs)
    others = [x.contiguous() for x in others]
    with ran(name):
        got = function(LAYOUTS[layout](inputs[0].to(device)), *(x.to(device) for x in others))
    expected = function(first, *others)
    compare(got, expected)
    assert got.stride() == expected.stride()


# What is contiguous in more than one order; operands whose orders differ.
def test_strides_of_a_result_are_the_cpus(device):
    for shape in ((2, 1, 3, 3), (2, 4, 1, 1), (1, 4, 3, 3), (2, 3, 4, 5)):
        x, y = torch.randn(shape), torch.randn(shape)
        last = y.contiguous(memory_format=torch.channels_last)
        for first, second in ((x, y), (y, x), (x, last), (last, x), (last, last)):
            same(first.to(device) + second.to(device), first + second, 0)


def test_an_operand_without_memory_is_an_error(device):
    x = torch.ones(8, device=device)
    y = torch.ones(8, device=device)
    second = y[::2]
    y.untyped_storage().resize_(0)
    for call in (lambda: x + y, lambda: y.exp(), lambda: second + 1):
        with pytest.raises(RuntimeError, match="not allocated yet"):
            call()


def forms(device, name, inputs):
    """The results of the out= and in-place forms, on the device and on the CPU."""
    function = getattr(torch, name)
    for place in (device, "cpu"):
        x = [t.to(place) for t in inputs]
        out = torch.empty(0, device=place)
        function(*x, out=out)
        wide = torch.empty(x[0].shape, dtype=torch.float64, device=place)
        function(*x, out=wide)
        strided = torch.zeros(*x[0].shape, 2, device=place)[..., 0]
        function(*x, out=strided)
        inplace = x[0].clone()
        getattr(inplace, name + "_")(*x[1:])
        yield [out, wide, strided, inplace]


@pytest.mark.parametrize("name", ["exp", "add", "mul", "lt", "addcmul"])
def test_forms(device, ran, name):
    arity = {"exp": 1, "addcmul": 3}.get(name, 2)
    inputs = [tensor((3, 17), torch.float32, seed) for seed in range(arity)]
    with ran({"exp": "exp", "addcmul": "addcmul"}.get(name, f"{name}.Tensor")):
        got, expected = forms(device, name, inputs)
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == b.dtype
        compare(a.float(), b.float())


PROMOTED = [*USUAL, torch.float64, torch.float16, torch.uint8]


def pairs():
    """All pairs; of the short ones each dtype comes first and second, with two others."""
    for i, j in itertools.product(range(len(PROMOTED)), repeat=2):
        marks = () if (j - i) % len(PROMOTED) in (1, 3) else pytest.mark.long
        yield pytest.param((PROMOTED[i], PROMOTED[j]), id=f"{PROMOTED[i]}-{PROMOTED[j]}", marks=marks)


@pytest.mark.parametrize("pair", list(pairs()))
def test_F07_promotion(device, pair):
    for shapes in [((3, 4), (3, 4)), ((3, 4), ()), ((), (4,))]:
        x, y = (tensor(shape, dtype, i) for i, (shape, dtype) in enumerate(zip(shapes, pair, strict=True)))
        got, expected = x.to(device) + y.to(device), x + y
        assert got.dtype == expected.dtype
        compare(got, expected)
        got = x.to(device) + y if y.dim() == 0 else x.to(device).lt(y.to(device))
        compare(got, x + y if y.dim() == 0 else x.lt(y))


@pytest.mark.parametrize("dtype", each(FLOATS))
def test_bounds_that_are_not_numbers(device, dtype):
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([nan, -3.0, -0.0, 0.0, 1.0, inf, -inf, 2.0]).to(dtype)
    bounds = torch.tensor([0.0, nan, 0.0, -0.0, nan, 1.0, -1.0, 5.0]).to(dtype)
    calls = (
        lambda t, b: t.clamp(nan, 1),
        lambda t, b: t.clamp(-1, nan),
        lambda t, b: t.clamp(b, b),
        torch.maximum,
        torch.minimum,
        torch.fmax,
        torch.fmin,
    )
    for call in calls:
        compare(call(x.to(device), bounds.to(device)), call(x, bounds))


@pytest.mark.parametrize("dtype", each(ALL, *USUAL, torch.uint8))
def test_F07_numbers(device, dtype):
    x = tensor((3, 5), dtype, 0)
    for n in (2, 0.1, True, 300, -7):
        for function in (lambda t, n: t + n, lambda t, n: n * t, lambda t, n: t == n, lambda t, n: t < n):
            got, expected = function(x.to(device), n), function(x, n)
            assert got.dtype == expected.dtype
            compare(got, expected)


@pytest.mark.parametrize("value", [2.5, 2 + 0j])
def test_a_mask_takes_a_tensor_of_a_wider_category_that_fits(device, value):
    x = torch.tensor([-1, 0, 1])
    fill = torch.tensor(value)
    found = x.to(device).masked_fill_(x.to(device) > 0, fill.to(device))
    assert torch.equal(found.cpu(), x.masked_fill(x > 0, fill))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: x.add(x[:2]), "must match the size"),
        (lambda x: x.int().add_(1.5), "can't be cast"),
        (lambda x: x.int().add(x.int(), alpha=0.5), "must not be a floating point number"),
        (lambda x: (x > 0) - (x > 0), "two bool tensors is not supported"),
        (lambda x: x[:1].add_(torch.ones(3, 4, device=x.device)), "doesn't match the broadcast shape"),
        (lambda x: x.flatten()[1:].add_(x.flatten()[:-1]), "written-to tensor"),
        (lambda x: x[:1].expand(3, -1).add_(1), "more than one element of the written-to tensor"),
        (lambda x: x.half().masked_fill_(x > 0, 1e9), "without overflow"),
        (lambda x: x.int().masked_fill_(x > 0, torch.tensor(1 + 2j, device=x.device)), "without overflow"),
        (lambda x: x.int() // 0, "ZeroDivisionError"),
        (lambda x: torch.relu(x > 0), "Boolean inputs not supported"),
    ],
)
def test_F08_wrong_calls_raise_torchs_error(device, call, text):
    x = torch.randn(3, 4)
    for place in ("cpu", device):
        with pytest.raises(RuntimeError, match=text):
            call(x.to(place))


@pytest.mark.parametrize("source", each(ALL, torch.float32, torch.bfloat16, torch.uint8))
def test_F09_copies_convert_and_stride(device, source):
    for target in ALL:
        x = tensor((5, 8), source, 0).nan_to_num(0, 3, -3) if source.is_floating_point else tensor((5, 8), source, 0)
        if target == torch.uint8 and source != torch.bool:
            x = x.abs()
        y = torch.zeros(8, 5, dtype=target)
        got = y.to(device)
        got.copy_(x.to(device).t())
        assert torch.equal(got.cpu(), y.copy_(x.t()))


def test_F09_a_complex_transposition_moves_bits(device):
    x = torch.randn(5, 7, dtype=torch.complex64)
    assert torch.equal(x.to(device).t().contiguous().cpu(), x.t().contiguous())


def test_gradients_are_the_cpus(device):
    def function(x):
        return F.gelu(x * 2) + torch.sigmoid(x) * F.silu(x) - torch.tanh(x).clamp(-0.5, 0.9)

    same_with_gradients(device, function, torch.randn(6, 9))


@pytest.mark.parametrize(("dtype", "exponent"), [(torch.int64, -1), (torch.int8, 300), (torch.uint8, 256)])
def test_an_exponent_that_integers_do_not_have_is_the_cpus_error(device, dtype, exponent):
    same_error(device, lambda x: x**exponent, torch.tensor([1, 2], dtype=dtype))


@pytest.mark.parametrize("call", [lambda x: x.clamp_max_(2.5), lambda x: x.clamp_(1.5, 2.5), lambda x: x.pow_(2.5)])
def test_a_result_that_the_operand_cannot_hold_is_the_cpus_error(device, call):
    same_error(device, call, torch.tensor([1, 2]))
