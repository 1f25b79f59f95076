"""Allocators in a shared object: of a pool, and of the whole device."""

import ctypes
import gc
from pathlib import Path

import pytest
import torch


@pytest.fixture
def path(compiled):
    return compiled(Path(__file__).parents[1] / "cpp" / "pluggable.cpp")


def counters(path):
    """By name."""
    library = ctypes.CDLL(str(path))
    return {name: ctypes.c_long.in_dll(library, name) for name in ("allocs", "frees", "bytes", "odd_sizes", "largest")}


@pytest.fixture
def counts(path):
    return counters(path)


@pytest.fixture
def allocator(device_module, path):
    return device_module.memory.PluggableAllocator(path, "counting_alloc", "counting_free")


@pytest.fixture
def plugged(printed, path):
    """``plugged(code)``: what a program prints that has the ``allocator`` and its ``counts``."""
    prelude = f"""
import gc, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import test_pluggable
counts = test_pluggable.counters({str(path)!r})
allocator = m.memory.CUDAPluggableAllocator({str(path)!r}, "counting_alloc", "counting_free")
"""
    return lambda code: printed(prelude + code).split()


def test_E62_a_pools_segments_come_from_its_allocator(device_module, device, allocator, counts):
    allocs, frees, before = (counts[name].value for name in ("allocs", "frees", "bytes"))
    pool = device_module.MemPool(allocator.allocator())
    assert pool.allocator is allocator
    assert pool.use_count() == 1
    with device_module.use_mem_pool(pool):
        assert pool.use_count() == 2
        x = torch.arange(1000, device=device)
        y = torch.ones(3 << 20, dtype=torch.uint8, device=device)
    outside = torch.ones(4 << 20, device=device)
    assert counts["allocs"].value == allocs + 2
    assert counts["odd_sizes"].value == 0
    segments = pool.snapshot()
    assert sum(s["total_size"] for s in segments) == counts["bytes"].value - before
    assert {s["segment_pool_id"] for s in segments} == {pool.id}
    assert torch.equal(x.cpu(), torch.arange(1000))
    assert int(y.sum().cpu()) == 3 << 20
    del y
    with device_module.use_mem_pool(pool):
        torch.ones(3 << 20, dtype=torch.uint8, device=device)  # cached
    assert counts["allocs"].value == allocs + 2
    del x, outside, pool
    gc.collect()
    device_module.empty_cache()
    assert counts["frees"].value == frees + 2
    assert counts["bytes"].value == before


def test_E62_a_pool_that_gets_no_memory_is_out_of_memory(device_module, device, allocator, counts):
    pool = device_module.MemPool(allocator)
    counts["largest"].value = 1 << 20
    no_memory = pytest.raises(torch.OutOfMemoryError, match="the pluggable allocator returned no memory")
    try:
        with device_module.use_mem_pool(pool), no_memory:
            torch.empty(3 << 20, dtype=torch.uint8, device=device)
    finally:
        counts["largest"].value = -1


def test_E62_an_address_that_is_not_aligned_is_refused(device_module, device, allocator, counts, path):
    before = counts["bytes"].value
    misplace = ctypes.c_int.in_dll(ctypes.CDLL(str(path)), "misplace")
    misplace.value = 8
    try:
        pool = device_module.MemPool(allocator)
        with device_module.use_mem_pool(pool), pytest.raises(RuntimeError, match="must be multiples of 512"):
            torch.empty(100, device=device)
    finally:
        misplace.value = 0
    assert counts["bytes"].value == before


@pytest.mark.kernels
@pytest.mark.requires("graph")
def test_E62_a_graph_takes_a_pools_allocator(device_module, device, allocator, counts):
    allocs = counts["allocs"].value
    pool = device_module.MemPool(allocator)
    graph, x = device_module.CUDAGraph(), torch.ones(1000, device=device)
    with device_module.graph(graph, pool=pool.id):
        y = x + 1
    assert counts["allocs"].value > allocs
    x.fill_(5)
    graph.replay()
    assert y.tolist() == [6.0] * 1000


def test_E62_wrong_arguments_are_refused(device_module, device, allocator, path, tmp_path):
    memory = device_module.memory
    with pytest.raises(OSError, match="nowhere"):
        memory.PluggableAllocator(tmp_path / "nowhere.so", "a", "b")
    with pytest.raises(AttributeError, match="no_such_function"):
        memory.PluggableAllocator(path, "no_such_function", "counting_free")
    with pytest.raises(TypeError, match="expected a PluggableAllocator"):
        memory.MemPool(3)
    torch.empty(1, device=device)
    with pytest.raises(RuntimeError, match="cannot be changed after the first allocation"):
        memory.change_current_allocator(allocator)
    assert memory.get_allocator_backend() == "native"


def test_E62_the_devices_memory_comes_from_the_allocator(plugged):
    out = plugged("""
m.memory.change_current_allocator(allocator)
print(m.memory.get_allocator_backend(), m.memory._get_current_allocator() is allocator)
x = torch.arange(1000.0, device=d)
y = (x * 2).sum()
print(int(y.item()), counts["odd_sizes"].value)
s = m.Stream()
s.wait_stream(m.current_stream())
with m.stream(s):
    z = x + 1
x.record_stream(s)
print(m.memory_allocated() == m.memory_reserved() == counts["bytes"].value > 0)
del x, y
z.record_stream(m.current_stream())
print(int(z.cpu()[-1]))
del z
m.synchronize()
w = torch.empty(10, device=d)
print(counts["bytes"].value, m.memory_reserved())
counts["largest"].value = 1 << 20
try:
    torch.empty(3 << 20, dtype=torch.uint8, device=d)
except torch.OutOfMemoryError as error:
    print("the_pluggable_allocator" in str(error).replace(" ", "_"))
m.memory._record_memory_history()
torch.empty(100, device=d)
print([event["action"] for event in m.memory._snapshot()["device_traces"][0]][:3].count("segment_alloc"))
""")
    assert out == ["pluggable", "True", "999000", "0", "True", "1000", "512", "512", "True", "1"]


@pytest.mark.once
def test_E62_a_forked_child_frees_nothing(plugged):
    out = plugged("""
import os
m.memory.change_current_allocator(allocator)
x = torch.ones(10, device=d)
m.synchronize()
child = os.fork()
if child == 0:
    before = counts["frees"].value
    del x
    gc.collect()
    os._exit(counts["frees"].value - before)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), x.tolist() == [1.0] * 10)
""")
    assert out == ["0", "True"]
