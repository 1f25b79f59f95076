"""Graphs, torch.accelerator.Graph and torch.<device>.graph: memory, random numbers, and what they refuse."""

import contextlib
import gc
import os
import threading

import pytest
import torch
from torch import nn

# Without compiled kernels (tests/conftest.py) those of host functions are what a graph can hold.
COMPILED = os.environ["MYDEVICE_KERNELS"] != "off"
pytestmark = pytest.mark.requires("graph", *([] if COMPILED else ["host_exec"]))


@pytest.fixture(autouse=True)
def no_garbage():
    gc.collect()


@pytest.fixture
def graph(device_module):
    return device_module.CUDAGraph()


# Both names of a graph; torch 2.11 has one of them.
KINDS = ["CUDAGraph", *(["accelerator"] if hasattr(torch.accelerator, "Graph") else [])]


def make(kind, device_module, **options):
    return (torch.accelerator.Graph if kind == "accelerator" else device_module.CUDAGraph)(**options)


@contextlib.contextmanager
def captured(graph, stream, device_module):
    """The block's work, by either kind of graph."""
    ours = isinstance(graph, device_module.CUDAGraph)
    stream.wait_stream(device_module.current_stream())
    with device_module.graph(graph, stream=stream) if ours else stream, contextlib.nullcontext() if ours else graph:
        yield


def another_stream(device_module):
    """Not the one that graph() takes by default: the pool hands that out, too."""
    device_module.graph(device_module.CUDAGraph())
    while (stream := device_module.Stream()) == device_module.graph.default_capture_stream[0]:
        pass
    return stream


def replayed(graph, device_module, times=1):
    for _ in range(times):
        graph.replay()
    device_module.synchronize()


def model_of_words():
    """Embedding, norm and dropout."""
    return nn.Sequential(
        nn.Embedding(20, 16),
        nn.Dropout(0.2),
        nn.LayerNorm(16),
        nn.Linear(16, 32),
        nn.GELU(),
        nn.Dropout(0.1),
        nn.Linear(32, 20),
    )


class Training:
    """A model, its optimizer, and one step over tensors that stay where they are."""

    def __init__(self, device):
        torch.manual_seed(0)
        self.model = model_of_words().to(device)
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


def batches(count):
    generator = torch.Generator().manual_seed(5)
    return [torch.randint(0, 20, (4, 9), generator=generator) for _ in range(count)]


def bits(tensors):
    return [tensor.detach().cpu().clone() for tensor in tensors]


# ---- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_H01_a_hundred_steps_with_dropout_are_eagers_bit_by_bit(device, device_module, kind):
    eager = Training(device).warm_up(device_module)
    torch.manual_seed(7)
    expected = []
    for batch in batches(100):
        eager.tokens.copy_(batch)
        expected.append(eager.step().clone())

    graphed = Training(device).warm_up(device_module)
    graph = make(kind, device_module)
    with captured(graph, device_module.Stream(), device_module):
        loss = graphed.step()
    torch.manual_seed(7)
    found = []
    for batch in batches(100):
        graphed.tokens.copy_(batch)
        graph.replay()
        found.append(loss.clone())
    assert bits(found) == bits(expected)
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


# ---- random numbers --------------------------------------------------------------------------------------------------


def test_H02_each_replay_takes_the_numbers_that_eager_would(graph, device, device_module):
    with device_module.graph(graph):
        a, b = torch.rand(7, device=device), torch.randn(1000, device=device)
    torch.manual_seed(11)
    found = []
    for _ in range(4):
        graph.replay()
        found += [a.clone(), b.clone()]
    after = torch.rand(3, device=device)
    torch.manual_seed(11)
    expected = []
    for _ in range(4):
        expected += [torch.rand(7, device=device), torch.randn(1000, device=device)]
    expected.append(torch.rand(3, device=device))
    for one, other in zip([*found, after], expected, strict=True):
        assert torch.equal(one.cpu(), other.cpu())


