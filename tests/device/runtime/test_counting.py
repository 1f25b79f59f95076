"""Devices of a driver that cannot count without a context: a child process counts, and may fail."""

import pytest

pytestmark = pytest.mark.once

WELL, SLOW, HANGS, IS_KILLED, ENDS, REFUSES = range(6)


@pytest.fixture
def count(run_on, name, shim):
    """``count(code)``: a program's output, in which ``set_mode(n)`` sets how the next child fails."""
    path = shim("count_in_child")
    prelude = f"""
import ctypes, torch
m = torch.{name}
mode = ctypes.c_int.in_dll(ctypes.CDLL({path!r}), "mode")
def set_mode(value):
    mode.value = value
"""
    return lambda code, **variables: run_on(prelude + code, "devices=2", SHIMS=path, **variables).stdout.splitlines()


def test_a_child_counts_and_the_count_is_kept(count):
    assert count(f"""
print(m.device_count(), m.get_device_properties(1).total_memory > 0)
set_mode({ENDS})
print(m.device_count(), m.is_available())
""") == ["2 True", "2 True"]


def test_signals_do_not_end_the_count(count):
    assert count(f"""
import signal
heard = []
signal.signal(signal.SIGALRM, lambda *_: heard.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
set_mode({SLOW})
count = m.device_count()
signal.setitimer(signal.ITIMER_REAL, 0)
print(count, len(heard) > 0)
""") == ["2 True"]


def test_a_process_that_ignores_its_children_counts(count):
    """The system then reports no status of them."""
    assert count("""
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print(m.device_count())
""") == ["2"]


FAILURES = {
    HANGS: "did not answer within 400 ms and was killed",
    IS_KILLED: "ended without an answer, with signal 9",
    ENDS: "ended without an answer, with status 3",
    REFUSES: "device_count -> INTERNAL: the bus does not answer",
}


def test_a_failure_has_a_reason_and_is_not_kept_and_no_child_is_left(count, name):
    *failed, counted, left = count(
        f"""
import os
for failure in {[*FAILURES]}:
    set_mode(failure)
    devices = m.device_count()
    try:
        torch.ones(1, device="{name}")
    except RuntimeError as error:
        print(devices, str(error).splitlines()[0])
set_mode({WELL})
print(m.device_count(), torch.ones(3, device="{name}:1").sum().item())
try:
    print(os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    print("none")
""",
        WATCHDOG_SECONDS="0.4",
    )
    for line, reason in zip(failed, FAILURES.values(), strict=True):
        assert line.startswith("0 ")
        assert reason in line
    assert (counted, left) == ("2 3.0", "none")
