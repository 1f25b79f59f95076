"""The allocator waits for the driver without its lock and without the GIL: other threads use it meanwhile."""

import pytest
import torch

from backplane_tools.conformance.checks import in_threads

# A driver call of one thread is held up while the main thread uses the cache: with a lock or the GIL held, for ever.
CODE = """
import gc, threading, time

shut, waiting = ctypes.c_int32.in_dll(driver, "shut"), ctypes.c_int32.in_dll(driver, "waiting")
MIB = 1 << 20


def take(nbytes):
    return torch.empty(nbytes, dtype=torch.uint8, device=d)


exec(SETUP)
keep = take(1000)  # its segment stays
cached = take(1000).data_ptr()
other = m.Stream()
m.synchronize()
shut.value = SHUT
thread = threading.Thread(target=lambda: eval(HELD))
thread.start()
while waiting.value == 0:
    time.sleep(0.001)
assert take(1000).data_ptr() == cached
for _ in range(100):
    x = take(1000)
    x.record_stream(other)
    del x
    take(700)
    m.memory_stats()
    m.memory_snapshot()
assert waiting.value == 1
assert thread.is_alive()
shut.value = 0
thread.join()
print("done", len(m.memory_snapshot()) > 0)
"""
EXPAND = 'm.memory._set_allocator_settings("expandable_segments:True")'
STACKS = 'm.memory._record_memory_history(stacks="python")'


@pytest.mark.once
@pytest.mark.parametrize(
    ("shut", "setup", "held"),
    [
        pytest.param(1, "", "take(300 * MIB)", id="alloc"),
        pytest.param(1, STACKS, "take(300 * MIB)", id="alloc, recording", marks=pytest.mark.long),
        pytest.param(2, "take(300 * MIB)", "m.empty_cache()", id="free"),
        pytest.param(4, "take(300 * MIB)", "m.empty_cache()", id="synchronize", marks=pytest.mark.long),
        pytest.param(8, EXPAND, "take(300 * MIB)", id="map"),
        pytest.param(16, f"{EXPAND}; take(300 * MIB)", "m.empty_cache()", id="unmap", marks=pytest.mark.long),
    ],
)
def test_a_driver_call_holds_up_no_other_thread(printed, shut, setup, held):
    code = f"SHUT, SETUP, HELD = {(shut, setup, held)}\n{CODE}"
    assert printed(code, "kind=unified,stream=async", shim_name="gate") == "done True\n"


def test_many_threads_record_while_a_snapshot_is_taken(device, device_module):
    """Python stacks need the GIL, and are gathered while other threads hold the allocator's lock."""
    memory = device_module.memory
    memory._record_memory_history(stacks="python", max_entries=100)

    def work(seed):
        kept = []
        for i in range(100):
            kept.append(torch.empty((seed * 31 + i * 17) % 4000 + 1, device=device))
            if len(kept) > 8:
                del kept[:4]
            if seed == 4:
                memory._snapshot()

    try:
        in_threads(work, 5)
        events = memory._snapshot()["device_traces"][0]
    finally:
        memory._record_memory_history(None)
    frames = [event["frames"] for event in events if event["action"] == "alloc"]
    assert len(frames) > 0
    assert {stack[0]["name"] for stack in frames} == {"work"}
