"""The special functions, and the operators of the tables that test_pointwise.py leaves, against the CPU."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from portable.compare import FLOATS, INTEGERS, cases, each, same, same_error, with_gradients
from torch_backplane import fallback

aten, special = torch.ops.aten, torch.special
WIDE = [torch.float32, torch.float64]
SPECIAL = [float("inf"), -float("inf"), float("nan"), 0.0, -0.0, 1.0, -1.0, -2.0, 0.5, 2.0, 1e-30, 1e30, 8.0, -8.0]

# kernel -> function, dtypes, and where the CPU and the kernel differ: at infinity the CPU has NaN.
UNARY = {
    "lgamma": (torch.lgamma, FLOATS),
    "digamma": (torch.digamma, FLOATS),
    **{f"polygamma {n}": (partial(torch.polygamma, n), FLOATS) for n in (0, 1, 2, 5)},
    "sinc": (torch.sinc, FLOATS),
    "special_entr": (special.entr, FLOATS),
    "erfinv": (torch.erfinv, FLOATS),
    "special_erfcx": (special.erfcx, WIDE),
    "special_ndtri": (special.ndtri, WIDE),
    "special_log_ndtr": (special.log_ndtr, WIDE),
    "i0": (torch.i0, FLOATS),
    "special_i0e": (special.i0e, FLOATS),
    "special_i1": (special.i1, FLOATS),
    "special_i1e": (special.i1e, FLOATS),
    **{
        f"special_{name}": (getattr(special, name), WIDE)
        for name in (
            *("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "spherical_bessel_j0", "airy_ai"),
            *("modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1"),
            *("scaled_modified_bessel_k0", "scaled_modified_bessel_k1"),
        )
    },
}
INFINITE_OR_NAN = {"i0", "special_i1", "special_modified_bessel_i0", "special_modified_bessel_i1", "special_airy_ai"}
POLYNOMIALS = [
    *(f"chebyshev_polynomial_{kind}" for kind in "tuvw"),
    *(f"shifted_chebyshev_polynomial_{kind}" for kind in "tuvw"),
    *("hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"),
]


def values(dtype, count=400, seed=0, low=-12.0, high=12.0):
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, (count,), generator=generator).to(dtype)
    if not dtype.is_floating_point:
        return torch.randint(0 if dtype == torch.uint8 else -9, 10, (count,), generator=generator).to(dtype)
    x = torch.rand(count, generator=generator, dtype=torch.float64) * (high - low) + low
    x[::3] /= 12  # where inverses are defined
    x[: len(SPECIAL)] = torch.tensor(SPECIAL, dtype=torch.float64)
    return x.to(dtype)


STEPS = {torch.bfloat16: 2**-7, torch.float16: 2**-10, torch.float32: 4e-6, torch.float64: 1e-11}


def compare(got, expected, scale=1.0):
    same(got, expected, {dtype: step * scale for dtype, step in STEPS.items()})


@pytest.fixture
def agree(agree):
    return lambda *call, scale=1.0: agree(*call, compare=partial(compare, scale=scale))


def with_whole_numbers(table):
    return cases({name: [*every, torch.int64, torch.bool] for name, (_, every) in table.items()})


@pytest.mark.parametrize(("name", "dtype"), with_whole_numbers(UNARY))
def test_functions_of_one_number(agree, name, dtype):
    function, _ = UNARY[name]
    x = values(dtype)
    if name.startswith("polygamma") and dtype.is_floating_point:
        # at the poles the CPU's reflection gives large numbers; near them, and where it is steep, both are off
        x = torch.where((x > 0.2) | ((x - x.round()).abs() > 0.1), x, torch.ones_like(x))
    if name == "digamma" and dtype.is_floating_point:
        x = torch.where((x > 0.2) | ((x - x.round()).abs() > 0.1) | (x == x.round()), x, torch.ones_like(x))
    if name in INFINITE_OR_NAN:
        x = x.where(x.isfinite(), torch.ones_like(x)) if dtype.is_floating_point else x
    if name == "polygamma 1" and not dtype.is_floating_point:
        x[x < 1] = 1
    # of float64 the CPU's own functions are that far off
    rough = dtype == torch.float64 and ("bessel_" in name or "airy" in name or name == "polygamma 1")
    agree(name.split()[0], function, x, scale=1e6 if rough else 4.0 if "airy" in name or "gamma" in name else 2.0)


@pytest.mark.parametrize("dtype", each(WIDE))
@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials(device, ran, name, dtype):
    function = getattr(special, name)
    x = values(dtype, low=-1.5, high=1.5)
    x = x.where(x.abs() < 1e3, torch.full_like(x, 0.25))
    n = torch.arange(400).remainder(14).to(dtype) - 1.25 * (torch.arange(400) % 2)  # fractions are dropped
    with ran(f"special_{name}"):
        got = function(x.to(device), n.to(device))
    expected = function(x, n)
    size = expected.abs().nan_to_num(1, 1, 1).clamp_min(1)
    compare(got / size.to(device), expected / size, scale=20)


# They share their text but for the recurrence.
each_polynomial = pytest.mark.parametrize("name", each(POLYNOMIALS))


@each_polynomial
def test_polynomials_of_numbers_and_integers(agree, name):
    x, i = torch.linspace(-0.9, 0.9, 9), torch.arange(5)
    for operands in ((x, 5), (0.3, i), (i, i.flip(0))):
        agree(f"special_{name}", getattr(special, name), *operands, scale=100)


@each_polynomial
def test_degrees_that_are_none(device, name):
    x = torch.tensor([0.3, 2.0, -1.0, 1.0, 0.0, float("nan")])
    for degree in (-3.0, float("nan"), 1e30, 0.0, 1000.0, 30.0):
        n = torch.full_like(x, degree)
        got = getattr(special, name)(x.to(device), n.to(device)).cpu()
        expected = getattr(special, name)(x, n)
        if degree in (30.0, 1000.0):  # NaN or not, and the ends
            assert torch.equal(got[:5].isnan(), expected[:5].isnan())
            compare(got[2:4], expected[2:4], scale=100)
        else:
            compare(got, expected)


BINARY = {
    "special_xlog1py": (special.xlog1py, FLOATS),
    "special_zeta": (lambda x, q: special.zeta((x * x) ** 0.5 + 1.1, (q * q) ** 0.5), WIDE),
    "special_zeta of negative": (lambda x, q: special.zeta((x * x).clamp(2, 9).round(), -((q * q) ** 0.5)), WIDE),
    "igamma": (lambda a, x: torch.igamma(a.abs(), x.abs()), FLOATS),
    "igammac": (lambda a, x: torch.igammac(a.abs(), x.abs()), FLOATS),
    "logaddexp2": (torch.logaddexp2, FLOATS),
    "nextafter": (torch.nextafter, FLOATS),
    "floor_divide": (torch.floor_divide, FLOATS),
}


OF_FLOATS = ("logaddexp2", "nextafter", "floor_divide")


@pytest.mark.parametrize(
    ("name", "dtype"), with_whole_numbers({name: row for name, row in BINARY.items() if name not in OF_FLOATS})
)
def test_functions_of_two_numbers(device, agree, ran, name, dtype):
    function, dtypes = BINARY[name]
    if dtype not in dtypes and not name.startswith("special"):
        pytest.skip("the CPU takes floats alone")
    x, y = values(dtype), values(dtype, seed=1)
    if dtype.is_floating_point:
        y[:14], x[:14] = y[:14].roll(3), x[:14].clone()
    if "zeta" in name and dtype.is_floating_point:
        y = torch.where((y - y.round()).abs() > 0.1, y, torch.full_like(y, 0.3))
        x = x.where(x.abs() < 1e3, torch.full_like(x, 2))
    if "igamma" in name and dtype in (torch.bfloat16, torch.float16):  # the CPU computes in the half type
        with ran(name):
            got = function(x.to(device), y.to(device)).cpu().float()
        near = torch.isclose(got, function(x, y).float(), rtol=0.05, atol=0.02, equal_nan=True)
        assert near.float().mean() > 0.97
    else:
        agree(name.split()[0], function, x, y, scale=10 if "zeta" in name else 4)


@pytest.mark.parametrize("dtype", each(WIDE))
def test_zeta_of_large_numbers(device, ran, dtype):
    s = torch.tensor([40.0, 50.0, 1e3, 1e6, 1e7, 3e38, float("inf")], dtype=dtype)[:, None]
    q = torch.tensor([1.0, 2.0, 2.5, 1e10, 0.5, 0.0, -2.0, float("inf"), float("nan")], dtype=dtype)
    with ran("special_zeta"):
        got = special.zeta(s.to(device), q.to(device))
    expected = special.zeta(s, q)
    expected[-2:, 1:4] = 0  # the CPU's series gives NaN of so large an s
    compare(got, expected)


@pytest.mark.parametrize("name", OF_FLOATS)
@pytest.mark.parametrize("dtype", each(FLOATS, torch.float32, torch.bfloat16))
def test_pairs_of_floats(device, ran, name, dtype):
    function, _ = BINARY[name]
    x, y = values(dtype, seed=2), values(dtype, seed=3).roll(1)
    expected = function(x, y)
    with ran(name):
        got = function(x.to(device), y.to(device))
    if name == "nextafter":
        assert torch.equal(got.cpu().nan_to_num(), expected.nan_to_num())
        assert torch.equal(got.cpu().signbit(), expected.signbit()) or dtype == torch.bfloat16
    elif name == "floor_divide":
        torch.testing.assert_close(got.cpu(), expected, equal_nan=True)
    else:
        compare(got, expected)


@pytest.mark.parametrize("dtype", each(WIDE))
def test_incomplete_gamma_of_large_numbers(device, dtype):
    a = torch.tensor(
        [0.0, 0.0, 1e-10, 1e-3, 1, 9.9, 10, 99, 1000, 5000, 2e4, 1e5, 1e6, float("inf"), -1.0], dtype=dtype
    )
    for factor in (0.0, 0.2, 0.9, 0.99, 1.0, 1.01, 1.2, 3, float("inf")):
        x = torch.where((a > 0) & a.isfinite(), a * factor, torch.full_like(a, factor))
        for function in (torch.igamma, torch.igammac):
            got, expected = function(a.to(device), x.to(device)).cpu(), function(a, x)
            tolerance = 3e-4 if dtype == torch.float32 else 1e-8  # what the CPU itself is off
            torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


INTEGER_OPERATORS = {
    "gcd": torch.gcd,
    "lcm": torch.lcm,
    "remainder.Tensor": lambda x, y: x % 7,
    "remainder.Tensor negative": lambda x, y: x % -3,
    "fmod.Tensor": lambda x, y: torch.fmod(x, -4),
    "fmod.Tensor by -1": lambda x, y: torch.fmod(x, -1),
    "floor_divide": lambda x, y: x // 3,
    "floor_divide negative": lambda x, y: x // -2,
    "div.Tensor_mode floor": lambda x, y: torch.div(x, -5, rounding_mode="floor"),
    "div.Tensor_mode trunc by -1": lambda x, y: torch.div(x, -1, rounding_mode="trunc"),
    "signbit": lambda x, y: torch.signbit(x),
    "sign": lambda x, y: torch.sign(x),
    "bitwise_not": lambda x, y: ~x,
    "ceil": lambda x, y: torch.ceil(x),
    "round": lambda x, y: torch.round(x),
    "__lshift__.Tensor": lambda x, y: aten.__lshift__(x, y & 3),
    "__rshift__.Tensor": lambda x, y: aten.__rshift__(x, y & 3),
    "__lshift__.Scalar": lambda x, y: x << 2,
    "__rshift__.Scalar": lambda x, y: x >> 1,
}


@pytest.mark.parametrize("dtype", each(INTEGERS))
@pytest.mark.parametrize("name", INTEGER_OPERATORS)
def test_integers(agree, name, dtype):
    x, y = values(dtype), values(dtype, seed=1)
    least = torch.iinfo(dtype).min
    x[:2] = torch.tensor([least + 1 if "-1" in name else least, torch.iinfo(dtype).max], dtype=dtype)
    agree(name.split()[0], INTEGER_OPERATORS[name], x, y)


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod"])
def test_integers_by_zero_raise_what_the_cpu_raises(device, name):
    x = torch.arange(4)
    for operands in ((x, 0), (x, x), (x.byte(), 256)):  # 0 as an unsigned byte
        same_error(device, getattr(torch, name), *operands)


@pytest.mark.parametrize("dtype", each(INTEGERS[:4], torch.int64, torch.int8))
def test_the_smallest_integer_by_minus_one_wraps(device, dtype):
    least = torch.iinfo(dtype).min
    x = torch.tensor([least, least, -7], dtype=dtype, device=device)
    for divisor in (-1, torch.full_like(x, -1)):
        assert torch.div(x, divisor, rounding_mode="trunc").tolist() == [least, least, 7]
        assert x.clone().div_(divisor, rounding_mode="trunc").tolist() == [least, least, 7]


@pytest.mark.parametrize("name", ["bitwise_not", "sign", "sgn", "signbit"])
def test_bools(agree, name):
    agree(name, getattr(torch, name), torch.tensor([True, False, True]))


@pytest.mark.parametrize("dtype", each(FLOATS, torch.float32, torch.bfloat16))
def test_signs_angles_and_decimals(agree, dtype):
    x = values(dtype, seed=5)
    agree("signbit", torch.signbit, x)
    agree("angle", torch.angle, x)
    x = x.where(x.abs() < 1e4, torch.ones_like(x))
    for decimals in (0, 1, 3, -1, -3):
        agree("round.decimals", lambda x, n: torch.round(x * 100, decimals=n), x, decimals)


def test_a_negative_derivative_raises_what_the_cpu_raises(device):
    same_error(device, torch.polygamma, -1, torch.ones(3))


def test_forms_and_layouts(device, ran):
    x = values(torch.float32, 60).nan_to_num(1, 2, 3).clamp(-20, 20).reshape(6, 10).abs() + 0.5
    results = []
    for place in ("cpu", device):
        y = x.to(place)
        out = torch.empty(0, dtype=torch.float64, device=place)
        torch.lgamma(y.t()[::2], out=out)
        z = y.clone()
        z[:, ::2].digamma_()
        results.append([out.contiguous(), z, torch.lgamma(y.t()), special.zeta(y[:, :1] + 1, y[0])])
    same(results[1], results[0], 1e-5)


def test_gradients(device):
    x = values(torch.float32, 64).nan_to_num().abs().clamp(0.1, 0.8)
    functions = torch.lgamma, torch.digamma, torch.erfinv, torch.i0, torch.sinc, special.i1, special.ndtri, special.entr
    for function in (*functions, F.logsigmoid):
        with fallback.budget(calls=99 if function is F.logsigmoid else 0):
            got = with_gradients(function, device, x)
        same(got, with_gradients(function, "cpu", x), 2e-5)
