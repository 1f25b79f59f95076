"""Operators of composed.cpp and gates.cpp, and index_reduce, against the CPU."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from portable.compare import FLOATS, INTEGERS, NUMBERS, each, same

aten = torch.ops.aten
each_float = pytest.mark.parametrize("dtype", each(FLOATS))
each_number = pytest.mark.parametrize("dtype", each(NUMBERS, torch.float32, torch.int64))
SPECIAL = [float("inf"), -float("inf"), float("nan"), 0.0, -0.0, 1e-40, -1e-42, 1e30, -1.0]


def tensor(shape, dtype=torch.float32, seed=0, special=False):
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).to(dtype)
    if not dtype.is_floating_point:
        return torch.randint(0, 10, shape, generator=generator).to(dtype)
    x = torch.randn(shape, generator=generator, dtype=torch.float64) * 3
    if special:
        x.flatten()[: len(SPECIAL)] = torch.tensor(SPECIAL, dtype=torch.float64)
    return x.to(dtype)


STEPS = {torch.bfloat16: 2**-6, torch.float16: 2**-8, torch.float32: 4e-6, torch.complex64: 4e-6, torch.float64: 1e-12}
close = partial(same, tolerance=STEPS)


@pytest.fixture
def agree(agree):
    return partial(agree, compare=close)


LAYOUTS = {
    "dense": lambda x: x,
    "transposed": lambda x: x.transpose(0, 1),
    "every second": lambda x: x[:, ::2],
    "expanded": lambda x: x[:1].expand(4, -1, -1),
    "none": lambda x: x[:0],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@each_float
def test_frexp(device, ran, dtype, layout):
    x = tensor((3, 4, 6), dtype, special=True)
    with ran("frexp.Tensor"):
        got = torch.frexp(LAYOUTS[layout](x.to(device)))
    expected = torch.frexp(LAYOUTS[layout](x))
    finite = LAYOUTS[layout](x).isfinite()  # the exponent of others is undefined
    close(got.mantissa, expected.mantissa)
    assert torch.equal(got.exponent.cpu()[finite], expected.exponent[finite])
    assert got.exponent.stride() == expected.exponent.stride()
    out = torch.empty(0, dtype=dtype, device=device), torch.empty(0, dtype=torch.int32, device=device)
    torch.frexp(x.to(device), out=out)
    close(out[0], torch.frexp(x).mantissa)


@each_float
def test_ldexp(ran, agree, dtype):
    info = torch.finfo(dtype)
    x = torch.tensor([0.0, -0.0, info.tiny, info.max, 1.5, float("inf"), -float("inf"), float("nan")], dtype=dtype)
    n = torch.tensor([3000, 3000, 20, -20, -3, -3000, 5, 1])
    wide, few = torch.randn(4, 1, 8).to(dtype), torch.randint(-9, 9, (3, 1), dtype=torch.int8)
    with ran("ldexp.Tensor"):
        for a, b in ((x, n), (x, n.int()), (wide, few), (wide.mT, few[:1]), (x, torch.tensor(3)), (x[4], n[-2:])):
            agree(None, torch.ldexp, a, b)
        agree(None, lambda a, b: a.clone().ldexp_(b), x, n)
        agree(None, lambda a, b: torch.ldexp(a, b, out=torch.empty_like(a)), x, n)
    agree(None, torch.ldexp, x[4:], n[4:].to(dtype) / 3)


@pytest.mark.parametrize("layout", LAYOUTS)
@each_float
def test_nan_to_num(agree, dtype, layout):
    x = tensor((3, 4, 6), dtype, special=True)
    for arguments in ((), (1.0,), (None, 5.0), (None, None, -7.0), (2.0, 3.0, 4.0)):
        agree("nan_to_num", lambda x, a=arguments: LAYOUTS[layout](x).nan_to_num(*a), x)
    agree("nan_to_num", lambda x: x.clone()[:, 1:].nan_to_num_(1, 2, 3), x)


@pytest.mark.parametrize("dtype", each([*INTEGERS, torch.bool]))
def test_nan_to_num_of_integers(agree, dtype):
    agree("nan_to_num", lambda x: x.nan_to_num(1, 2, 3), tensor((3, 5), dtype))


def test_equal(device, ran):
    x = tensor((3, 5))
    y = x.clone()
    y[2, 4] += 1
    with ran("equal"):
        assert torch.equal(x.to(device), x.clone().to(device))
        assert torch.equal(x.t().to(device), x.to(device).t())
        assert not torch.equal(x.to(device), y.to(device))
        assert not torch.equal(x.to(device), x[:2].to(device))
        assert torch.equal(x[:0].to(device), x[:0].to(device))
    for place in ("cpu", device):
        with pytest.raises(RuntimeError):
            torch.equal(x.to(place), x.to("cpu" if place == device else device))


@each_number
def test_trace(agree, dtype):
    for shape in ((4, 4), (3, 7), (5, 2), (0, 3)):
        agree("trace", lambda x: torch.trace(x), tensor(shape, dtype))
    agree("trace", lambda x: torch.trace(x.t()[::2]), tensor((5, 6), dtype))


@each_float
@pytest.mark.parametrize("p", [1, 2, 0.5, float("inf")])
def test_renorm(agree, dtype, p):
    x = tensor((3, 4, 5), dtype)
    for dim in (0, 1, -1):
        agree("renorm", lambda x, d=dim: torch.renorm(x, p, d, 4.0), x)
    agree("renorm", lambda x: x.clone().transpose(0, 2).renorm_(p, 1, 0.5), x)


def test_narrow_copy(device, agree):
    x = tensor((4, 6))
    agree("narrow_copy", lambda x: torch.narrow_copy(x, 1, 2, 3), x)
    agree("narrow_copy", lambda x: torch.narrow_copy(x.t(), -1, -2, 2), x.to(torch.complex64))
    agree("narrow_copy", lambda x: torch.narrow_copy(x, 0, 4, 0), x)
    for place in ("cpu", device):
        with pytest.raises((RuntimeError, IndexError)):
            torch.narrow_copy(x.to(place), 0, 2, 9)


def test_nonzero_static(device, ran, agree):
    def dense(places):
        return places.clone(memory_format=torch.contiguous_format)

    x = tensor((4, 6)).clamp_min(0)
    for size in (0, 3, 24, 40):
        with ran("nonzero_static"):
            for more in ({}, {"fill_value": 7}):
                agree(None, lambda x, n=size, more=more: dense(torch.nonzero_static(x, size=n, **more)), x)
    assert torch.nonzero_static(x.to(device), size=3).stride() == (1, 3)  # as CUDA's and torch's fakes
    with ran("nonzero_static"):
        assert torch.nonzero_static(torch.tensor(3.0, device=device), size=2).shape == (2, 0)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_repeat_interleave(device, agree, dtype):
    repeats = torch.tensor([2, 0, 3, 1], dtype=dtype)
    for several in (repeats, repeats[:0], repeats[1:2]):
        agree("repeat_interleave.Tensor", torch.repeat_interleave, several)
    agree("repeat_interleave.Tensor", torch.repeat_interleave, repeats, output_size=6)
    agree("repeat_interleave.Tensor", torch.repeat_interleave, tensor((4, 3)), repeats, 0)
    for place in ("cpu", device):
        with pytest.raises(RuntimeError, match="negative"):
            torch.repeat_interleave(-repeats.to(place))


@each_float
def test_normal_numbers_about_tensors(device, ran, dtype):
    mean = torch.tensor([[-50.0], [0], [50]], dtype=dtype, device=device)
    deviation = torch.tensor([0.0, 1, 4], dtype=dtype, device=device).repeat_interleave(2000)
    for name, numbers, means, deviations in [
        ("normal.Tensor_Tensor", lambda: torch.normal(mean, deviation), (-50, 0, 50), (0, 1, 4)),
        ("normal.Tensor_float", lambda: torch.normal(mean.expand(3, 6000), 2.0), (-50, 0, 50), (2, 2, 2)),
        ("normal.float_Tensor", lambda: torch.normal(3.0, deviation.expand(3, 6000)), (3, 3, 3), (0, 1, 4)),
    ]:
        torch.manual_seed(1)
        with ran(name):
            first = numbers()
        torch.manual_seed(1)
        assert torch.equal(first.cpu(), numbers().cpu())
        x = first.cpu().double().reshape(3, 3, 2000)
        assert first.dtype == dtype
        assert ((x.mean(2) - torch.tensor(means)[:, None]).abs() < 0.5).all()
        assert ((x.std(2) - torch.tensor(deviations)).abs() < 0.3).all()
    for place in ("cpu", device):
        with pytest.raises(RuntimeError):
            torch.normal(0.0, torch.tensor([-1.0], device=place))


# --- gates ---


@pytest.mark.parametrize("layout", LAYOUTS)
@each_float
def test_log_sigmoid(agree, dtype, layout):
    x, grad = tensor((3, 4, 6), dtype, special=True), tensor((3, 4, 6), dtype, seed=1)
    agree("log_sigmoid_forward", lambda x: aten.log_sigmoid_forward(LAYOUTS[layout](x)), x)
    grad, x = (LAYOUTS[layout](t).contiguous() for t in (grad, x))
    agree("log_sigmoid_backward", lambda g, x: aten.log_sigmoid_backward(g, x, aten.log_sigmoid_forward(x)[1]), grad, x)


@each_float
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_glu(device, agree, dtype, dim):
    x, change = tensor((4, 6, 8), dtype), tensor((4, 6, 8), dtype, seed=2)
    grad = F.glu(change, dim)
    agree("glu", lambda x: F.glu(x, dim), x)
    agree("glu", lambda x: F.glu(x.transpose(0, 2), dim), x)
    agree("glu_backward", lambda g, x: aten.glu_backward(g, x, dim), grad, x)
    if dtype.itemsize > 2:
        agree("glu_jvp", lambda x, d: aten.glu_jvp(F.glu(x, dim), x, d, dim), x, change)
    for place in ("cpu", device):
        with pytest.raises(RuntimeError, match="even"):
            F.glu(x[:3, :5, :7].to(place), dim)


@each_float
def test_prelu_and_its_gradients(device, agree, dtype):
    x, weight = tensor((3, 4, 6), dtype, special=True), tensor((4,), dtype, seed=1)
    agree("_prelu_kernel_backward", aten._prelu_kernel_backward, x.flip(0), x, weight[:, None].expand(4, 6))
    grads = []
    for place in ("cpu", device):
        leaves = [t.to(place).detach().requires_grad_() for t in (x.nan_to_num(0, 1, 1), weight)]
        F.prelu(*leaves).sum().backward()
        grads.append([leaf.grad.cpu() for leaf in leaves])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=0.02, atol=0.02)


def test_rrelu(device, ran, agree):
    x = tensor((30, 40))
    with ran("rrelu_with_noise"):
        agree(None, lambda x: F.rrelu(x, 0.1, 0.3, training=False), x)
        agree(None, lambda x: F.rrelu_(x.clone(), 0.1, 0.3), x)
        got = F.rrelu(x.to(device), 0.1, 0.3, training=True).cpu()
    assert torch.equal(got[x > 0], x[x > 0])
    slopes = (got / x)[x < 0]
    assert slopes.min() >= 0.0999
    assert slopes.max() <= 0.3001
    assert slopes.std() > 0.04
    leaf = x.to(device).requires_grad_()
    y = F.rrelu(leaf, 0.1, 0.3, training=True)
    y.sum().backward()
    torch.testing.assert_close(leaf.grad * leaf.detach(), y.detach())


# --- index_reduce ---


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("has_self", [True, False])
@each_float
def test_index_reduce(agree, reduce, has_self, dtype):
    x, source = tensor((4, 6, 3), dtype), tensor((4, 9, 3), dtype, seed=1)
    index = torch.tensor([0, 5, 2, 2, 0, 2, 3, 0, 5])
    source[0, 1, 0], source[2, 2, 1] = float("nan"), float("inf")

    def reduced(x, i, s):
        return x.index_reduce(1, i, s, reduce, include_self=has_self)

    def turned(x, i, s):
        return reduced(x.transpose(0, 2), i.int(), s.transpose(0, 2)).contiguous()

    def in_place(x, i, s):
        return x.clone().index_reduce_(0, i, s, reduce, include_self=has_self)

    agree("index_reduce", reduced, x, index, source)
    agree("index_reduce", turned, x, index, source)
    agree("index_reduce", lambda x, i, s: reduced(x[:, ::2], i[:2] % 3, s[:, :2]), x, index, source)
    agree("index_reduce", lambda x, i, s: reduced(x, i[:0], s[:, :0]), x, index, source)
    agree("index_reduce", in_place, x[0, :, 0].clone(), index, source[0, :, 1].clone())


def test_wrong_calls_raise_torchs_error(device):
    x = torch.zeros(3, 4)
    for place in ("cpu", device):
        y = x.to(place)
        with pytest.raises(RuntimeError):
            y.index_reduce(0, y.long()[0, :3], y, "sum")
        with pytest.raises(RuntimeError):
            torch.trace(y[0])
        with pytest.raises(RuntimeError):
            torch.renorm(y, 2, 0, -1)
        with pytest.raises(RuntimeError):
            torch.frexp(y.long())


@each_number
def test_cross(device, agree, dtype):
    x, y = tensor((3, 4, 3), dtype), tensor((3, 1, 3), dtype, 1)
    agree("linalg_cross", torch.linalg.cross, x, y)
    agree("linalg_cross", lambda a, b: torch.linalg.cross(a.mT, b.mT, dim=1), x, y)
    agree("linalg_cross", lambda a, b: torch.cross(a, b.expand(3, 4, 3), dim=0), x, y)
    agree("linalg_cross", lambda a, b: torch.linalg.cross(a[:, :0], b), x, y)
    with pytest.raises(RuntimeError, match="inputs dimension 1 must have length 3"):
        torch.linalg.cross(x.to(device), x.to(device), dim=1)


@pytest.mark.parametrize("dtype", each([torch.float32, torch.float64]))
def test_complex_and_polar(device, ran, agree, dtype):
    x, y = tensor((4, 3), dtype), tensor((3,), dtype, 1)
    for name in ("complex", "polar"):
        function = getattr(torch, name)
        with ran(name):
            agree(None, function, x, y)
            agree(None, lambda a, b, f=function: f(a.t(), a.t()), x, y)
            agree(None, lambda a, b, f=function: f(a[:0], b), x, y)
            out = torch.empty(0, dtype=dtype.to_complex(), device=device)
            function(x.to(device), y.to(device), out=out)
        close(out, function(x, y))
    with pytest.raises(RuntimeError, match="Expected both inputs to be"):
        torch.complex(x.to(device), x.to(device).long())


@each_float
def test_gradient_of_windows(agree, dtype):
    for shape, dim, size, step in (
        ((9,), 0, 3, 2),
        ((2, 8, 3), 1, 4, 1),
        ((5, 4), -1, 2, 3),
        ((), 0, 1, 1),
        ((6,), 0, 0, 2),
    ):
        x = tensor(shape, dtype)
        grad = tensor(x.unfold(dim, size, step).shape, dtype, 1)
        agree("unfold_backward", aten.unfold_backward, grad, shape, dim, size, step)
