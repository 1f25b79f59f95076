"""The caching allocator as programs use it: streams, threads, running out of memory, the end of the interpreter."""

import gc

import pytest
import torch
from device_memory import emptied, limited

from backplane_tools.conformance.checks import in_threads


@pytest.fixture
def empty(device_module):
    return emptied(device_module)


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


def test_threads_free_what_others_made(empty, device):
    before = empty.memory_allocated()
    tensors = [torch.full((5000,), i, device=device) for i in range(50)]
    parts = [tensors[i::4] for i in range(4)]
    del tensors

    def wrong(i):
        found = []
        while parts[i]:
            values = parts[i].pop().cpu()
            found += [] if bool((values == values[0]).all()) else [values]
            torch.full((5000,), -1, device=device)
        return found

    assert in_threads(wrong, 4) == [[]] * 4
    assert empty.memory_allocated() == before


def test_a_step_that_ran_out_of_memory_can_be_repeated_smaller(empty, device):
    kept = torch.arange(1000, device=device)
    with limited(empty, 64 << 20):
        with pytest.raises(torch.OutOfMemoryError) as error:
            [torch.empty(10 << 20, dtype=torch.uint8, device=device) for _ in range(10)]
        for words in ("Tried to allocate 10.00 MiB", "in total", "allocated", "largest free block", "memory fraction"):
            assert words in str(error.value)
        del error
        gc.collect()
        parts = [torch.empty(5 << 20, dtype=torch.uint8, device=device) for _ in range(10)]
    assert len({part.data_ptr() for part in parts}) == 10
    assert torch.equal(kept.cpu(), torch.arange(1000))


def test_the_profiler_sees_allocations(empty, device):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        torch.empty(1 << 20, dtype=torch.uint8, device=device)
    sizes = [event.nbytes() for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    assert [size for size in sizes if abs(size) == 1 << 20] == [1 << 20, -(1 << 20)]


@pytest.mark.once
def test_wrong_settings_list_the_known_ones(run_in_process, name):
    def error(setting):
        code = f"import torch; torch.empty(1, device='{name}')"
        return run_in_process(code, env={f"{name.upper()}_ALLOC_CONF": setting}, check=False).stderr

    found = error("expandable_segment:True")
    assert "ValueError" in found
    assert "'expandable_segment' is not supported" in found
    assert "garbage_collection_threshold, graph_capture_record_stream_reuse, large_segment_size_mb" in found
    assert "supports only False, got 'True'" in error("pinned_use_background_threads:True")
    assert error("max_split_size_mb:64,roundup_power2_divisions:[256:1,>:4]") == ""


def test_expandable_segments_without_the_driver_group_are_refused(printed):
    """The sample of a partial driver has no bp.vmm."""
    code = """
        from torch_backplane import _backend
        try:
            m.memory._set_allocator_settings("expandable_segments:True")
        except ValueError as error:
            assert "vmm" not in _backend.C.driver.capabilities() and "has no bp.vmm" in str(error)
        else:
            kept = [torch.ones(size << 18, device=d) for size in (3, 30, 7)]
            assert [float(x.sum()) for x in kept] == [float(x.numel()) for x in kept]
            assert {s["is_expandable"] for s in m.memory_snapshot()} == {True}
        print("fine")
    """
    assert printed(code) == "fine\n"


@pytest.mark.once
def test_settings_come_from_both_variables_and_from_the_program(printed):
    code = """
        from torch_backplane import _backend
        torch.empty(1, device=d)
        settings = _backend.C.memory.allocator_config
        print(m.memory_stats()["max_split_size"] >> 20, m.get_per_process_memory_fraction(), settings()["text"])
        m.memory._set_allocator_settings("max_split_size_mb:96")
        print(m.memory_stats()["max_split_size"] >> 20, settings()["text"])
        torch._C._accelerator_setAllocatorSettings("max_split_size_mb:128,backend:native")
        print(m.memory_stats()["max_split_size"] >> 20)
    """
    torchs = {"PYTORCH_ALLOC_CONF": "max_split_size_mb:64, per_process_memory_fraction:0.5"}
    both = "max_split_size_mb:64,per_process_memory_fraction:0.5,max_split_size_mb:80"
    through_torch = "96" if torch.version.cuda else "128"  # a torch with CUDA passes it only to CUDA's allocator
    found = printed(code, env=torchs, ALLOC_CONF="max_split_size_mb:80").splitlines()
    assert found == [f"80 0.5 {both}", "96 max_split_size_mb:96", through_torch]


def test_tensors_may_outlive_the_interpreter(run_in_process, name):
    done = run_in_process(
        f"""
        import sys, threading, torch
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
    assert (done.stdout, done.stderr) == ("end\n", "")
