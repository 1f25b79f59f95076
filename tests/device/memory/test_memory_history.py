"""The recorded history of device memory: events, stacks, limits, and the format that PyTorch's viewer reads."""

import gc
import pickle

import pytest
import torch
from device_memory import emptied, limited

MIB = 1 << 20


@pytest.fixture
def history(device_module):
    """The memory module; nothing is cached, and recording ends with the test."""
    yield emptied(device_module).memory
    device_module.memory._record_memory_history(None)


def trace(history, device):
    return history._snapshot()["device_traces"][device.index]


def last(history, device, action):
    """The last event with this action."""
    return [event for event in trace(history, device) if event["action"] == action][-1]


def names(frames):
    return [frame["name"] for frame in frames]


def actions(events):
    return [event["action"] for event in events]


def block_of(x, snapshot):
    (block,) = [b for s in snapshot["segments"] for b in s["blocks"] if b["address"] == x.data_ptr()]
    return block


def allocate_here(nbytes, device):
    return torch.empty(nbytes, dtype=torch.uint8, device=device)


def release_here(module):
    module.empty_cache()


def test_events_of_one_tensor_in_order(history, device, device_module):
    history._record_memory_history()
    address = allocate_here(30 * MIB, device).data_ptr()
    device_module.empty_cache()
    events = trace(history, device)
    assert actions(events) == "segment_alloc alloc free_requested free_completed segment_free snapshot".split()
    assert {event["addr"] for event in events[:-1]} == {address}
    assert {event["size"] for event in events[:-1]} == {30 * MIB}
    assert [event["time_us"] for event in events] == sorted(event["time_us"] for event in events)


def test_stacks_name_the_line(history, device):
    history._record_memory_history(stacks="python")
    x = allocate_here(3 * MIB, device)
    frames = block_of(x, history._snapshot())["frames"]
    assert names(frames)[0] == "allocate_here"
    assert "test_stacks_name_the_line" in names(frames)
    assert frames[0]["filename"] == __file__
    assert frames[0]["line"] == allocate_here.__code__.co_firstlineno + 1
    assert last(history, device, "alloc")["frames"] == frames
    del x
    assert names(last(history, device, "free_requested")["frames"])[0] == "test_stacks_name_the_line"


def test_stacks_have_cpp_frames(history, device):
    history._record_memory_history(stacks="all")
    x = allocate_here(3 * MIB, device)
    found = names(last(history, device, "alloc")["frames"])
    assert x.numel() == 3 * MIB
    assert any("::" in name for name in found[: found.index("allocate_here")])


@pytest.mark.parametrize(
    ("context", "of_block", "of_alloc", "of_free"), [(None, 0, 0, 0), ("state", 1, 0, 0), ("alloc", 1, 1, 1)]
)
def test_context_says_which_stacks(history, device, context, of_block, of_alloc, of_free):
    """A free without a stack shows the allocation's."""
    history._record_memory_history(context=context, stacks="python")
    x = allocate_here(3 * MIB, device)
    assert bool(block_of(x, {"segments": history.memory_snapshot()})["frames"]) == bool(of_block)
    del x
    frames = {event["action"]: event["frames"] for event in trace(history, device)}
    assert bool(frames["alloc"]) == bool(of_alloc)
    assert bool(frames["free_requested"]) == bool(of_free)
    assert frames["free_requested"] == frames["alloc"]


def test_the_latest_entries_are_kept(history, device):
    history._record_memory_history(context=None, max_entries=5)
    for i in range(10):
        allocate_here((i + 1) * 512, device)
    kept = trace(history, device)
    assert len(kept) == 5
    assert [event["size"] for event in kept[:-1] if event["action"] == "alloc"][-1] == 10 * 512
    history._record_memory_history(context=None, max_entries=3)
    assert len(trace(history, device)) == 3
    history._record_memory_history(context=None, clear_history=True, skip_actions=["free_requested", "free_completed"])
    allocate_here(512, device)
    assert actions(trace(history, device)) == ["alloc", "snapshot"]


