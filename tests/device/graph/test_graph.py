"""Graphs, torch.accelerator.Graph and torch.<device>.graph: what a replay computes, its random numbers, callables."""

import copy

import pytest
import torch
from graphs import KINDS, MARKS, another_stream, captured, make, replayed
from torch import nn

pytestmark = MARKS


class Training:
    """A model with dropout, its optimizer, and one step over tensors that stay where they are."""

    def __init__(self, device):
        torch.manual_seed(0)
        first, last = (nn.Embedding(20, 16), nn.Dropout(0.2), nn.LayerNorm(16)), (nn.Dropout(0.1), nn.Linear(32, 20))
        self.model = nn.Sequential(*first, nn.Linear(16, 32), nn.GELU(), *last).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.tokens = torch.randint(0, 20, (4, 9)).to(device)
        self.target = torch.randn(4, 8, 20).to(device)

    def step(self):
        self.optimizer.zero_grad(set_to_none=False)
        off = self.model(self.tokens[:, :-1]) - self.target
        loss = (off * off).mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def warm_up(self, device_module):
        side = another_stream(device_module)
        side.wait_stream(device_module.current_stream())
        with side:
            for _ in range(2):
                self.step()
        device_module.current_stream().wait_stream(side)
        return self

    def losses(self, step):
        """Of a hundred batches, from the same seed; ``step`` returns a loss."""
        torch.manual_seed(7)
        generator, found = torch.Generator().manual_seed(5), []
        for _ in range(100):
            self.tokens.copy_(torch.randint(0, 20, (4, 9), generator=generator))
            found.append(step().clone())
        return bits(found)


def bits(tensors):
    return [tensor.detach().cpu().clone() for tensor in tensors]


@pytest.mark.long_after_first
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("deterministic")  # where items sum an embedding's gradient, as on CUDA
def test_H01_a_hundred_steps_with_dropout_are_eagers_bit_by_bit(device, device_module, kind):
    eager, graphed = (Training(device).warm_up(device_module) for _ in range(2))
    expected = eager.losses(eager.step)
    graph = make(kind, device_module)
    with captured(graph, device_module.Stream(), device_module):
        loss = graphed.step()
    assert graphed.losses(lambda: graph.replay() or loss) == expected
    assert len({float(one) for one in expected}) > 90  # the steps differ
    for one, other in zip(bits(graphed.model.parameters()), bits(eager.model.parameters()), strict=True):
        assert torch.equal(one, other)


def test_nothing_runs_in_a_capture_and_a_replay_reads_new_inputs(graph, device, device_module):
    x = torch.arange(4.0, device=device)
    y = torch.full((4,), -1.0, device=device)
    with device_module.graph(graph):
        assert device_module.is_current_stream_capturing()
        y.copy_(x * 2 + 1)
    assert not device_module.is_current_stream_capturing()
    assert y.tolist() == [-1.0] * 4
    for i in range(5):
        x.fill_(i)
        replayed(graph, device_module)
        assert y.tolist() == [2.0 * i + 1] * 4


def test_attention_is_captured(graph, device, device_module):
    """In eager mode the CPU computes it in place of device memory; in a graph compiled kernels compose it."""
    call = nn.functional.scaled_dot_product_attention
    q, k, v, mask = torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8), torch.randn(5, 5)
    x, *others, bias = (t.to(device) for t in (q, k, v, mask))
    with device_module.graph(graph):
        plain, masked = call(x, *others), call(x, *others, bias)
    x.mul_(2)
    graph.replay()
    for found, expected in ((plain, call(q * 2, k, v)), (masked, call(q * 2, k, v, mask))):
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-5, atol=1e-5)


def test_an_empty_graph_runs(graph, device_module):
    with device_module.graph(graph):
        pass
    replayed(graph, device_module, 3)


def test_fork_and_join_over_streams(graph, device, device_module):
    x = torch.ones(1000, device=device)
    side = another_stream(device_module)
    with device_module.graph(graph):
        side.wait_stream(device_module.current_stream())
        a = x * 2
        with side:
            assert device_module.is_current_stream_capturing()
            b = x * 3
        device_module.current_stream().wait_stream(side)
        c = a + b
    x.fill_(5)
    replayed(graph, device_module)
    assert c.tolist() == [25.0] * 1000


def test_replays_on_other_streams_come_one_after_the_other(graph, device, device_module):
    x = torch.zeros(10_000, device=device)
    with device_module.graph(graph):
        x.add_(1)
    streams = [device_module.Stream() for _ in range(3)]
    for i in range(30):
        with streams[i % 3]:
            graph.replay()
    device_module.synchronize()
    assert x.unique().tolist() == [30.0]


def test_H02_each_replay_takes_the_numbers_that_eager_would(graph, device, device_module):
    def draw():
        return torch.rand(7, device=device), torch.randn(1000, device=device)

    with device_module.graph(graph):
        drawn = draw()
    results = []
    for numbers in (lambda: graph.replay() or drawn, draw):
        torch.manual_seed(11)
        found = [t.clone() for _ in range(4) for t in numbers()]
        results.append(bits([*found, torch.rand(3, device=device)]))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


def test_H02_numbers_follow_memory_that_the_capture_has_freed(graph, device, device_module):
    """A replay places seed and offset before it runs: a kernel that comes first must not write there."""
    x = torch.rand(100, device=device)

    def draw():
        x.min()
        return torch.rand(7, device=device)

    draw()
    with device_module.graph(graph):
        drawn = draw()
    torch.manual_seed(11)
    found = [graph.replay() or drawn.clone() for _ in range(3)]
    torch.manual_seed(11)
    for one in found:
        assert torch.equal(one, draw())