def test_a_generator_of_its_own_takes_part(graph, device, device_module):
    generator = torch.Generator(device=device).manual_seed(3)
    graph.register_generator_state(generator)
    with device_module.graph(graph):
        x = torch.rand(5, device=device, generator=generator)
    found = []
    for _ in range(3):
        graph.replay()
        found.append(x.clone())
    generator.manual_seed(3)
    expected = [torch.rand(5, device=device, generator=generator) for _ in range(3)]
    assert torch.equal(torch.stack(found).cpu(), torch.stack(expected).cpu())
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


# ---- what is refused -------------------------------------------------------------------------------------------------


def refusals(device, device_module, x):
    event = device_module.Event()
    event.record(device_module.default_stream())
    side = another_stream(device_module)
    yield "item", "aten::_local_scalar_dense", x[0].item
    yield "cpu", "aten::copy_ between the host", x.cpu
    yield "to the device", "aten::copy_ between the host", lambda: torch.ones(3).to(device)
    yield "unpinned", "aten::copy_ between the host", lambda: x.copy_(torch.ones(4), non_blocking=True)
    yield "fallback", "aten::_linalg_eigvals, which runs on the CPU,", lambda: torch.linalg.eigvals(x.view(2, 2))
    yield "device", "A wait for the device", device_module.synchronize
    yield "stream", "A wait for the stream", lambda: device_module.current_stream().synchronize()
    yield "query", "A query of the stream", lambda: device_module.current_stream().query()
    yield "other stream", "A wait for the stream waits for", side.synchronize
    yield "event", "A wait for an event", event.synchronize
    yield "wait outside", "recorded outside of that capture", event.wait


def test_H03_what_a_graph_cannot_hold_is_refused_at_the_call_and_the_capture_goes_on(device, device_module):
    x = torch.ones(4, device=device)
    for what, text, call in refusals(device, device_module, x):
        graph = device_module.CUDAGraph()
        with device_module.graph(graph, capture_error_mode="thread_local"):
            y = x + 1
            with pytest.raises(RuntimeError, match=text):
                call()
            z = y * 3
        replayed(graph, device_module)
        assert z.tolist() == [6.0] * 4, what


def test_H03_an_error_within_a_capture_leaves_stream_and_allocator_usable(device, device_module):
    stream = device_module.Stream()
    x = torch.ones(1000, device=device)
    device_module.synchronize()
    graph = device_module.CUDAGraph()
    with pytest.raises(RuntimeError, match="_local_scalar_dense"), device_module.graph(graph, stream=stream):
        (x * 2).sum().item()
    with stream:
        assert not device_module.is_current_stream_capturing()
        assert (x + 1).sum().item() == 2000
    graph.reset()
    with device_module.graph(graph, stream=stream):
        y = x * 4
    replayed(graph, device_module)
    assert y.sum().item() == 4000


def test_an_event_of_a_capture_belongs_to_it(graph, device, device_module):
    event = device_module.Event()
    with device_module.graph(graph):
        event.record()
        with pytest.raises(RuntimeError, match="latest record is part of a graph"):
            event.query()
        event.wait()
    with pytest.raises(RuntimeError, match="latest record is part of a graph"):
        event.synchronize()
    with pytest.raises(RuntimeError, match="capture of a graph that has ended"):
        event.wait()
    event.record()
    event.synchronize()
    assert event.query()


def test_work_that_does_not_come_back_ends_the_capture_with_an_error(graph, device, device_module):
    x = torch.ones(4, device=device)
    side = another_stream(device_module)
    context = device_module.graph(graph)
    context.__enter__()
    side.wait_stream(device_module.current_stream())
    with side:
        x.add_(1)
    with pytest.raises(RuntimeError, match="has not come back"):
        context.__exit__()
    with side:
        x.mul_(3)
    device_module.synchronize()
    assert x.tolist() == [3.0] * 4
    with pytest.raises(RuntimeError, match="holds nothing"):
        graph.replay()


