"""bincount, histc and multinomial against the CPU; of samples, the distribution. Assertions in a graph, as one has."""

from functools import partial

import pytest
import torch

from portable.compare import FLOATS, INTEGERS, each, same, same_error

INF, NAN = float("inf"), float("nan")
each_float = pytest.mark.parametrize("dtype", each(FLOATS, torch.float32, torch.bfloat16))


@pytest.fixture
def agree(agree):
    return lambda *call, tolerance=0, **keywords: agree(*call, compare=partial(same, tolerance=tolerance), **keywords)


@pytest.mark.parametrize("dtype", each(INTEGERS))
def test_bincount(agree, dtype):
    x = torch.randint(0, 40, (500,)).to(dtype)
    for least in (0, 7, 100):
        agree("bincount", torch.bincount, x, minlength=least)
    random = torch.rand(500)
    for weights in (random, random.double(), torch.arange(500), random.half(), x > 9):
        agree("bincount", torch.bincount, x, weights, tolerance=1e-6)
    agree("bincount", torch.bincount, x[::3])


def test_bincount_edges(agree, device):
    empty = torch.empty(0, dtype=torch.int64)
    for least in (0, 3):
        agree(None, torch.bincount, empty, minlength=least)
        agree(None, torch.bincount, empty, torch.empty(0), minlength=least)
    for call in (
        lambda t: (t - 9).bincount(),
        lambda t: t.view(2, 2).bincount(),
        lambda t: t.bincount(minlength=-1),
        lambda t: t.float().bincount(),
        lambda t: t.bincount(torch.ones(2, device=t.device)),
        lambda t: t.bincount(torch.ones(2, 2, device=t.device)),
    ):
        same_error(device, call, torch.tensor([1, 2, 3, 4]))


@each_float
def test_histc(agree, dtype):
    x = torch.randn(9, 20).to(dtype)  # the CPU counts in the dtype: up to 256 in bfloat16
    for arguments in ((), (10,), (7, -1, 1), (100, -0.3, 2.7), (3, 5, 6), (33, 0, 0)):
        agree("histc", torch.histc, x, *arguments)
    agree("histc", torch.histc, torch.arange(0, 10, 0.1).to(dtype).t(), 33, 0, 9)


def test_histc_edges(agree, device, ran):
    x = torch.tensor([1.0, INF, NAN, -INF, 2, 0])
    agree(None, torch.histc, x, 4, 0, 2)
    agree(None, torch.histc, torch.ones(4), 4)
    agree(None, torch.histc, torch.tensor(2.0), 4, 0, 3)
    for arguments in ((4,), (4, 1, 3)):
        agree(None, torch.histc, torch.empty(0), *arguments)
    for out in (torch.empty(0, device=device), torch.empty(4, 2, device=device)[:, 0]):
        with ran("histc"):
            torch.histc(x.to(device), 4, 0, 3, out=out)
        assert out.tolist() == x.histc(4, 0, 3).tolist()
    for call in (
        lambda t: t.histc(4),
        lambda t: t.histc(0, 0, 1),
        lambda t: t.histc(4, 3, 1),
    ):
        same_error(device, call, x)


@each_float
@pytest.mark.parametrize("replacement", [False, True])
def test_multinomial_draws_by_the_weights(device, ran, dtype, replacement):
    torch.manual_seed(3)
    weights = torch.tensor([0, 1, 2, 0, 4, 1, 0], dtype=dtype)
    rows = 3000
    with ran("multinomial"):
        first = weights.expand(rows, 7).to(device).multinomial(1)
    assert first.shape == (rows, 1)
    assert first.dtype == torch.int64
    counts = first.cpu().flatten().bincount(minlength=7)
    expected = weights.double() / weights.double().sum() * rows
    assert ((counts - expected).abs() <= 5 * expected.sqrt()).all()
    with ran("multinomial"):
        got = weights.expand(rows, 7).to(device).multinomial(4, replacement).cpu()
    assert got.shape == (rows, 4)
    assert (weights[got] > 0).all()
    if replacement:
        counts = got.flatten().bincount(minlength=7)
        assert ((counts - 4 * expected).abs() <= 5 * (4 * expected).sqrt()).all()
    else:
        assert (got.sort(1).values.diff(dim=1) > 0).all()
        # The second of a row is drawn of those that are left.
        with_four = got[got[:, 0] == 4]
        second = with_four[:, 1].bincount(minlength=7)
        share = torch.tensor([0, 0.25, 0.5, 0, 0, 0.25, 0], dtype=torch.float64) * len(with_four)
        assert ((second - share).abs() <= 5 * share.sqrt()).all()


