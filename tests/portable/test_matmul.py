"""Products of matrices and vectors against the CPU: shapes, strides, dtypes, forms, alpha and beta."""

from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
import shims
import torch

from portable.compare import each, on, same_error, same_with_gradients
from torch_backplane import compiler

PAIRS = Path(__file__).parents[1] / "device" / "drivers" / "pairs.c"
HALVES = [torch.bfloat16, torch.float16]
each_dtype = pytest.mark.parametrize(
    "dtype",
    each(
        [torch.float32, torch.float64, *HALVES, torch.int64, torch.int32, torch.int8],
        torch.float32,
        torch.bfloat16,
        torch.int64,
    ),
)
# m, k, n: around the edges of micro tiles and tiles, thin sides, long k, nothing at all.
SHAPES = [(1, 1, 1), (1, 300, 1), (3, 5, 2), (8, 70, 130), (130, 70, 8), (1, 2100, 33), (33, 2100, 1)]
SHAPES += [(12, 9, 32), (13, 9, 33), (61, 517, 77), (250, 300, 270), (100, 3, 300), (9, 0, 11), (0, 5, 9), (5, 5, 0)]


def make(*size, dtype=torch.float32):
    if dtype.is_floating_point:
        return torch.randn(size, dtype=torch.float64).to(dtype)
    return torch.randint(-9, 10, size, dtype=dtype)


def layouts(tensor):
    """The same matrix dense, transposed, and with gaps."""
    yield tensor
    yield tensor.transpose(-1, -2).contiguous().transpose(-1, -2)
    wide = torch.zeros(*tensor.shape[:-1], tensor.shape[-1] * 2 + 1, dtype=tensor.dtype)
    wide[..., 1::2] = tensor
    yield wide[..., 1::2]


def close(actual, expected, exact=None):
    """`exact`: what float64 gives, for dtypes whose sums round differently on the CPU."""
    assert actual.dtype == expected.dtype
    assert actual.stride() == expected.stride()
    dtype = expected.dtype
    if dtype in HALVES and exact is not None:
        expected = exact.to(dtype)
    wide = 2e-2 if dtype == torch.bfloat16 else 2e-3 if dtype == torch.float16 else 2e-5
    finite = expected[expected.isfinite()].abs() if dtype.is_floating_point else torch.empty(0)
    scale = max(finite.max().item(), 1.0) if finite.numel() else 1.0
    if dtype == torch.float64:
        wide = 1e-12
    torch.testing.assert_close(actual.cpu(), expected, rtol=wide, atol=wide * scale, equal_nan=True)


@pytest.fixture
def agree(agree):
    return lambda *call, exact=None, **keywords: agree(*call, compare=partial(close, exact=exact), **keywords)


@each_dtype
def test_mm(agree, dtype):
    for m, k, n in SHAPES:
        a, b = make(m, k, dtype=dtype), make(k, n, dtype=dtype)
        exact = a.double() @ b.double()
        for x in layouts(a):
            for y in layouts(b):
                agree("mm", torch.mm, x, y, exact=exact)


@each_dtype
def test_vectors(agree, dtype):
    for m, k in ((1, 1), (5, 3), (40, 1500), (1500, 40), (3, 0), (0, 3)):
        a, b, c = make(m, k, dtype=dtype), make(k, dtype=dtype), make(m, dtype=dtype)
        exact = a.double() @ b.double()
        for x in layouts(a):
            agree("addmv", torch.mv, x, b, exact=exact)
            agree("addmv", torch.addmv, c, x, b, beta=2, alpha=3, exact=2 * c.double() + 3 * exact)
    for n in (0, 1, 7, 2500):
        a, b = make(n, dtype=dtype), make(n, dtype=dtype)
        for call in (torch.dot, torch.vdot):
            agree(call.__name__, call, a, b, exact=a.double().dot(b.double()))
    wide = make(300, 4, dtype=dtype)
    agree("dot", torch.dot, *wide.T[:2], exact=torch.dot(*wide.double().T[:2]))


@each_dtype
def test_batches(agree, dtype):
    for batch, m, k, n in ((1, 3, 4, 5), (7, 1, 40, 30), (5, 33, 17, 40), (2, 70, 0, 3), (0, 2, 3, 4), (3, 0, 2, 5)):
        a, b = make(batch, m, k, dtype=dtype), make(batch, k, n, dtype=dtype)
        s = make(batch, m, n, dtype=dtype)
        first = s[0] if batch else s.new_zeros(m, n)
        exact = torch.bmm(a.double(), b.double())
        of_sum = 3 * first.double() + 2 * exact.sum(0)
        for x in layouts(a):
            for y in layouts(b):
                agree("bmm", torch.bmm, x, y, exact=exact)
                agree("baddbmm", torch.baddbmm, s, x, y, beta=3, alpha=-2, exact=3 * s.double() - 2 * exact)
                agree("addbmm", torch.addbmm, first, x, y, beta=3, alpha=2, exact=of_sum)