def test_wrong_calls_are_refused(graph, device, device_module):
    with pytest.raises(RuntimeError, match=r"The default stream .* cannot capture"):
        graph.capture_begin()
    with pytest.raises(RuntimeError, match="not being captured"):
        graph.capture_end()
    with pytest.raises(RuntimeError, match="holds nothing"):
        graph.replay()
    with pytest.raises(ValueError, match="must be one of global, thread_local, relaxed"):
        graph.capture_begin(capture_error_mode="strict")
    with device_module.graph(graph):
        with pytest.raises(RuntimeError, match="is being captured already"):
            graph.capture_begin()
        with pytest.raises(RuntimeError, match="is capturing another graph already"):
            device_module.CUDAGraph().capture_begin()
        with pytest.raises(RuntimeError, match="call capture_end"):
            graph.replay()
        with pytest.raises(RuntimeError, match="call capture_end"):
            graph.reset()
    with pytest.raises(RuntimeError, match="captured already"), device_module.graph(graph):
        pass
    with device_module.graph(device_module.CUDAGraph()), pytest.raises(RuntimeError, match="cannot be replayed while"):
        graph.replay()


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_the_mode_says_whose_waits_are_refused(device, device_module, mode):
    x = torch.ones(4, device=device)
    device_module.synchronize()
    caught = {}

    def wait(name):
        try:
            with device_module.stream(device_module.Stream()):
                (x + 1).tolist()
        except RuntimeError as error:
            caught[name] = str(error)

    graph = device_module.CUDAGraph()
    with device_module.graph(graph, capture_error_mode=mode):
        y = x * 2
        wait("own")
        thread = threading.Thread(target=wait, args=("other",))
        thread.start()
        thread.join()
    replayed(graph, device_module)
    assert y.tolist() == [2.0] * 4
    assert set(caught) == {"global": {"own", "other"}, "thread_local": {"own"}, "relaxed": set()}[mode]
    assert all(f"capture_error_mode='{mode}'" in text for text in caught.values()), caught


