"""A thread that needs what another has taken to a call of the driver: it sleeps, and the watchdog sees it."""

import pytest

pytestmark = pytest.mark.once

PRELUDE = """
import ctypes, threading, time, torch
m = torch.{name}
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
    print((time.thread_time() - used) < 0.5 * (time.monotonic() - began))
MB = 1 << 20
"""


@pytest.fixture
def run(run_in_process, name, shim):
    def start(code, **env):
        path = shim("stuck_calls")
        prefix = name.upper()
        env = {f"{prefix}_DRIVER": None, f"{prefix}_SHIMS": path, **env}
        options = "memory=64MiB,stream=async"
        return run_in_process(PRELUDE.format(name=name, path=path) + code, options=options, env=env).stdout.splitlines()

    return start


def waits_for_memory_that_another_thread_gives_back(name):
    return f"""
x = torch.empty(40 * MB, dtype=torch.uint8, device="{name}")
y = torch.empty(10 * MB, dtype=torch.uint8, device="{name}")
del x
stuck.value = FREE
thread = in_a_thread(m.empty_cache)
attempt(lambda: torch.empty(30 * MB, dtype=torch.uint8, device="{name}"))
stuck.value = 0
thread.join()
print(torch.empty(30 * MB, dtype=torch.uint8, device="{name}").numel() == 30 * MB)
"""


def waits_for_events_that_another_thread_asks(name):
    return f"""
s = m.Stream()
x = torch.empty(10 * MB, dtype=torch.uint8, device="{name}")
x.record_stream(s)
del x
stuck.value = EVENT_QUERY
thread = in_a_thread(lambda: torch.empty(20 * MB, dtype=torch.uint8, device="{name}"))
attempt(m.empty_cache)
stuck.value = 0
thread.join()
m.empty_cache()
print(m.memory_reserved() == 0)
"""


@pytest.mark.long_after_first
@pytest.mark.parametrize(
    ("case", "call"),
    [
        (waits_for_memory_that_another_thread_gives_back, "free (of cached memory, by another thread)"),
        (
            waits_for_events_that_another_thread_asks,
            "event_record or event_query (for memory that another thread has freed)",
        ),
    ],
)
def test_the_watchdog_ends_the_wait_for_another_thread(run, name, case, call):
    printed = run(case(name), **{f"{name.upper()}_WATCHDOG_SECONDS": "0.5"})
    says = f"{name} driver: {call}(device 0) -> TIMEOUT: another thread's call of the driver has not returned"
    assert printed == [says, "True", "True", "True"]


def test_ctrl_c_ends_it(run, name):
    code = waits_for_memory_that_another_thread_gives_back(name).replace(
        "attempt(", "import _thread\nthreading.Timer(0.2, _thread.interrupt_main).start()\nattempt_interrupted("
    )
    printed = run(
        """
def attempt_interrupted(call):
    try:
        call()
    except KeyboardInterrupt:
        print("interrupted")
"""
        + code
    )
    assert printed == ["interrupted", "True"]


def test_the_wait_ends_when_the_other_thread_is_through(run, name):
    code = waits_for_memory_that_another_thread_gives_back(name).replace(
        "attempt(", "threading.Timer(0.2, lambda: setattr(stuck, 'value', 0)).start()\nattempt("
    )
    assert run(code) == ["no error", "True", "True"]
