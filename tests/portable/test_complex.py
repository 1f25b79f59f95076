"""complex64 against the CPU: pointwise operators, copies, lazy conjugates, reductions, products, places, gradients."""

import itertools
import math
from functools import partial

import pytest
import torch

from portable.compare import FLOATS, each, with_gradients
from torch_backplane import fallback

C64 = torch.complex64
ELEMENTARY = {
    **{name: getattr(torch, name) for name in ("abs", "angle", "neg", "sgn", "sqrt", "rsqrt", "reciprocal", "isnan")},
    **{name: getattr(torch, name) for name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sigmoid")},
    **{name: getattr(torch, name) for name in ("sin", "cos", "tan", "asin", "acos", "atan", "sinc")},
    **{name: getattr(torch, name) for name in ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh")},
    "silu": torch.nn.functional.silu,
    "logical_not": torch.logical_not,
    "pow.Tensor_Scalar": lambda x: x ** (0.5 - 1j),
    "pow.Tensor_Scalar square": lambda x: x**2,
    "pow.Tensor_Scalar cube": lambda x: x**3,
    "pow.Tensor_Scalar root": lambda x: x**0.5,
    "pow.Tensor_Scalar to 1": lambda x: x**1,
    "pow.Tensor_Scalar to 0": lambda x: x**0,
    "pow.Tensor_Scalar inverse": lambda x: x**-1,
    "pow.Tensor_Scalar inverse square": lambda x: x**-2,
    "pow.Tensor_Scalar inverse root": lambda x: x**-0.5,
    "pow.Scalar": lambda x: (1.5 + 1j) ** x,
    "eq.Scalar": lambda x: x == 1j,
    "ne.Scalar": lambda x: x != 1j,
    "masked_fill_.Scalar": lambda x: x.clone().masked_fill_(x.real > 0, 2 - 1j),
}
SEVERAL = {
    "add.Tensor": (lambda x, y: torch.add(x, y, alpha=2 - 1j), 2),
    "sub.Tensor": (lambda x, y: torch.sub(x, y, alpha=1j), 2),
    "rsub.Tensor": (lambda x, y: torch.rsub(x, y, alpha=1j), 2),
    "mul.Tensor": (torch.mul, 2),
    "div.Tensor": (torch.div, 2),
    "pow.Tensor_Tensor": (torch.pow, 2),
    "eq.Tensor": (torch.eq, 2),
    "ne.Tensor": (torch.ne, 2),
    "logical_and": (torch.logical_and, 2),
    "logical_or": (torch.logical_or, 2),
    "logical_xor": (torch.logical_xor, 2),
    "sigmoid_backward": (torch.ops.aten.sigmoid_backward, 2),
    "tanh_backward": (torch.ops.aten.tanh_backward, 2),
    "lerp.Scalar": (lambda x, y: torch.lerp(x, y, 0.3), 2),
    "where.self": (lambda x, y, z: torch.where(x.real > 0, y, z), 3),
    "masked_fill_.Tensor": (lambda x, y: x.clone().masked_fill_(x.real > 0, y[0, 0]), 2),
    "lerp.Tensor": (torch.lerp, 3),
    "addcmul": (lambda x, y, z: torch.addcmul(x, y, z, value=2j), 3),
    "addcdiv": (lambda x, y, z: torch.addcdiv(x, y, z, value=2 - 1j), 3),
}
CASES = {**{name: (function, 1) for name, function in ELEMENTARY.items()}, **SEVERAL}


def numbers(*shape):
    """Random numbers, and 0, 1, i and -1 among them."""
    x = torch.randn(*shape, dtype=C64)
    for place, value in zip(range(0, x.numel(), 7), (0, 1, 1j, -1, 3, -4j), strict=False):
        x.view(-1)[place] = value
    return x


def compare(got, expected, rtol=1e-5, atol=2e-6):
    torch.testing.assert_close(got.cpu(), expected, rtol=rtol, atol=atol, equal_nan=True)


@pytest.mark.parametrize("name", CASES)
def test_F07_every_operator(device, ran, name):
    function, arity = CASES[name]
    inputs = [numbers(5, 31) if arity == 1 else torch.randn(5, 31, dtype=C64) for _ in range(arity)]
    expected = function(*inputs)
    if arity == 1:  # at a pole the CPU's vectors and its rest disagree
        inputs = [torch.where(expected.isfinite(), x, 0.5) for x in inputs]
        expected = function(*inputs)
    with ran(name.split()[0]):
        got = function(*[x.to(device) for x in inputs])
    assert got.dtype == expected.dtype
    compare(got, expected)


def test_quotients_roots_and_moduli_do_not_overflow_on_the_way(device):
    for scale in (1e-30, 1e-10, 1e10, 1e18, 3e38):
        x = torch.randn(100, dtype=C64, generator=torch.Generator().manual_seed(0))
        x *= scale / x.abs().max()
        for function in (torch.abs, torch.sgn, torch.sqrt, torch.log, lambda t: t / t.flip(0), lambda t: t / t):
            expected = function(x.to(torch.complex128))
            compare(function(x.to(device)), expected.to(C64 if expected.is_complex() else torch.float32), atol=0)


@pytest.mark.parametrize("name", "exp sqrt log asin acos asinh acosh atan atanh sinh cosh".split())
def test_what_is_infinite_or_on_a_cut_is_as_in_c(device, name):
    """Annex G of C99, as NumPy's and the C library's functions have it; where that leaves a part open, so does this."""
    inf = math.inf
    reals, imaginaries = [0.0, -0.0, 0.5, -2.0, 3.0, 90.0, -90.0, inf, -inf], [0.0, -0.0, 1.0, -1.0, inf, -inf]
    x = torch.tensor([complex(re, im) for re, im in itertools.product(reals, imaginaries)], dtype=C64)
    got = getattr(torch, name)(x.to(device)).cpu()
    expected = torch.stack([getattr(torch, name)(value) for value in x])  # one by one: the C library's
    is_told = ~(torch.view_as_real(expected).isnan() | torch.view_as_real(got).isnan()).any(1)
    assert is_told.sum() > 0.6 * x.numel()
    assert not torch.view_as_real(got[expected.isfinite()]).isnan().any()
    for part in ("real", "imag"):
        compare(getattr(got, part)[is_told], getattr(expected, part)[is_told])
        is_certain = is_told & expected.isfinite() & x.imag.isfinite()
        signs = [torch.signbit(getattr(value, part)[is_certain]) for value in (got, expected)]
        assert torch.equal(*signs)


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("other", each([*FLOATS, torch.int64, torch.uint8, torch.bool], torch.float16, torch.int64))
def test_F09_copies_convert_stride_and_conjugate(agree, other):
    x = (torch.randint(0, 9, (5, 8)) + 1j * torch.randint(-1, 2, (5, 8))).to(C64)
    real = x.real.to(other)
    for function, value in (
        (lambda t: t.t().to(other), x),
        (lambda t: t.conj().t().to(other), x),
        (lambda t: t.t().to(C64), real),
    ):
        agree("copy_", function, value)


def test_conjugates_and_negatives_are_written_out_by_one_kernel(agree):
    x = torch.randn(5, 8, dtype=C64)
    for function in (
        lambda t: t.conj().clone(),
        lambda t: t.conj().t().contiguous(),
        lambda t: t.t().resolve_conj().conj().resolve_conj(),
        lambda t: t.conj().imag.clone(),
        lambda t: torch.zeros_like(t).conj().copy_(t),
        lambda t: torch._neg_view(t.conj()).clone(),
        torch.conj_physical,
        lambda t: t.clone().conj_physical_(),
        lambda t: torch.conj_physical(t, out=torch.empty(8, 5, dtype=C64, device=t.device).t()),
    ):
        agree("copy_", function, x)


def test_an_empty_result_of_conj_physical_gets_the_operands_strides(device):
    x = torch.randn(3, 4, 5, dtype=C64).transpose(1, 2)
    out = torch.empty(0, dtype=C64, device=device)
    torch.conj_physical(x.to(device), out=out)
    assert out.stride() == (20, 1, 5)
    assert torch.equal(out.cpu(), torch.conj_physical(x))


def test_real_operands_and_numbers_are_promoted(device):
    x, real = torch.randn(4, 3, dtype=C64), torch.randn(3)
    for function in (
        lambda x, real: x * real,
        lambda x, real: real / x,
        lambda x, real: real * 2j,
        lambda x, real: 1 / x + real.half() - (1 + 2j),
        lambda x, real: x == real.long(),
        lambda x, real: torch.where(real > 0, x, 3j),
        lambda x, real: x.mul_(real.double()),
        lambda x, real: torch.mul(x, real, out=x),
        lambda x, real: torch.abs(x, out=torch.empty(0, device=x.device)),
        lambda x, real: x.eq_(real),
    ):
        expected, got = function(x.clone(), real), function(x.to(device), real.to(device))
        assert got.dtype == expected.dtype
        compare(got, expected)


@pytest.mark.parametrize("name", "mul div sub pow eq ne logical_and sqrt exp tanh reciprocal sgn neg".split())
def test_in_place_both_parts_are_read_before_one_is_written(device, name):
    x, y = numbers(40, 31), numbers(40, 31).roll(1, 0)
    others = (y,) if name in "mul div sub pow eq ne logical_and".split() else ()
    expected = getattr(torch, name)(x, *others).to(C64)
    got = x.to(device)
    getattr(got, name + "_")(*[other.to(device) for other in others])
    at = expected.isfinite()
    compare(got.cpu()[at], expected[at])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: x < x, "not implemented for 'ComplexFloat'"),
        (lambda x: x.abs_(), "not supported for complex"),
        (lambda x: torch.add(x.real, x.real, alpha=1j), "must not be a complex number"),
        (lambda x: x.real.add_(x), "can't be cast"),
        (lambda x: torch.floor(x), "complex"),
    ],
)
def test_F08_wrong_calls_raise_torchs_error(device, call, text):
    for place in ("cpu", device):
        with pytest.raises(RuntimeError, match=text):
            call(torch.ones(3, dtype=C64, device=place))


