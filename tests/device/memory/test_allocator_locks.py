"""The allocator waits for the driver without its lock and without the GIL: other threads use it meanwhile."""

import pytest

# A driver call of one thread is held up while the main thread uses the cache: with a lock or the GIL held, for ever.
CODE = """
import ctypes, gc, threading, time
import torch, {package}

device = torch.{name}
gate = ctypes.CDLL("{path}")
shut, waiting = ctypes.c_int32.in_dll(gate, "shut"), ctypes.c_int32.in_dll(gate, "waiting")
MIB = 1 << 20


def take(nbytes):
    return torch.empty(nbytes, dtype=torch.uint8, device="{name}")


{setup}
keep = take(1000)  # its segment stays
cached = take(1000).data_ptr()
other = device.Stream()
device.synchronize()
shut.value = {shut}
thread = threading.Thread(target=lambda: {held})
thread.start()
while waiting.value == 0:
    time.sleep(0.001)
assert take(1000).data_ptr() == cached
for _ in range(100):
    x = take(1000)
    x.record_stream(other)
    del x
    take(700)
    device.memory_stats()
    device.memory_snapshot()
assert waiting.value == 1
assert thread.is_alive()
shut.value = 0
thread.join()
print("done", len(device.memory_snapshot()) > 0)
"""


EXPAND = 'device.memory._set_allocator_settings("expandable_segments:True")'
STACKS = 'device.memory._record_memory_history(stacks="python")'


@pytest.mark.once
@pytest.mark.parametrize(
    ("shut", "setup", "held"),
    [
        pytest.param(1, "", "take(300 * MIB)", id="alloc"),
        pytest.param(1, STACKS, "take(300 * MIB)", id="alloc, recording", marks=pytest.mark.long),
        pytest.param(2, "take(300 * MIB)", "device.empty_cache()", id="free"),
        pytest.param(4, "take(300 * MIB)", "device.empty_cache()", id="synchronize", marks=pytest.mark.long),
        pytest.param(8, EXPAND, "take(300 * MIB)", id="map"),
        pytest.param(16, f"{EXPAND}; take(300 * MIB)", "device.empty_cache()", id="unmap", marks=pytest.mark.long),
    ],
)
def test_a_driver_call_holds_up_no_other_thread(shim, run_in_process, backend_package, name, shut, setup, held):
    gate = shim("gate")
    code = CODE.format(package=backend_package.__name__, name=name, path=gate, shut=shut, setup=setup, held=held)
    settings = {f"{name.upper()}_SHIMS": gate, f"{name.upper()}_DRIVER": None}
    done = run_in_process(code, options="kind=unified,stream=async", env=settings)
    assert done.stdout == "done True\n"


def test_many_threads_record_while_a_snapshot_is_taken(run_in_process, backend_package, name):
    """Python stacks need the GIL, and are gathered while other threads hold the allocator's lock."""
    done = run_in_process(
        f"""
        import threading
        import torch, {backend_package.__name__}
        device = torch.{name}
        device.memory._record_memory_history(stacks="python", max_entries=100)

        def work(seed):
            kept = []
            for i in range(100):
                kept.append(torch.empty((seed * 31 + i * 17) % 4000 + 1, device="{name}"))
                if len(kept) > 8:
                    del kept[:4]

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            device.memory._snapshot()
        for thread in threads:
            thread.join()
        frames = [e["frames"] for e in device.memory._snapshot()["device_traces"][0] if e["action"] == "alloc"]
        print(len(frames) > 0, all(stack[0]["name"] == "work" for stack in frames))
        device.memory._record_memory_history(None)
        """
    )
    assert done.stdout == "True True\n"
