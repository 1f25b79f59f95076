"""torch.<device>.memory: statistics, limits, raw memory, snapshots, private pools."""

import gc
import pickle

import pytest
import torch
from device_memory import emptied, is_inside, limited

from torch_backplane import compat


def test_memory_allocated_follows_tensors(device_module, device):
    before = emptied(device_module).memory_allocated()
    device_module.reset_peak_memory_stats()
    x = torch.empty(1 << 20, dtype=torch.uint8, device=device)
    assert device_module.memory_allocated() == before + (1 << 20)
    assert device_module.max_memory_allocated() == before + (1 << 20)
    assert device_module.memory_reserved() >= device_module.memory_allocated()
    del x
    assert device_module.memory_allocated() == before
    assert device_module.max_memory_allocated() == before + (1 << 20)
    device_module.reset_peak_memory_stats()
    assert device_module.max_memory_allocated() == before


def test_memory_stats_have_every_key_of_cudas(device_module, device):
    """The keys that the documentation of ``torch.cuda.memory_stats`` lists."""
    torch.empty(1, device=device)
    stats = device_module.memory_stats()
    pools, metrics = ("all", "large_pool", "small_pool"), ("current", "peak", "allocated", "freed")
    by_pool = ("allocation", "segment", "active", "inactive_split")
    by_pool += tuple(f"{name}_bytes" for name in ("allocated", "reserved", "active", "inactive_split", "requested"))
    expected = {f"{name}.{pool}.{metric}" for name in by_pool for pool in pools for metric in metrics}
    expected |= {f"oversize_{name}.{metric}" for name in ("allocations", "segments") for metric in metrics}
    expected |= {"num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free"}
    named = torch.cuda.memory_stats.__doc__.replace('"', " ").replace("`", " ").split()
    expected |= {"max_split_size", *(word for word in named if word.startswith("num_"))}
    assert expected - stats.keys() == set()
    assert list(stats) == sorted(stats)
    assert stats["allocation.all.allocated"] > 0
    device_module.reset_accumulated_memory_stats()
    assert device_module.memory_stats()["allocation.all.allocated"] == 0


def test_mem_get_info_counts(device_module, device):
    device_module.empty_cache()
    free, total = device_module.mem_get_info()
    x = torch.empty(32 << 20, dtype=torch.uint8, device=device)
    assert device_module.mem_get_info()[0] <= free - (32 << 20)
    assert device_module.device_memory_used() == total - device_module.mem_get_info()[0]
    del x


