"""A thread that waits for another thread's call of the driver sleeps, and the watchdog sees it."""

import pytest

pytestmark = pytest.mark.once

PRELUDE = """
import ctypes, threading, time, torch
d, m = "{name}", torch.{name}
library = ctypes.CDLL({path!r})
stuck, inside = (ctypes.c_int.in_dll(library, what) for what in ("stuck", "inside"))
FREE, EVENT_QUERY = 1, 2
def in_a_thread(call):
    thread = threading.Thread(target=call)
    thread.start()
    while not inside.value:
        time.sleep(0.001)
    return thread
def attempt(call):
    began, used = time.monotonic(), time.thread_time()
    try:
        call()
        print("no error")
    except RuntimeError as error:
        print(str(error).splitlines()[0])
        print("WATCHDOG_SECONDS" in str(error))
    except KeyboardInterrupt:
        print("interrupted")
    print((time.thread_time() - used) < 0.5 * (time.monotonic() - began))
MB = 1 << 20
"""


@pytest.fixture
def run(run_on, name, shim):
    path = shim("stuck_calls")
    prelude, options = PRELUDE.format(name=name, path=path), "memory=64MiB,stream=async"
    return lambda code, **variables: run_on(prelude + code, options, SHIMS=path, **variables).stdout.splitlines()


MEMORY = """
x = torch.empty(40 * MB, dtype=torch.uint8, device=d)
y = torch.empty(10 * MB, dtype=torch.uint8, device=d)
del x
stuck.value = FREE
thread = in_a_thread(m.empty_cache)
attempt(lambda: torch.empty(30 * MB, dtype=torch.uint8, device=d))
stuck.value = 0
thread.join()
print(torch.empty(30 * MB, dtype=torch.uint8, device=d).numel() == 30 * MB)
"""
EVENTS = """
s = m.Stream()
x = torch.empty(10 * MB, dtype=torch.uint8, device=d)
x.record_stream(s)
del x
stuck.value = EVENT_QUERY
thread = in_a_thread(lambda: torch.empty(20 * MB, dtype=torch.uint8, device=d))
attempt(m.empty_cache)
stuck.value = 0
thread.join()
m.empty_cache()
print(m.memory_reserved() == 0)
"""
CALLS = {
    "free (of cached memory, by another thread)": MEMORY,
    "event_record or event_query (for memory that another thread has freed)": EVENTS,
}


@pytest.mark.long_after_first
@pytest.mark.parametrize("call", CALLS)
def test_the_watchdog_ends_the_wait_for_another_thread(run, name, call):
    printed = run(CALLS[call], WATCHDOG_SECONDS="0.3")
    error = f"{name} driver: {call}(device 0) -> TIMEOUT: another thread's call of the driver has not returned"
    assert printed == [error, "True", "True", "True"]


def after(statement):
    """The first case, with a statement that another thread runs while it waits."""
    return MEMORY.replace("attempt(", f"threading.Timer(0.2, lambda: {statement}).start()\nattempt(")


def test_ctrl_c_ends_it(run):
    assert run(after("__import__('_thread').interrupt_main()")) == ["interrupted", "True", "True"]


def test_the_wait_ends_when_the_other_thread_is_done(run):
    assert run(after("setattr(stuck, 'value', 0)")) == ["no error", "True", "True"]