@each_dtype
def test_a_factor_that_a_batch_shares_and_sums_of_one_term(agree, dtype):
    for rows in (3, 70):
        a, b = make(4, rows, 5, dtype=dtype), make(1, 5, 9, dtype=dtype)
        for x in (a, a.mT.contiguous().mT, a[:1].expand(4, rows, 5)):
            agree("bmm", torch.bmm, x, b.expand(4, 5, 9), exact=torch.bmm(x.double(), b.double().expand(4, 5, 9)))
    column, row = make(2, 6, 1, dtype=dtype), make(2, 1, 7, dtype=dtype)
    for x in layouts(column):
        agree("bmm", torch.bmm, x, row, exact=torch.bmm(x.double(), row.double()))
        agree("mm", torch.mm, x[0], row[1], exact=torch.mm(x[0].double(), row[1].double()))


def test_a_conjugate_that_a_batch_shares(agree):
    a, b = torch.randn(4, 3, 5, dtype=torch.complex64), torch.randn(1, 5, 2, dtype=torch.complex64)
    agree("bmm", lambda x, y: torch.bmm(x.conj(), y.conj().expand(4, 5, 2)), a, b)
    agree("mm", lambda x, y: x.conj() @ y, a[0, :, :1], b[0, :1])


@each_dtype
def test_addmm(agree, dtype):
    for m, k, n in ((5, 6, 7), (40, 65, 30), (2, 600, 9), (4, 0, 5)):
        a, b = make(m, k, dtype=dtype), make(k, n, dtype=dtype)
        exact = a.double() @ b.double()
        for shape in ((m, n), (n,), (m, 1), (1,), ()):
            bias = make(*shape, dtype=dtype)
            agree("addmm", torch.addmm, bias, a, b, beta=2, alpha=3, exact=2 * bias.double() + 3 * exact)
        place, u, v = make(m, n, dtype=dtype), make(m, dtype=dtype), make(n, dtype=dtype)
        in_place = 3 * place.double() + exact  # place is changed
        agree("addr", torch.addr, place, u, v, beta=2, alpha=3)
        agree("addmm", torch.Tensor.addmm_, place.clone(), a, b, beta=3, exact=in_place)
        agree("addr", torch.Tensor.addr_, place, u, v, beta=0)


def test_pairs_of_bfloat16_are_multiplied_where_the_prelude_can(run_in_process, device, tmp_path):
    """By a prelude that can on each processor, and counts products twice. Sides end within pairs, vectors and tiles."""
    env = {f"{device.type.upper()}_SHIMS": shims.compiled(PAIRS, tmp_path)}
    code = f"""
        import torch
        from torch_backplane import compiler

        times = 2 if compiler.target(0).group_size == 1 else 1
        for m, k, n in [(9, 3, 9), (9, 2, 33), (17, 33, 9), (61, 517, 77), (250, 1030, 270)]:
            a, b = torch.randn(m, k).bfloat16(), torch.randn(k, n).bfloat16()
            wide = torch.zeros(k, 2 * n + 1, dtype=torch.bfloat16)
            wide[:, 1::2] = b
            for x in (a, a.t().contiguous().t()):
                for y in (b, b.t().contiguous().t(), wide[:, 1::2]):
                    found = x.to("{device.type}") @ y.to("{device.type}")
                    exact = times * (a.double() @ b.double())
                    near = 1e-2 * exact.abs().max().item()
                    torch.testing.assert_close(found.cpu().double(), exact, rtol=1e-2, atol=near)
        print(compiler.counts().failed)
    """
    assert run_in_process(code, env=env).stdout.strip() == "0"


def test_beta_of_zero_does_not_read_self(agree):
    for m, n in ((20, 30), (2, 30), (30, 2)):
        nan, a, b = torch.full((m, n), torch.nan), make(m, 5), make(5, n)
        agree("addmm", torch.addmm, nan, a, b, beta=0)
        agree("addmm", torch.Tensor.addmm_, nan, a, b, beta=0)
        agree("baddbmm", torch.baddbmm, *(torch.stack([t, t]) for t in (nan, a, b)), beta=0)
    agree("addmv", torch.addmv, torch.full((7,), torch.nan), make(7, 5), make(5), beta=0)
    agree("addr", torch.addr, torch.full((7, 4), torch.nan), make(7), make(4), beta=0)


def test_special_values(agree):
    for m, n in ((20, 20), (2, 20)):
        a, b = make(m, 30), make(30, n)
        a[1, 3], a[0, 2], b[5, 1] = torch.nan, torch.inf, -torch.inf
        agree("mm", torch.mm, a, b)


