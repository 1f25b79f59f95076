"""The memory of graphs: what is theirs until reset(), pools that they share, and pinned memory."""

from contextlib import nullcontext

import pytest
import torch
from device_memory import emptied
from graphs import KINDS, MARKS, another_stream, captured, make, replayed

pytestmark = MARKS


def test_H04_a_graphs_memory_is_its_own_until_reset(device, device_module):
    x = torch.ones(1 << 20, device=device)
    before = emptied(device_module).memory_reserved()
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


@pytest.mark.long_after_first
@pytest.mark.parametrize("kind", KINDS)
def test_graphs_share_a_pool(device, device_module, kind):
    x = torch.ones(1 << 20, device=device)
    before = emptied(device_module).memory_reserved()
    pool = device_module.graph_pool_handle()
    first = device_module.CUDAGraph()
    with device_module.graph(first, pool=pool):
        total = ((x + 1) * 2).sum()
    held = device_module.memory_reserved() - before
    stream = device_module.graph.default_capture_stream[0]
    ours = kind != "accelerator"
    second = make(kind, device_module, **({} if ours else {"pool": pool}))
    with device_module.graph(second, pool=pool, stream=stream) if ours else stream, nullcontext() if ours else second:
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
    assert emptied(device_module).memory_reserved() == before


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


@pytest.mark.long_after_first
@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_that_is_dropped_gives_its_memory_back(device, device_module, kind):
    x = torch.ones(1 << 20, device=device)
    before = emptied(device_module).memory_reserved()
    graph = make(kind, device_module)
    with captured(graph, device_module.Stream(), device_module):
        y = x * 2
    replayed(graph, device_module)
    del y, graph
    assert emptied(device_module).memory_reserved() == before


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
    device_module.synchronize()
    device_module.empty_cache()  # looks at the events that blocks wait for
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
    if torch.__version__ < (2, 13):  # pinned memory is not the graph's there (docs/graphs.md)
        return
    address = temporary.data_ptr()
    del temporary
    others = [torch.empty(100, pin_memory=True).fill_(9) for _ in range(4)]
    assert address not in {one.data_ptr() for one in others}  # runs still write there


@pytest.mark.requires("host_exec")  # an option of the simulated device
def test_out_of_memory_in_a_capture(printed):
    code = """
        x = torch.ones(1 << 20, device=d)
        graph = m.CUDAGraph()
        try:
            with m.graph(graph):
                y = x + 1
                torch.empty(24 << 20, device=d)
        except torch.OutOfMemoryError as error:
            assert "A graph is being captured" in str(error), error
        else:
            raise SystemExit("no error")
        graph.reset()
        del y
        z = torch.ones(24 << 20, device=d)  # what the graph had is there again
        with m.graph(graph):
            z.add_(1)
        graph.replay()
        print(int(z.sum().item()))
    """
    assert printed(code, "memory=128MiB").strip() == str(2 * (24 << 20))