def test_two_threads_capture_at_once(device, device_module):
    both, results = threading.Barrier(2), {}

    def capture(number):
        x = torch.full((100,), float(number), device=device)
        graph = device_module.CUDAGraph()
        device_module.current_stream().synchronize()
        both.wait()
        with device_module.graph(graph, stream=device_module.Stream(), capture_error_mode="thread_local"):
            both.wait()
            for _ in range(50):
                x.add_(torch.ones_like(x) * number)
            y = torch.rand(100, device=device) + x
            both.wait()
        graph.replay()
        graph.replay()
        device_module.synchronize()
        results[number] = (x.cpu().clone(), float((y - x).min()), float((y - x).max()))

    threads = [threading.Thread(target=capture, args=(n,)) for n in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for number in (1, 2):
        x, least, most = results[number]
        assert torch.equal(x, torch.full((100,), 101.0 * number))
        assert least >= -1e-4
        assert most <= 1.0001


# ---- memory ----------------------------------------------------------------------------------------------------------


def test_H04_a_graphs_memory_is_its_own_until_reset(device, device_module):
    x = torch.ones(1 << 20, device=device)
    device_module.synchronize()
    device_module.empty_cache()
    before = device_module.memory_reserved()
    graph = device_module.CUDAGraph()
    with device_module.graph(graph):
        y = (x + 1) * (x + 2)
    pool = graph.pool()
    assert pool != (0, 0)
    held = device_module.memory_reserved() - before
    assert held >= 2 * x.nbytes
    address = y.data_ptr()
    del y
    device_module.empty_cache()
    assert device_module.memory_reserved() - before == held  # tensors are gone, the graph writes there
    filler = [torch.full((1 << 20,), 7.0, device=device) for _ in range(8)]
    assert address not in {one.data_ptr() for one in filler}
    replayed(graph, device_module, 2)
    assert all(one.eq(7).all() for one in filler)
    del filler
    graph.reset()
    device_module.empty_cache()
    assert device_module.memory_reserved() == before


@pytest.mark.parametrize("kind", KINDS)
def test_graphs_share_a_pool(device, device_module, kind):
    x = torch.ones(1 << 20, device=device)
    device_module.synchronize()
    device_module.empty_cache()
    before = device_module.memory_reserved()
    pool = device_module.graph_pool_handle()
    first = device_module.CUDAGraph()
    second = make(kind, device_module, **({"pool": pool} if kind == "accelerator" else {}))
    with device_module.graph(first, pool=pool):
        total = ((x + 1) * 2).sum()
    held = device_module.memory_reserved() - before
    stream = device_module.graph.default_capture_stream[0]
    if kind == "accelerator":
        with stream, second:
            other = ((x + 2) * 2).sum()
    else:
        with device_module.graph(second, pool=pool, stream=stream):
            other = ((x + 2) * 2).sum()
    assert first.pool() == second.pool() == pool
    assert device_module.memory_reserved() - before == held
    replayed(first, device_module)
    assert total.item() == 4 << 20
    replayed(second, device_module)
    assert other.item() == 6 << 20
    del total, other
    first.reset()
    second.reset()
    device_module.empty_cache()
    assert device_module.memory_reserved() == before


def test_reset_while_it_is_replayed(device, device_module):
    x = torch.zeros(1 << 16, device=device)
    for _ in range(10):
        graph = device_module.CUDAGraph()
        with device_module.graph(graph):
            x.add_(torch.rand(1 << 16, device=device) * 0 + 1)
        for _ in range(5):
            graph.replay()
        graph.reset()
        torch.full((1 << 16,), -1e9, device=device)
    device_module.synchronize()
    assert x.unique().tolist() == [50.0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_that_is_dropped_gives_its_memory_back(device, device_module, kind):
    x = torch.ones(1 << 20, device=device)
    device_module.synchronize()
    device_module.empty_cache()
    before = device_module.memory_reserved()
    graph = make(kind, device_module)
    with captured(graph, device_module.Stream(), device_module):
        y = x * 2
    replayed(graph, device_module)
    del y, graph
    gc.collect()
    device_module.empty_cache()
    assert device_module.memory_reserved() == before


def test_frees_and_recorded_streams_within_a_capture(graph, device, device_module):
    x = torch.ones(1 << 18, device=device)
    side = another_stream(device_module)
    results, addresses = [], set()
    with device_module.graph(graph):
        for i in range(6):
            part = x * i
            addresses.add(part.data_ptr())
            side.wait_stream(device_module.current_stream())
            with side:
                results.append(part.sum())
            part.record_stream(side)
            del part  # its memory must not be used again before the sum has been taken
        device_module.current_stream().wait_stream(side)
    assert len(addresses) == 6
    active = device_module.memory_stats()["active_bytes.all.current"]
    assert active - device_module.memory_allocated() == 0  # what waited in the capture has come back
    replayed(graph, device_module, 3)
    assert [r.item() for r in results] == [float(i << 18) for i in range(6)]


def test_pinned_copies_are_replayed(graph, device, device_module):
    sent, back = torch.zeros(100).pin_memory(), torch.zeros(100).pin_memory()
    x = torch.zeros(100, device=device)
    with device_module.graph(graph):
        x.copy_(sent, non_blocking=True)
        temporary = torch.empty(100, pin_memory=True)
        temporary.copy_(x * 2, non_blocking=True)
        back.copy_(x + 1, non_blocking=True)
    for i in range(4):
        sent.fill_(i)
        replayed(graph, device_module)
        assert back.tolist() == [i + 1.0] * 100
        assert temporary.tolist() == [2.0 * i] * 100
    address = temporary.data_ptr()
    del temporary
    others = [torch.empty(100, pin_memory=True).fill_(9) for _ in range(4)]
    assert address not in {one.data_ptr() for one in others}  # runs still write there


@pytest.mark.requires("host_exec")  # an option of the simulated device
def test_out_of_memory_in_a_capture(device, device_module, run_in_process, name):
    code = f"""
        import torch
        d = torch.{name}
        x = torch.ones(1 << 20, device="{name}")
        graph = d.CUDAGraph()
        try:
            with d.graph(graph):
                y = x + 1
                torch.empty(24 << 20, device="{name}")
        except torch.OutOfMemoryError as error:
            assert "A graph is being captured" in str(error), error
        else:
            raise SystemExit("no error")
        graph.reset()
        del y
        z = torch.ones(24 << 20, device="{name}")  # what the graph had is there again
        with d.graph(graph):
            z.add_(1)
        graph.replay()
        print(int(z.sum().item()))
    """
    done = run_in_process(code, options="memory=128MiB")
    assert done.stdout.strip() == str(2 * (24 << 20))


# ---- the rest --------------------------------------------------------------------------------------------------------


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
    graphed = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).to(device)
    graphed.load_state_dict(plain.state_dict())
    sample = torch.randn(5, 8, device=device, requires_grad=True)
    device_module.make_graphed_callables(graphed, (sample,))
    losses = []
    for model in (plain, graphed):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(1)
        found = []
        for _ in range(5):
            x = torch.randn(5, 8, device=device, requires_grad=True)
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found += [loss.item(), *x.grad.flatten().tolist()]
        losses.append(found)
    assert losses[0] == losses[1]
    for one, other in zip(plain.parameters(), graphed.parameters(), strict=True):
        assert torch.equal(one.cpu(), other.cpu())
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


def test_a_capture_with_launch_blocking_and_the_watchdog(run_in_process, name):
    """Both look after work that runs: what is recorded does not."""
    code = f"""
        import torch
        d = torch.{name}
        x = torch.zeros(3, device="{name}")
        graph = d.CUDAGraph()
        with d.graph(graph):
            for _ in range(4):
                x.add_(1)
        graph.replay()
        print(d.current_stream().query(), x.tolist())
    """
    variables = {f"{name.upper()}_LAUNCH_BLOCKING": "1", f"{name.upper()}_WATCHDOG_SECONDS": "20"}
    assert run_in_process(code, env=variables).stdout.strip() == "True [4.0, 4.0, 4.0]"


def test_an_index_out_of_range_in_a_run_is_told(run_in_process, name):
    code = f"""
        import torch
        d = torch.{name}
        table, places = torch.ones(4, 2, device="{name}"), torch.zeros(3, dtype=torch.long, device="{name}")
        graph = d.CUDAGraph()
        with d.graph(graph):
            rows = torch.index_select(table, 0, places)
        graph.replay()
        print(rows.sum().item())
        places.fill_(9)
        graph.replay()
        try:
            d.synchronize()
        except (IndexError, RuntimeError) as error:
            print("out of range" in str(error) or "host_exec" in str(error), type(error).__name__)
    """
    done = run_in_process(code)
    assert done.stdout.split("\n")[0] == "6.0"
    assert done.stdout.split("\n")[1].startswith("True")


@pytest.mark.requires("host_exec")  # an option of the simulated device
def test_H05_a_driver_without_graphs_says_so(run_in_process, name):
    code = f"""
        import torch
        d = torch.{name}
        x = torch.ones(3, device="{name}")
        try:
            with d.graph(d.CUDAGraph()):
                x.add_(1)
        except NotImplementedError as error:
            assert "bp.graph" in str(error), error
            x.add_(2)
            print(x.tolist(), d.is_current_stream_capturing())
    """
    assert run_in_process(code, options="graph=off").stdout.strip() == "[3.0, 3.0, 3.0] False"


def test_H05_a_faulty_capture_leaves_nothing_behind(run_in_process, name, backend_package):
    code = f"""
        import torch
        d = torch.{name}
        x = torch.ones(3, device="{name}")
        d.synchronize()
        for attempt in range(2):
            graph = d.CUDAGraph()
            try:
                with d.graph(graph):
                    y = x + 1
            except (RuntimeError, torch.OutOfMemoryError) as error:
                print("injected" in str(error))
        graph = d.CUDAGraph()
        with d.graph(graph):
            y = x + 5
        graph.replay()
        print(y.tolist())
    """
    variable = f"{name.upper()}_SHIMS"
    done = run_in_process(code, options="fault.capture=@1,fault.instantiate=@1", env={variable: "fault"})
    assert done.stdout.split("\n")[:3] == ["True", "True", "[6.0, 6.0, 6.0]"]