def test_the_fraction_limits_and_the_error_is_torchs(device_module, device):
    total = device_module.mem_get_info()[1]
    assert device_module.get_per_process_memory_fraction() == 1.0
    for fraction in (0.25, 0.0):  # torch.cuda accepts 0, too
        with limited(device_module, fraction * total):
            assert device_module.get_per_process_memory_fraction() == fraction
            with pytest.raises(device_module.OutOfMemoryError, match="memory fraction"):
                torch.empty(total // 3, dtype=torch.uint8, device=device)
    assert device_module.memory_stats()["num_ooms"] >= 1
    assert device_module.OutOfMemoryError is torch.OutOfMemoryError
    for wrong, error in ((1, TypeError), (1.5, ValueError)):
        with pytest.raises(error):
            device_module.set_per_process_memory_fraction(wrong)


def test_raw_memory_is_counted_and_freed(device_module, device):
    before = device_module.memory_allocated()
    for stream in (None, device_module.Stream(), 0):
        address = device_module.caching_allocator_alloc(4096, stream=stream)
        assert address != 0
        assert device_module.memory_allocated() == before + 4096
        device_module.caching_allocator_delete(address)
        assert device_module.memory_allocated() == before
    with pytest.raises(TypeError):
        device_module.caching_allocator_alloc(1, stream="s")


def test_the_snapshot_accounts_for_every_byte(device_module, device, tmp_path):
    emptied(device_module)  # what an earlier test left would be freed between two readings
    x = torch.empty(3 << 20, dtype=torch.uint8, device=device)
    segments = [s for s in device_module.memory_snapshot() if s["device"] == 0]
    assert sum(s["total_size"] for s in segments) == device_module.memory_reserved()
    blocks = [b for s in segments for b in s["blocks"]]
    assert sum(b["size"] for b in blocks if b["state"] == "active_allocated") == device_module.memory_allocated()
    assert next(b for b in blocks if b["address"] == x.data_ptr())["requested_size"] == 3 << 20
    device_module.memory._dump_snapshot(str(tmp_path / "snapshot.pickle"))
    dumped = pickle.loads((tmp_path / "snapshot.pickle").read_bytes())
    from torch.cuda import _memory_viz

    assert len(dumped["device_traces"]) == device_module.device_count()
    assert "MiB" in _memory_viz.segsum(dumped)


def test_the_summary_shows_the_numbers(device_module, device):
    x = torch.empty(5 << 20, dtype=torch.uint8, device=device)
    whole = device_module.memory_summary()
    short = device_module.memory_summary(abbreviated=True)
    assert "large pool" in whole
    assert "large pool" not in short
    row = next(line for line in short.split("\n") if line.startswith("Allocated memory"))
    assert f"{device_module.memory_allocated() // 1024} KiB" in row or f"{device_module.memory_allocated()} B" in row
    del x


def test_a_private_pool_keeps_its_memory_apart(device_module, device):
    pool = device_module.MemPool()
    outside = torch.empty(1024, device=device)
    with device_module.use_mem_pool(pool):
        x = torch.empty(1024, device=device)
    y = torch.empty(1024, device=device)
    assert [is_inside(tensor, pool.snapshot()) for tensor in (x, y, outside)] == [True, False, False]
    identity = pool.id
    del x, pool
    gc.collect()
    assert device_module.memory_snapshot(identity) == []


def test_private_pools_nest_and_count_their_uses(device_module, device):
    outer, inner = device_module.MemPool(), device_module.MemPool(no_split=True)
    with device_module.use_mem_pool(outer):
        with device_module.use_mem_pool(inner):
            x = torch.empty(1024, device=device)
            y = torch.empty(1024, device=device)
        assert inner.use_count() == 1
        with device_module.use_mem_pool(inner):
            assert inner.use_count() == 2
    assert (inner.use_count(), outer.use_count()) == (1, 1)
    assert outer.snapshot() == []
    assert [len(segment["blocks"]) for segment in inner.snapshot()] == [1, 1]
    reserved = device_module.memory_stats()[f"reserved_bytes_by_private_pools.0_{inner.id[1]}.all.current"]
    assert reserved == sum(segment["total_size"] for segment in inner.snapshot())
    with pytest.raises(TypeError, match="PluggableAllocator"):
        device_module.MemPool(allocator=object())
    del x, y


def test_a_pool_can_be_the_last_resort(device_module, device):
    pool = device_module.MemPool(use_on_oom=True)
    with device_module.use_mem_pool(pool):
        torch.empty(32 << 20, dtype=torch.uint8, device=device)
    emptied(device_module)
    rejected = device_module.memory_stats()["num_oom_rejections"]
    with limited(device_module, device_module.memory_reserved()):
        x = torch.empty(30 << 20, dtype=torch.uint8, device=device)
        with pytest.raises(torch.OutOfMemoryError, match=r"fragmentation \d+ %.*memory fraction"):
            torch.empty(30 << 20, dtype=torch.uint8, device=device)
    assert is_inside(x, pool.snapshot())
    assert device_module.memory_stats()["num_oom_rejections"] == rejected + 1


def test_old_names_warn_and_work(device_module):
    for old, new in (("memory_cached", "memory_reserved"), ("max_memory_cached", "max_memory_reserved")):
        with pytest.warns(FutureWarning, match=new):
            assert getattr(device_module, old)() == getattr(device_module, new)()
    for old in ("reset_max_memory_allocated", "reset_max_memory_cached"):
        with pytest.warns(FutureWarning, match="reset_peak_memory_stats"):
            getattr(device_module, old)()


def test_host_statistics_follow_pinned_memory(device_module, device):
    emptied(device_module)
    compat.empty_host_cache()  # blocks of earlier copies whose events are done stop to count as active
    before = device_module.host_memory_stats()["active_requests.current"]
    x = torch.empty(1000).pin_memory()
    stats = device_module.host_memory_stats()
    assert stats["active_requests.current"] == before + 1
    assert stats["active_bytes.current"] >= 4000
    keys = "allocations.peak allocated_bytes.allocated num_host_alloc host_alloc_time.count host_free_time.avg"
    assert stats.keys() >= set(keys.split())
    del x
    device_module.reset_peak_host_memory_stats()
    device_module.reset_accumulated_host_memory_stats()
    assert device_module.host_memory_stats()["active_requests.allocated"] == 0


@pytest.mark.requires("multi_device")
def test_a_pool_counts_its_uses_on_every_device(device_module):
    pool = device_module.MemPool()
    with device_module.use_mem_pool(pool, 0), device_module.use_mem_pool(pool, 1):
        assert pool.use_count() == 3
    assert pool.use_count() == 1
