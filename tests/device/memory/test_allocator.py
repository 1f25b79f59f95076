"""The caching allocator as programs use it: streams, threads, running out of memory, the end of the interpreter."""

import gc
import threading

import pytest
import torch


@pytest.fixture
def empty(device_module):
    """The device module; the memory of earlier tests is freed."""
    gc.collect()
    device_module.synchronize()
    device_module.empty_cache()
    return device_module


def test_E03_allocate_and_free_do_not_grow(empty, device):
    reserved = 0
    for i in range(100):
        torch.empty(1000 + i, device=device)
        if i == 10:
            reserved = empty.memory_reserved()
    assert empty.memory_reserved() == reserved


def test_E03_a_tensor_without_elements_takes_no_memory_and_has_a_device(empty, device):
    before = empty.memory_allocated()
    x = torch.empty(0, 5, device=device)
    assert x.device == device
    assert x.untyped_storage().data_ptr() == 0
    assert empty.memory_allocated() == before


@pytest.mark.requires("streams")
def test_what_other_streams_still_read_is_not_reused(empty, device):
    """Tensors are dropped while another stream copies them; they were recorded on it, so the copies are right."""
    streams = [empty.Stream() for _ in range(3)]
    generator = torch.Generator().manual_seed(0)
    expected, results = [], []
    for i in range(60):
        stream = streams[i % 3]
        host = torch.randint(0, 1 << 30, (int(torch.randint(1, 20000, (), generator=generator)),), generator=generator)
        source = host.to(device)
        stream.wait_stream(empty.current_stream())
        with torch.accelerator.device_index(device.index), stream:
            copy = source.clone()
        source.record_stream(stream)
        del source
        torch.full((len(host),), -1, device=device)  # reuses the memory, if it is free
        expected.append(host)
        results.append(copy)
    empty.synchronize()
    for host, copy in zip(expected, results, strict=True):
        assert torch.equal(copy.cpu(), host)


def test_threads_free_what_others_made(empty, device):
    before = empty.memory_allocated()
    tensors = [torch.full((5000,), i, device=device) for i in range(50)]
    wrong = []

    def work(mine):
        while mine:
            tensor = mine.pop()
            value = int(tensor[0].cpu())
            if not bool((tensor.cpu() == value).all()):
                wrong.append(value)
            torch.full((5000,), -1, device=device)

    workers = [threading.Thread(target=work, args=(tensors[i::4],)) for i in range(4)]
    del tensors
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    workers.clear()
    gc.collect()
    assert wrong == []
    assert empty.memory_allocated() == before


def test_a_step_that_ran_out_of_memory_can_be_repeated_smaller(empty, device):
    total = empty.mem_get_info()[1]
    empty.set_per_process_memory_fraction((64 << 20) / total)
    try:
        kept = torch.arange(1000, device=device)
        with pytest.raises(torch.OutOfMemoryError) as error:
            [torch.empty(10 << 20, dtype=torch.uint8, device=device) for _ in range(10)]
        for words in ("Tried to allocate 10.00 MiB", "in total", "allocated", "largest free block", "memory fraction"):
            assert words in str(error.value)
        del error
        gc.collect()
        parts = [torch.empty(5 << 20, dtype=torch.uint8, device=device) for _ in range(10)]
        assert len({part.data_ptr() for part in parts}) == 10
        assert torch.equal(kept.cpu(), torch.arange(1000))
    finally:
        empty.set_per_process_memory_fraction(1.0)


def test_the_profiler_sees_allocations(empty, device):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        x = torch.empty(1 << 20, dtype=torch.uint8, device=device)
        del x
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]" and e.nbytes() != 0]
    assert [e.nbytes() for e in events if abs(e.nbytes()) == 1 << 20] == [1 << 20, -(1 << 20)]


@pytest.mark.once
def test_wrong_settings_list_the_known_ones(run_in_process, backend_package, name):
    variable = f"{name.upper()}_ALLOC_CONF"
    code = f"import {backend_package.__name__}, torch; torch.empty(1, device='{name}')"
    done = run_in_process(code, env={variable: "expandable_segment:True"}, check=False)
    assert done.returncode != 0
    assert "ValueError" in done.stderr
    assert "'expandable_segment' is not supported" in done.stderr
    assert "garbage_collection_threshold, graph_capture_record_stream_reuse, large_segment_size_mb" in done.stderr
    done = run_in_process(code, env={variable: "pinned_use_background_threads:True"}, check=False)
    assert "supports only False, got 'True'" in done.stderr
    run_in_process(code, env={variable: "max_split_size_mb:64,roundup_power2_divisions:[256:1,>:4]"})