REDUCTIONS = {
    "sum.dim_IntList": lambda x, dim: x.sum(dim),
    "sum.dim_IntList keepdim": lambda x, dim: x.sum(dim, keepdim=True),
    "mean.dim": lambda x, dim: x.mean(dim),
    "any": lambda x, dim: x.any(dim),
    "all": lambda x, dim: x.all(dim),
    "count_nonzero.dim_IntList": lambda x, dim: torch.count_nonzero(x, dim),
    "norm_2": lambda x, dim: torch.linalg.vector_norm(x, 2, dim),
    "norm_2 dtype": lambda x, dim: torch.linalg.vector_norm(x, 2, dim, dtype=C64),
    "norm_inf": lambda x, dim: torch.linalg.vector_norm(x, math.inf, dim),
    "var.correction": lambda x, dim: x.var(dim),
    "std.correction": lambda x, dim: x.std(dim, keepdim=True),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(device, name):
    x = torch.randn(6, 5, 40, dtype=C64)
    x[0, 0, 3] = 0
    for dim in (0, 1, -1, (0, 2), None):
        with fallback.budget(calls=0):
            got = REDUCTIONS[name](x.to(device).mT, dim)
        compare(got, REDUCTIONS[name](x.mT, dim), atol=1e-5)


@pytest.mark.parametrize("count", [4095, 4096, 4097, 100_003])
def test_the_sum_of_many_in_order(device, ran, count):
    x = torch.complex(torch.arange(count) % 7.0, torch.arange(count) % 5.0 - 2)  # exact whatever the order is
    out = torch.empty((), dtype=C64, device=device)
    with ran("sum.dim_IntList"):
        assert x.to(device).sum().item() == x.sum().item()
        assert torch.sum(x.to(device), (0,), out=out).item() == x.sum().item()
        compare(x.to(device).mean(), x.mean())
    assert x.to(device).view(1, -1).sum(keepdim=True, dim=(0, 1)).shape == (1, 1)


def test_products_and_scans(agree):
    x = torch.randn(4, 300, dtype=C64).sgn()
    for kernel, function in (
        ("prod", lambda t: t.prod(1)),
        ("prod", lambda t: t.prod(0)),
        ("prod", torch.prod),
        ("cumprod", lambda t: t.cumprod(1)),
        ("cumprod", lambda t: t.cumprod(0)),
        ("cumsum", lambda t: t.cumsum(-1)),
        ("cumsum", lambda t: t.t().cumsum(1)),
        ("cumsum", lambda t: t[0, 0].cumsum(0)),
        ("sum.dim_IntList", lambda t: t[0, 0].sum(0)),
    ):
        agree(kernel, function, x, compare=partial(compare, atol=2e-4))


MATRICES = {
    "mm": lambda a, b, v: a @ b,
    "mm conj": lambda a, b, v: a.conj() @ b.t().conj().t(),
    "mm adjoint": lambda a, b, v: a.mH.t().contiguous() @ b.conj(),
    "addmm": lambda a, b, v: torch.addmm(v[:9], a, b, alpha=2, beta=3),
    "addmm complex": lambda a, b, v: torch.addmm(v[:9], a, b, alpha=2 - 1j, beta=1j),
    "addmm in place": lambda a, b, v: torch.zeros(17, 9, dtype=C64, device=a.device).addmm_(a, b, beta=2).addmm_(a, b),
    "bmm": lambda a, b, v: a.expand(3, 17, 33) @ b.expand(3, 33, 9).mT.contiguous().mT,
    "baddbmm": lambda a, b, v: torch.baddbmm(v[:9], a.expand(2, 17, 33), b.expand(2, 33, 9), beta=1j),
    "addmv": lambda a, b, v: torch.addmv(v[:17], a, v, beta=2),
    "addr": lambda a, b, v: torch.addr(a, v[:17], v, alpha=1j),
    "dot": lambda a, b, v: v.dot(v),
    "vdot": lambda a, b, v: torch.vdot(v, v * 1j),
    "vdot of conjugates": lambda a, b, v: torch.vdot(v.conj(), v),
    "no k": lambda a, b, v: a[:, :0] @ b[:0],
}


@pytest.mark.parametrize("name", MATRICES)
def test_products_of_matrices(device, name):
    operands = [torch.randn(17, 33, dtype=C64), torch.randn(33, 9, dtype=C64), torch.randn(33, dtype=C64)]
    expected = MATRICES[name](*operands)
    with fallback.budget(calls=0):
        got = MATRICES[name](*[x.to(device) for x in operands])
    compare(got, expected, atol=3e-5)


def test_places_and_fills(device):
    x, places = torch.randn(6, 8, dtype=C64), torch.tensor([0, 3, 3, 5])
    calls = (
        lambda x, at: x.index_add(0, at, x[:4], alpha=2),
        lambda x, at: x.index_add_(-1, at, x[:, :4].clone()),
        lambda x, at: x.scatter_add(1, at.expand(6, 4), x),
        lambda x, at: x.index_put((at, at), x[:4, 0]),
        lambda x, at: x.index_put((at,), x[:4], accumulate=True),
        lambda x, at: x.index_put((x.real > 0,), torch.tensor(1j, device=x.device)),
        lambda x, at: x.index_fill(1, at, 2 - 1j),
        lambda x, at: x.masked_scatter(x.real > 0, x.flatten().flip(0)),
        lambda x, at: x.gather(1, at.expand(6, 4)),
        lambda x, at: x.nonzero(),
        lambda x, at: torch.cat([x, x.conj()]),
        lambda x, at: torch.full((3, 4), 1 + 2j, dtype=C64, device=x.device),
        lambda x, at: x.t()[::2].fill_(3j).clone(),
        lambda x, at: torch.tensor(torch.equal(x, x.clone()) and not torch.equal(x, x.conj())),
    )
    for call in calls:
        expected = call(x.clone(), places)
        argument, at = x.to(device), places.to(device)
        with fallback.budget(calls=0):
            got = call(argument, at)
        compare(got, expected)


def test_random_numbers_have_two_independent_parts(device, ran):
    with ran("normal_"):
        x = torch.randn(100_000, dtype=C64, device=device)
    parts = torch.view_as_real(x.cpu())
    assert abs(parts.var(0) - 0.5).max() < 0.02
    assert abs((parts[:, 0] * parts[:, 1]).mean()) < 0.02


def test_gradients_are_the_cpus(device):
    def function(x, weight):
        y = (x.exp() @ weight).tanh() * x[:, :4].conj() / (2 + x[:, 4:8].abs())
        loss = torch.view_as_real(y).square().mean() + torch.polar(y.abs(), y.angle()).sum().abs()
        return loss + torch.complex(y.real, y.imag).cumsum(0).prod(1).real.mean()

    operands = torch.randn(6, 9, dtype=C64), torch.randn(9, 4, dtype=C64)
    with fallback.budget(calls=0):
        got = with_gradients(function, device, *operands)
    for one, expected in zip(got, with_gradients(function, "cpu", *operands), strict=True):
        compare(one, expected, rtol=1e-4, atol=1e-5)