def test_a_registered_generator_takes_part(graph, device, device_module):
    generator = torch.Generator(device=device).manual_seed(3)
    graph.register_generator_state(generator)
    with device_module.graph(graph):
        x = torch.rand(5, device=device, generator=generator)
    found = [graph.replay() or x.clone() for _ in range(3)]
    generator.manual_seed(3)
    for one in found:
        assert torch.equal(one, torch.rand(5, device=device, generator=generator))
    with pytest.raises(ValueError, match="got one of cpu"):
        graph.register_generator_state(torch.Generator())


def test_a_capture_moves_no_generator_and_may_not_seed_one(graph, device, device_module):
    torch.manual_seed(5)
    before = device_module.get_rng_state()
    with device_module.graph(graph):
        torch.rand(100, device=device)
        with pytest.raises(RuntimeError, match=r"seed of a generator .* cannot be set while"):
            device_module.manual_seed(1)
    assert torch.equal(device_module.get_rng_state(), before)
    replayed(graph, device_module)
    assert not torch.equal(device_module.get_rng_state(), before)


def test_debug_dump(device, device_module, tmp_path):
    x = torch.ones(4, device=device)
    graph = device_module.CUDAGraph()
    with pytest.raises(RuntimeError, match="enable_debug_mode"):
        graph.debug_dump(str(tmp_path / "none.dot"))
    graph.enable_debug_mode()
    with device_module.graph(graph):
        y = (x + 1).mul_(2)
    graph.debug_dump(str(tmp_path / "graph.dot"))
    text = (tmp_path / "graph.dot").read_text()
    assert text.startswith("digraph")
    assert text.count("label=") >= 2
    replayed(graph, device_module)
    assert y.tolist() == [4.0] * 4


@pytest.mark.long_after_first
@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_that_is_kept_is_made_ready_later(device, device_module, tmp_path, kind):
    x = torch.ones(4, device=device)
    graph = make(kind, device_module, keep_graph=True)
    with captured(graph, device_module.Stream(), device_module):
        x.add_(1)
    graph.instantiate()
    graph.debug_dump(str(tmp_path / "graph.dot"))
    replayed(graph, device_module, 2)
    assert x.tolist() == [3.0] * 4
    assert (tmp_path / "graph.dot").read_text().count("label=") >= 1


@pytest.mark.parametrize("races", [False, True])
def test_the_stream_sanitizer_looks_into_a_capture(graph, device, device_module, races):
    from torch_backplane import sanitizer

    x = torch.ones(8, device=device)
    side = another_stream(device_module)
    with sanitizer.enabled(raise_errors=False) as found, device_module.graph(graph):
        y = x + 1
        side.wait_stream(device_module.current_stream())
        with side:
            z = y * 2
        if races:
            y.add_(1)  # while the other stream may still read it
        device_module.current_stream().wait_stream(side)
        z.add_(y)
    assert len(found.errors) == races


def test_graphed_callables_train_as_the_module_does(device, device_module):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).to(device)
    graphed = copy.deepcopy(plain)
    sample = torch.randn(5, 8, device=device, requires_grad=True)
    device_module.make_graphed_callables(graphed, (sample,))

    def trained(model):
        """Losses, gradients of the inputs and, at last, parameters."""
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(1)
        found = []
        for _ in range(5):
            x = torch.randn(5, 8, device=device, requires_grad=True)
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found += bits([loss, x.grad])  # which the next replay writes
        return [*found, *bits(model.parameters())]

    for one, other in zip(trained(plain), trained(graphed), strict=True):
        assert torch.equal(one, other)
    with pytest.raises(ValueError, match="was captured for"):
        graphed(torch.randn(6, 8, device=device))
    assert torch.equal(graphed.eval()(sample).cpu(), plain.eval()(sample).cpu())


def test_several_graphed_callables_share_a_pool(device, device_module):
    x = torch.randn(6, device=device, requires_grad=True)
    double, square = device_module.make_graphed_callables(
        (lambda a: a * 2, lambda a, b: {"sum": a + b, "square": a * a}),
        ((x,), (torch.randn(6, device=device, requires_grad=True), torch.randn(6, device=device))),
    )
    y = torch.arange(6.0, device=device, requires_grad=True)
    out = square(double(y), torch.ones(6, device=device))
    assert out["sum"].tolist() == [2.0 * i + 1 for i in range(6)]
    (out["square"].sum() + out["sum"].sum()).backward()
    assert y.grad.tolist() == [8.0 * i + 2 for i in range(6)]


def test_a_capture_with_launch_blocking_and_the_watchdog(printed):
    """Both apply to work that runs, and not to work that is recorded."""
    code = """
        x = torch.zeros(3, device=d)
        graph = m.CUDAGraph()
        with m.graph(graph):
            for _ in range(4):
                x.add_(1)
        graph.replay()
        print(m.current_stream().query(), x.tolist())
    """
    assert printed(code, LAUNCH_BLOCKING="1", WATCHDOG_SECONDS="20") == "True [4.0, 4.0, 4.0]\n"


def test_an_index_out_of_range_in_a_replay_is_reported(printed):
    code = """
        table, places = torch.ones(4, 2, device=d), torch.zeros(3, dtype=torch.long, device=d)
        graph = m.CUDAGraph()
        with m.graph(graph):
            rows = torch.index_select(table, 0, places)
        graph.replay()
        print(rows.sum().item())
        places.fill_(9)
        graph.replay()
        try:
            m.synchronize()
        except (IndexError, RuntimeError) as error:
            print("out of range" in str(error) or "host_exec" in str(error))
    """
    assert printed(code).split() == ["6.0", "True"]