def test_state_keeps_stacks_and_no_events_and_stopping_forgets_both(history, device):
    history._record_memory_history("state", stacks="python")
    x = allocate_here(3 * MIB, device)
    snapshot = history._snapshot()
    assert names(block_of(x, snapshot)["frames"])[0] == "allocate_here"
    assert snapshot["device_traces"][device.index] == []
    history._record_memory_history(stacks="python")
    y = allocate_here(3 * MIB, device)
    history._record_memory_history(None)
    snapshot = history._snapshot()
    assert snapshot["device_traces"][device.index] == []
    assert block_of(x, snapshot)["frames"] == block_of(y, snapshot)["frames"] == []


def test_wrong_arguments_name_the_right_ones(history):
    with pytest.raises(ValueError, match=r"enabled: expected one of None, 'state', 'all'; got 'some'"):
        history._record_memory_history("some")
    with pytest.raises(ValueError, match=r"skip_actions: .*'oom'.* got 'ooms'"):
        history._record_memory_history(skip_actions=["ooms"])
    with pytest.raises(NotImplementedError, match="compile_context"):
        history._record_memory_history(compile_context=True)


@pytest.mark.requires("streams")
def test_a_free_completes_when_the_other_stream_is_done(history, device, device_module):
    history._record_memory_history(context=None)
    stream = device_module.Stream()
    x = allocate_here(3 * MIB, device)
    address = x.data_ptr()
    x.record_stream(stream)
    del x
    device_module.synchronize()
    of_it = [event for event in trace(history, device) if event.get("addr") == address]
    assert actions(of_it)[-3:] == ["alloc", "free_requested", "free_completed"]


def test_out_of_memory_is_an_event(history, device, device_module):
    history._record_memory_history(stacks="python")
    total = device_module.mem_get_info()[1]
    with pytest.raises(torch.OutOfMemoryError):
        allocate_here(total + MIB, device)
    event = last(history, device, "oom")
    assert event["size"] == total + MIB
    assert event["device_free"] == device_module.mem_get_info()[0]
    assert names(event["frames"])[0] == "allocate_here"


def test_out_of_memory_is_observed(run_in_process, name):
    done = run_in_process(
        f"""
        import torch
        device = torch.{name}
        device.memory._attach_out_of_memory_observer(lambda *values: print(*values))
        device.memory._attach_out_of_memory_observer(lambda *values: 1 / 0)
        free, total = device.mem_get_info()
        try:
            torch.empty(total + 512, dtype=torch.uint8, device="{name}:0")
        except torch.OutOfMemoryError:
            print(0, total + 512, total, device.mem_get_info()[0])
        """
    )
    seen, raised = done.stdout.splitlines()
    assert seen == raised
    assert "an out-of-memory observer" in done.stderr
    assert "ZeroDivisionError" in done.stderr


def test_the_viewers_tools_read_a_dump(history, device, tmp_path):
    from torch.cuda import _memory_viz

    history._record_memory_history(stacks="python")
    model = torch.nn.Linear(512, 512).to(device)
    model(torch.ones(64, 512, device=device)).sum().backward()
    history._dump_snapshot(str(tmp_path / "snapshot.pickle"))
    snapshot = pickle.loads((tmp_path / "snapshot.pickle").read_bytes())
    assert set(snapshot) == {"segments", "device_traces", "allocator_settings", "external_annotations"}
    assert "Active Memory Timeline" in _memory_viz.trace_plot(snapshot)
    assert "Allocator State History" in _memory_viz.segment_plot(snapshot)
    assert "total_allocated" in _memory_viz.segsum(snapshot)
    text = _memory_viz.trace(snapshot)
    assert f"Device {device.index}" in text
    assert "cudaMalloc" in text
    flames = _memory_viz.memory(snapshot, format_flamegraph=lambda lines: lines)
    assert "active_allocated;" in flames
    assert "test_memory_history.py" in flames


@pytest.mark.parametrize(
    ("context", "expected"), [("all", ["empty_cache", "release_here"]), ("alloc", ["allocate_here"]), ("state", [])]
)
def test_a_freed_segment_shows_who_freed_it(history, device, device_module, context, expected):
    """As for torch.cuda: without stacks of frees, who allocated it; without stacks of events, no stack."""
    history._record_memory_history(context=context, stacks="python")
    allocate_here(30 * MIB, device)
    release_here(device_module)
    found = names(last(history, device, "segment_free")["frames"])
    assert found[: len(expected)] == expected
    assert bool(found) == bool(expected)