def test_expandable_segments_without_the_driver_group_are_refused(run_in_process, backend_package, name):
    """The sample of a partial driver has no bp.vmm."""
    done = run_in_process(
        f"""
        import torch, {backend_package.__name__}
        from torch_backplane import _backend
        device = torch.{name}
        if "vmm" in _backend.C.driver.capabilities():
            device.memory._set_allocator_settings("expandable_segments:True")
            kept = [torch.ones(size << 18, device="{name}") for size in (3, 30, 7)]
            assert [float(x.sum()) for x in kept] == [float(x.numel()) for x in kept]
            assert {{s["is_expandable"] for s in device.memory_snapshot()}} == {{True}}
            print("expanded")
        else:
            try:
                device.memory._set_allocator_settings("expandable_segments:True")
            except ValueError as error:
                print("expanded" if "has no bp.vmm" in str(error) else error)
        """
    )
    assert done.stdout == "expanded\n"


@pytest.mark.once
def test_settings_come_from_both_variables_and_from_the_program(run_in_process, backend_package, name):
    done = run_in_process(
        f"""
        import torch, {backend_package.__name__}
        from torch_backplane import _backend
        device = torch.{name}
        torch.empty(1, device="{name}")
        stats = device.memory_stats()
        settings = _backend.C.memory.allocator_config()["text"]
        print(stats["max_split_size"] >> 20, device.get_per_process_memory_fraction(), settings)
        device.memory._set_allocator_settings("max_split_size_mb:96")
        print(device.memory_stats()["max_split_size"] >> 20, _backend.C.memory.allocator_config()["text"])
        torch._C._accelerator_setAllocatorSettings("max_split_size_mb:128,backend:native")
        print(device.memory_stats()["max_split_size"] >> 20)
        """,
        env={
            "PYTORCH_ALLOC_CONF": "max_split_size_mb:64, per_process_memory_fraction:0.5",
            f"{name.upper()}_ALLOC_CONF": "max_split_size_mb:80",
        },
    )
    both = "max_split_size_mb:64,per_process_memory_fraction:0.5,max_split_size_mb:80"
    through_torch = "96" if torch.version.cuda else "128"  # a torch with CUDA passes it only to CUDA's allocator
    assert done.stdout.splitlines() == [f"80 0.5 {both}", "96 max_split_size_mb:96", through_torch]


def test_tensors_may_outlive_the_interpreter(run_in_process, backend_package, name):
    done = run_in_process(
        f"""
        import sys, threading, torch, {backend_package.__name__}
        x = torch.ones(1000, device="{name}")
        sys.modules["kept"] = [x, torch.ones(10).pin_memory()]
        class Late:
            def __del__(self, free=x.clone()):
                del free
        late = Late()
        late.itself = late
        threading.Thread(target=lambda: torch.ones(5, device="{name}")).start()
        print("end")
        """
    )
    assert done.stdout == "end\n"
    assert done.stderr == ""


@pytest.mark.requires("host_view")
def test_E46_a_host_view_shares_memory_and_keeps_it(empty, device):
    from torch_backplane import _backend

    before = empty.memory_allocated()
    source = torch.arange(12.0, device=device).reshape(3, 4)
    view = _backend.C.memory.host_view(source.t())
    assert view.device.type == "cpu"
    assert torch.equal(view, torch.arange(12.0).reshape(3, 4).t())
    view[0, 0] = 7
    assert source[0, 0].item() == 7
    del source
    assert empty.memory_allocated() == before + 512
    other = torch.full((12,), -1.0, device=device)
    assert view[1, 2].item() == 9
    del view, other
    assert empty.memory_allocated() == before


def test_E46_without_a_host_view_it_is_refused(run_in_process, backend_package, name):
    done = run_in_process(
        f"""
        import torch, {backend_package.__name__}
        from torch_backplane import _backend
        torch.empty(1, device="{name}")
        _backend.C.memory.host_view(torch.ones(3, device="{name}"))
        """,
        options="kind=discrete",
        env={f"{name.upper()}_DRIVER": None},
        check=False,
    )
    assert "NotImplementedError" in done.stderr
    assert "copy with .cpu()" in done.stderr
