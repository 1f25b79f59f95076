"""``mode="reduce-overhead"``: compiled graphs that are recorded at their second call and replayed from then on."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._inductor import config

from backplane_tools.conformance.checks import in_threads
from portable.compare import each, on
from portable.replays import graphed, near

pytestmark = [pytest.mark.requires("graph"), pytest.mark.usefixtures("each_compiles")]


def test_F26_the_second_call_is_recorded_and_later_ones_replay(device, runs):
    weight, inputs = torch.randn(8, 8), torch.randn(5, 4, 8)
    on_device = weight.to(device)
    function = graphed(lambda x: torch.relu(x @ on_device).sum(1))
    for x in inputs:
        near(function(x.to(device)), torch.relu(x @ weight).sum(1))
    assert runs == ["call", "recorded", "replayed", "replayed", "replayed", "replayed"]


def test_inputs_that_are_written(device, runs):
    """In place at each address: a few buffers have a recording each."""

    def step(cache, x):
        cache.mul_(0.5).add_(x)
        return cache.sum()

    function = graphed(step)
    caches, expected = [torch.zeros(64, device=device) for _ in range(3)], [torch.zeros(64) for _ in range(3)]
    for i in range(12):
        x = torch.randn(64)
        near(function(caches[i % 3], x.to(device)), step(expected[i % 3], x))
    for got, wanted in zip(caches, expected, strict=True):
        near(got, wanted)
    assert runs.count("recorded") == 3
    assert runs.count("call") == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(4, 1).expand(4, 6),
        lambda: torch.randn(12, 6)[::3],
        lambda: torch.randn(4, 6).t().contiguous().t(),
        lambda: torch.randn(9).as_strided((4, 6), (1, 1)),
        lambda: torch.randn(0, 6),
        lambda: torch.randn(4, 1).expand(4, 0),
        lambda: torch.randn(5, 6)[1:],
    ],
    ids=["expanded", "slice", "transposed", "overlapping", "empty", "expanded to nothing", "offset"],
)
def test_inputs_of_any_strides(device, runs, make):
    compiled = graphed(lambda x: x.cumsum(0) + 1)
    for _ in range(4):
        x = make()
        near(compiled(on(device, x)), x.cumsum(0) + 1)
    assert runs.count("replayed") >= 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last, self.dropout = nn.Linear(16, 32), nn.Linear(32, 4), nn.Dropout(0.3)
        self.norm = nn.BatchNorm1d(32)

    def forward(self, x):
        return self.last(self.dropout(torch.tanh(self.norm(self.first(x)))))


def trained(device, mode, *, micro=1, keep=False, twice=False):
    torch.manual_seed(0)
    net = Net().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    run = net if mode is None else torch.compile(net, mode=mode)
    generator, kept = torch.Generator().manual_seed(1), []
    torch.manual_seed(5)
    for i in range(12):
        x = torch.randn(8, 16, generator=generator).to(device)
        y = run(x)
        loss = (y * y).mean() + (run(x + 1).mean() if twice else 0)
        loss.backward()
        if i % micro == micro - 1:
            optimizer.step()
            optimizer.zero_grad()
        kept.append(y.detach() if keep else loss.detach())
    return [one.cpu() for one in (*kept, *net.buffers(), *net.parameters())]


@pytest.mark.long_after_first
@pytest.mark.parametrize("settings", [{}, {"micro": 3}, {"keep": True}, {"twice": True}], ids=str)
def test_F26_training_is_eagers_bit_by_bit(device, runs, settings):
    """Dropout, batch statistics, accumulated gradients, two forwards before a backward, outputs that are kept."""
    expected = trained(device, "default", **settings)
    got = trained(device, "reduce-overhead", **settings)
    for one, wanted in zip(got, expected, strict=True):
        assert torch.equal(one, wanted)
    assert runs.count("call") <= 4
    assert runs.count("replayed") >= 20


@pytest.mark.usefixtures("deterministic")
def test_deterministic_mode_does_not_fill_inputs(device, runs):
    function = graphed(lambda x: x + 1)
    for x in torch.randn(4, 8):
        near(function(x.to(device)), x + 1)
    assert runs.count("replayed") == 3


@pytest.mark.usefixtures("deterministic")
def test_F26_dropout_within_attention_is_eagers(device, runs):
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.4, batch_first=True).to(device)
    inputs, results = torch.randn(6, 2, 5, 16).to(device), {}
    for mode in ("default", "reduce-overhead"):
        compiled = torch.compile(layer, mode=mode)
        torch.manual_seed(2)
        results[mode] = []
        for x in inputs:
            layer.zero_grad()
            compiled(x).square().sum().backward()
            results[mode] += [one.grad.clone() for one in layer.parameters()]
    for one, wanted in zip(*results.values(), strict=True):
        assert torch.equal(one, wanted)
    assert runs.count("replayed") >= 8


class Layer(nn.Linear):
    def forward(self, x):
        return super().forward(x).tanh()


def test_layers_that_share_a_graph(device, runs):
    """Compiled one by one, they share the code, and each has its own weights."""
    torch.manual_seed(0)
    expected = nn.Sequential(*[Layer(16, 16) for _ in range(6)])
    net = copy.deepcopy(expected).to(device)
    for layer in net:
        layer.compile(mode="reduce-overhead")
    for i in range(6):
        x = torch.randn(4, 16)
        for model, given in ((net, x.to(device)), (expected, x)):
            model.zero_grad()
            (model(given) ** 2).sum().backward()
        for one, wanted in zip(net.parameters(), expected.parameters(), strict=True):
            near(one.grad, wanted.grad)
        if i == 3:
            runs.since()
    assert runs == ["replayed"] * 24


def test_attention_with_its_gradient(device, runs):
    q = torch.randn(2, 2, 9, 16, requires_grad=True)
    mine = q.detach().to(device).requires_grad_()

    def loss(q):
        return F.scaled_dot_product_attention(q, q * 2, q, is_causal=True).square().sum()

    compiled = graphed(loss)
    (expected,) = torch.autograd.grad(loss(q), q)
    for _ in range(5):
        (got,) = torch.autograd.grad(compiled(mine), mine)
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-3, atol=1e-3)
    assert runs.since()[-2:] == ["replayed", "replayed"]


def test_random_numbers_are_those_of_calls(device):
    def draws(mode):
        torch.compiler.reset()
        function = torch.compile(lambda x: F.dropout(x, 0.5) + torch.rand_like(x), mode=mode)
        torch.manual_seed(3)
        return [function(torch.ones(100, device=device)).cpu() for _ in range(5)], torch.rand(3, device=device).cpu()

    (expected, after), (got, got_after) = draws("default"), draws("reduce-overhead")
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
    assert not torch.equal(got[3], got[4])
    assert torch.equal(after, got_after)


def test_each_size_has_its_recording(device, runs):
    function = graphed(lambda x: x * 2 + x.shape[0], dynamic=True)
    for _ in range(3):
        for rows in (5, 7, 9):
            x = torch.randn(rows, 3)
            near(function(x.to(device)), x * 2 + rows)
    assert runs.count("recorded") == 3
    assert runs.count("replayed") == 6


def test_threads_and_streams_have_their_own(device, device_module):
    function = graphed(lambda x: (x @ x).sin().sum(1))
    function(torch.randn(64, 64, device=device))

    def work(k):
        generator = torch.Generator().manual_seed(k)
        with device_module.stream(device_module.Stream()):
            for _ in range(10):
                x = torch.randn(64, 64, generator=generator)
                torch.testing.assert_close(function(x.to(device)).cpu(), (x @ x).sin().sum(1), rtol=1e-3, atol=1e-3)

    in_threads(work, 4)


@pytest.mark.parametrize("dtype", each([torch.complex64, torch.bool, torch.float16]))
def test_dtypes(device, runs, dtype):
    function = graphed(lambda x: x.conj().t().contiguous() if dtype.is_complex else x.t() == x.t())
    for _ in range(4):
        x = torch.randn(3, 4).to(dtype)
        expected = x.conj().t() if dtype.is_complex else x.t() == x.t()
        assert torch.equal(function(x.to(device)).cpu(), expected.resolve_conj())


def test_inference_mode_and_grad_mode(device):
    function = graphed(lambda x: x * 2)
    for _ in range(3):
        with torch.inference_mode():
            assert function(torch.ones(2, device=device)).is_inference()
        y = function(torch.ones(2, device=device))
        assert not y.is_inference()
        y.add_(1)
        assert y.tolist() == [3, 3]


@pytest.mark.long
def test_cpp_wrapper_is_replayed(device, runs):
    with config.patch(cpp_wrapper=True, graph_partition=False):  # torch leaves graphs out of C++ in parts
        function = graphed(lambda x: (x @ x).relu())
        for _ in range(3):
            x = torch.randn(8, 8)
            near(function(x.to(device)), (x @ x).relu())
    assert runs == ["call", "recorded", "replayed", "replayed"]
