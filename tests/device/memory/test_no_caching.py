"""caching_allocator_enable(False): a free waits for the block's streams and keeps nothing."""

import gc
import re

import gates
import pytest
import torch
from device_memory import emptied, limited


@pytest.fixture
def uncached(device_module):
    """The module, while caching is off."""
    gc.collect()
    device_module.synchronize()
    with device_module.memory.caching_allocator_disabled():
        yield device_module
        gc.collect()


def test_E61_nothing_freed_is_kept(uncached, device):
    torch.empty(5, device=device).to(torch.float64) + 1  # what is made once, such as staging memory
    before = uncached.memory_reserved(), uncached.memory_stats()["segment.all.current"]
    for size in (1, 700, 1 << 20, 5 << 20):
        x = torch.empty(size, dtype=torch.uint8, device=device)
        rounded = (size + 511) // 512 * 512
        assert uncached.memory_reserved() == before[0] + rounded
        y = x.to(torch.float32) + 1
        del x, y
        gc.collect()
        after = uncached.memory_reserved(), uncached.memory_stats()["segment.all.current"]
        assert after <= before  # less, where something of an earlier test has ended
        before = after


def test_E61_cached_memory_is_freed_when_caching_ends_or_its_segment_empties(device_module, device):
    reserved = emptied(device_module).memory_reserved()
    a, b = (torch.empty(1000, dtype=torch.uint8, device=device) for _ in range(2))  # of one segment
    torch.empty(30 << 20, dtype=torch.uint8, device=device)
    with device_module.memory.caching_allocator_disabled():
        assert device_module.memory_reserved() < reserved + (30 << 20)
        with_both = device_module.memory_reserved()
        del a
        assert device_module.memory_reserved() == with_both
        del b
        assert device_module.memory_reserved() <= reserved
    torch.empty(30 << 20, dtype=torch.uint8, device=device)
    assert device_module.memory_reserved() >= reserved + (30 << 20)  # kept again
    device_module.empty_cache()


@pytest.mark.long_after_first
@pytest.mark.once
@pytest.mark.parametrize("kind", ["unified", "discrete"])
def test_E61_a_free_waits_for_the_streams_of_the_block(printed, shim, kind):
    code = """
def done_after_free(owner, user, record):
    with m.stream(owner):
        x = torch.zeros(1000, device=d)
    user.wait_stream(owner)
    gates.delay(user, 300_000)
    with m.stream(user):
        x.zero_()
        event = torch.Event(d)
        event.record()
    if record:
        x.record_stream(user)
    del x
    return int(event.query())
s, t = m.Stream(), m.Stream()
print(done_after_free(s, s, False), done_after_free(s, t, True), done_after_free(s, t, False), m.memory_reserved())
"""
    code = gates.prelude(shim("hold_streams")) + code
    found = printed(code, f"kind={kind},stream=async", shim_name="hold_streams", NO_MEMORY_CACHING="1").split()
    # The third is the program's mistake: the free knows nothing of the other stream.
    assert found == ["1", "1", "0", "0"]


def test_E61_running_out_of_memory_is_torchs_error(uncached, device):
    with limited(uncached, 32 << 20):
        kept = torch.empty(20 << 20, dtype=torch.uint8, device=device)
        with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 20.00 MiB"):
            torch.empty(20 << 20, dtype=torch.uint8, device=device)
        del kept
        torch.empty(20 << 20, dtype=torch.uint8, device=device)


def test_E61_private_pools_cache_still(uncached, device):
    pool = uncached.MemPool()
    with uncached.use_mem_pool(pool):
        x = torch.empty(1000, dtype=torch.uint8, device=device)
        address = x.data_ptr()
        del x
        assert torch.empty(1000, dtype=torch.uint8, device=device).data_ptr() == address
    assert sum(s["total_size"] for s in pool.snapshot()) > 0


@pytest.mark.kernels
@pytest.mark.requires("graph")
def test_E61_a_graph_is_captured_and_memory_freed_meanwhile_goes_back_later(uncached, device):
    x = torch.ones(1000, device=device)
    doomed = torch.ones(5 << 20, dtype=torch.uint8, device=device)
    stream = uncached.Stream()
    stream.wait_stream(uncached.current_stream())
    graph = uncached.CUDAGraph()
    with uncached.graph(graph, stream=stream):
        y = x * 2
        doomed.record_stream(stream)
        reserved = uncached.memory_reserved()
        del doomed
    x.fill_(4)
    graph.replay()
    uncached.synchronize()
    assert y.tolist() == [8.0] * 1000
    torch.empty(1, device=device)  # takes back what is done
    assert uncached.memory_reserved() <= reserved - (5 << 20)


@pytest.mark.requires("vmm")
@pytest.mark.once
def test_E61_chunks_of_expandable_segments_are_unmapped(printed):
    code = """
        a, b = (torch.ones(1000, device=d) for _ in range(2))
        before = m.memory_reserved()
        m.memory.caching_allocator_enable(False)
        del a
        kept = m.memory_reserved()
        del b
        print(before > 0, kept == before, m.memory_reserved())
    """
    assert printed(code, ALLOC_CONF="expandable_segments:True").split() == ["True", "True", "0"]


@pytest.mark.once
def test_E61_the_environment_switches_it_off_from_the_start(run_in_process, name):
    """The driver is asked for what a tensor needs: one that checks its memory finds accesses beyond a tensor, and the
    word around its last element, which atomics of half types read."""
    code = f"""
        import torch
        m = torch.{name}
        for size in (1, 700, 5000):
            torch.empty(size, dtype=torch.uint8, device="{name}")
        print(m.memory_reserved())
        m.memory.caching_allocator_enable(True)
        torch.ones(1000, device="{name}")
        print(m.memory_reserved() > 0)
    """
    env = {f"{name.upper()}_SHIMS": "trace", f"{name.upper()}_NO_MEMORY_CACHING": "1"}
    done = run_in_process(code, options="trace.filter=alloc", env=env)
    assert {"4", "700", "5000"} <= set(re.findall(r" alloc device=0 bytes=(\d+) ", done.stderr))
    assert done.stdout.split() == ["0", "True"]