@pytest.mark.requires("vmm")
def test_an_unmapped_chunk_shows_who_freed_it(history, device, device_module):
    history._set_allocator_settings("expandable_segments:True")
    try:
        history._record_memory_history(stacks="python")
        allocate_here(30 * MIB, device)
        release_here(device_module)
    finally:
        history._set_allocator_settings("")
    assert names(last(history, device, "segment_unmap")["frames"])[:2] == ["empty_cache", "release_here"]


def test_an_allocation_that_frees_the_cache_shows_itself(history, device, device_module):
    history._record_memory_history(stacks="python")
    with limited(device_module, 64 * MIB):
        allocate_here(40 * MIB, device)
        torch.empty(50 * MIB, dtype=torch.uint8, device=device)
    frames = last(history, device, "segment_free")["frames"]
    assert names(frames)[0] == "test_an_allocation_that_frees_the_cache_shows_itself"


def test_state_keeps_no_stack_of_what_is_free(history, device, device_module):
    """Blocks that were freed, also those of another stream, that are split or merged. A segment keeps its stack."""
    history._record_memory_history(context="state", stacks="python")
    s = device_module.Stream(device)
    blocks = [allocate_here(300 << 10, device) for _ in range(6)]
    kept = blocks[3].data_ptr()
    for block in blocks[::2]:
        block.record_stream(s)
    del block, blocks[4:], blocks[:3]
    s.synchronize()
    found = [b for segment in history._snapshot()["segments"] for b in segment["blocks"]]
    assert {b["state"] for b in found} >= {"active_allocated", "inactive"}
    for b in found:  # others were allocated before
        assert b["state"] == "active_allocated" or not b["frames"]
    assert [bool(b["frames"]) for b in found if b["address"] == kept] == [True]
    assert not any(event["frames"] for event in trace(history, device))


def test_recording_again_keeps_the_times_of_the_events(history, device):
    history._record_memory_history(context=None)
    allocate_here(3 * MIB, device)
    before = [(event["action"], event["time_us"]) for event in trace(history, device)]
    history._record_memory_history(context=None, max_entries=1000)
    after = [(event["action"], event["time_us"]) for event in trace(history, device)]
    assert after[: len(before)] == before


def test_frames_of_generated_code_show_the_models_source(history, device):
    with torch.fx.experimental._config.patch(enrich_profiler_metadata=True):
        graph = torch.fx.symbolic_trace(lambda x: (x * 3).relu())
    history._record_memory_history(stacks="python")
    kept = graph(torch.ones(1000, device=device))
    plain, augmented = history._snapshot(), history._snapshot(augment_with_fx_traces=True)
    found = [
        [frame for events in snapshot["device_traces"] for event in events for frame in event.get("frames", [])]
        for snapshot in (plain, augmented)
    ]
    assert kept.numel() == 1000
    assert not any("fx_node_op" in frame for frame in found[0])
    assert {frame.get("fx_node_name") for frame in found[1]} >= {"mul", "relu"}


def test_usage_is_drawn_by_torchs_code(history, device, monkeypatch, tmp_path):
    from torch.cuda import _memory_viz

    x = torch.empty(30 * MIB, dtype=torch.uint8, device=device)
    pairs = ((history._save_segment_usage, _memory_viz.segments), (history._save_memory_usage, _memory_viz.memory))
    for draw, of in pairs:
        monkeypatch.setattr(of, "__defaults__", (lambda lines: f"drawn {lines}",))
        draw(str(tmp_path / "out.svg"))
        text = (tmp_path / "out.svg").read_text()
        assert text.startswith("drawn stream_")
        assert str(30 * MIB) in text
    history._save_memory_usage(str(tmp_path / "none.svg"), {"segments": []})
    assert (tmp_path / "none.svg").read_text() == "drawn "
    assert x.numel() == 30 * MIB


def test_a_snapshot_leaves_pythons_collector_as_it_was(device_module):
    try:
        for switch, expected in ((gc.enable, True), (gc.disable, False)):
            switch()
            device_module.memory._snapshot()
            assert gc.isenabled() == expected
    finally:
        gc.enable()