def test_multinomial_forms(device, ran):
    p = torch.rand(4, 9).to(device)
    for replacement, count in ((False, 9), (True, 20), (True, 1), (False, 1)):
        torch.manual_seed(11)
        got = p.multinomial(count, replacement)
        torch.manual_seed(11)
        assert torch.equal(p.multinomial(count, replacement).cpu(), got.cpu())
        generator = torch.Generator(device=device).manual_seed(4)
        one = p.multinomial(count, replacement, generator=generator)
        generator.manual_seed(4)
        out = torch.empty(0, dtype=torch.int64, device=device)
        with ran("multinomial"):
            torch.multinomial(p, count, replacement, generator=generator, out=out)
        assert torch.equal(out.cpu(), one.cpu())
        assert p[0].multinomial(count, replacement).shape == (count,)
        assert p.t().contiguous().t().multinomial(count, replacement).shape == (4, count)
    assert torch.empty(0, 3).to(device).multinomial(2).shape == (0, 2)


def test_multinomial_errors_are_the_cpus(device):
    one = torch.tensor([0.5, 0.5])
    for call in (
        lambda t: t.multinomial(0),
        lambda t: t.multinomial(3),
        lambda t: t[:0].multinomial(1),
        lambda t: t.view(1, 1, 2).multinomial(1),
        lambda t: t.long().multinomial(1),
        *(
            lambda t, x=x, r=r, n=n: (t * torch.tensor(x, device=t.device)).multinomial(n, r)
            for x in ([1, -1], [1, NAN], [1, INF], [0, 0])
            for r, n in ((False, 1), (True, 2))
        ),
        lambda t: torch.multinomial(t, 1, out=torch.empty(1, device=t.device)),
    ):
        same_error(device, call, one)


@pytest.mark.requires("graph")
def test_multinomial_in_a_graph(device, device_module):
    p = torch.rand(4, 50, device=device)

    def draw():
        return p.multinomial(1), p.multinomial(5, replacement=True)

    draw()
    graph = device_module.CUDAGraph()
    with device_module.graph(graph):
        drawn = draw()
    torch.manual_seed(0)
    found = [graph.replay() or [one.clone() for one in drawn] for _ in range(3)]
    torch.manual_seed(0)
    for one in found:
        assert all(map(torch.equal, one, draw()))
    p.fill_(-1)
    with pytest.raises(RuntimeError, match="the probabilities contain `inf`, `nan` or an element < 0"):
        graph.replay() or device_module.synchronize()
    p.fill_(1)
    graph.replay()
    device_module.synchronize()


@pytest.mark.requires("graph")
def test_an_assertion_in_a_graph(device, device_module):
    x = torch.ones((), device=device, dtype=torch.bfloat16)
    graph = device_module.CUDAGraph()
    with device_module.graph(graph):
        torch._assert_async(x, "x is not zero")
        y = x + 1
    graph.replay()
    assert y.item() == 2
    x.zero_()
    with pytest.raises(RuntimeError, match=r"^x is not zero$"):
        graph.replay() or device_module.synchronize()
    device_module.synchronize()
    with pytest.raises(RuntimeError, match=r"^Expected Tensor with single nonzero value, but got zero$"):
        torch._assert_async(x) or device_module.synchronize()