@pytest.mark.parametrize(("m", "n"), [(20, 30), (3, 40)])
def test_out(agree, device, ran, m, n):
    a, b = make(m, 15), make(15, n)
    x, y = a.to(device), b.to(device)
    for place in (torch.empty(0), torch.empty(m, n), torch.empty(n, m).T, torch.empty(m, 2 * n)[:, ::2]):
        mine = on(device, place) if place.numel() else place.to(device)
        with ran("mm"):
            torch.mm(x, y, out=mine)
        close(mine, torch.mm(a, b, out=place))
    square, other = make(m, m), make(m, m)
    mine = square.to(device)
    torch.mm(mine, other.to(device), out=mine)
    close(mine, square @ other)
    mine = square.to(device)
    close(mine.addmm_(mine.T, mine), torch.addmm(square, square.T, square))
    with pytest.warns(UserWarning, match="was resized"):
        torch.mm(x, y, out=torch.empty(3, device=device))
    with pytest.raises(RuntimeError, match="dtype"):
        torch.mm(x, y, out=torch.empty(m, n, device=device, dtype=torch.float64))
    for use_gelu in (False, True):
        agree("_addmm_activation", torch.ops.aten._addmm_activation, b[0], a, b, use_gelu=use_gelu)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_out_of_contiguous_columns(device, ran, dtype):
    """The transposed product is computed; gradients of a transposed weight are such results."""
    for m, k, n in ((61, 517, 77), (250, 3, 270), (2, 70, 130), (33, 2100, 1), (5, 0, 7)):
        a, b = make(2, m, k, dtype=dtype), make(2, k, n, dtype=dtype)
        exact = a.double() @ b.double()
        places = [torch.empty(2, n, m, dtype=dtype).mT for _ in range(2)]
        for bias in (make(2, m, n, dtype=dtype), make(2, n, m, dtype=dtype).mT, make(n, dtype=dtype)):
            mine = on(device, places[0])
            x, y, z = (one.to(device) for one in (a, b, bias))
            with ran("baddbmm"):
                torch.baddbmm(z, x, y, beta=2, alpha=3, out=mine)
            expected = torch.baddbmm(bias, a, b, beta=2, alpha=3, out=places[1])
            close(mine, expected, exact=2 * bias.double() + 3 * exact)
        with ran("mm"):
            torch.mm(x[0], y[0], out=mine[0])
        close(mine[0], torch.mm(a[0], b[0], out=places[1][0]), exact=exact[0])


def test_products_of_bytes(device, ran):
    """On a host they are the CPU's, which has instructions for them."""
    native = compiler.target().group_size > 1
    for m, k, n in ((1, 1, 1), (61, 517, 77), (2, 70, 130), (33, 5000, 1), (17, 4100, 18), (5, 0, 7), (0, 3, 4)):
        a, b = (torch.randint(-128, 128, size, dtype=torch.int8) for size in ((m, k), (k, n)))
        a[:1], b[:, :1] = -128, -128
        expected = (a.double() @ b.double()).int()
        for x, y in zip(layouts(a), layouts(b), strict=True):
            with ran("_int_mm") if native else nullcontext():
                got = torch._int_mm(on(device, x), on(device, y))
            assert got.dtype == torch.int32
            assert torch.equal(got.cpu(), expected)
        out = torch.empty(m, n, dtype=torch.int32, device=device)
        with ran("_int_mm") if native else nullcontext():
            torch._int_mm(a.to(device), b.to(device), out=out)
        assert torch.equal(out.cpu(), expected)
    a, b = torch.ones(3, 4, dtype=torch.int8), torch.ones(4, 5, dtype=torch.int8)
    same_error(device, torch._int_mm, a, a)
    same_error(device, torch._int_mm, a, b.int())
    with pytest.raises(RuntimeError, match="contiguous"):
        torch._int_mm(a.to(device), b.to(device), out=torch.empty(5, 3, dtype=torch.int32, device=device).T)


def test_errors_are_those_of_the_cpu(device):
    a, b, c = make(3, 4), make(5, 6), make(2, 3, 4)
    same_error(device, torch.mm, a, b)
    same_error(device, torch.mm, a, c)
    same_error(device, torch.bmm, c, c)
    same_error(device, torch.mv, a, b[0])
    same_error(device, torch.dot, a[0], b[0])
    same_error(device, torch.addmm, b, a, a.T)
    same_error(device, torch.mm, a, a.T.double())
    same_error(device, torch.addr, a, a[0], b[0])


def test_gradients(device):
    def function(a, b, c):
        return torch.addmm(c, a, b).square()

    same_with_gradients(device, function, make(6, 20), make(20, 11), make(11), tolerance=1e-4)
