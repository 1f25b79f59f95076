"""The driver is given each thread's current device (set_current), also if it was set before the first use."""

import pytest

pytestmark = pytest.mark.once


@pytest.fixture
def run(run_on, name, shim):
    """``run(code)``: the output of a program; ``given()`` is the driver's current device of the thread."""
    path = shim("current_device")
    prelude = f"""
import ctypes, threading, torch
from torch_backplane import _backend
m = torch.{name}
library = ctypes.CDLL({path!r})
refused = ctypes.c_int.in_dll(library, "refused")
given = library.current_of_this_thread
def choose(index):  # as C++ does: Python's set_device opens the driver
    ctypes.CDLL(_backend.C.__file__)["_ZN9backplane10set_deviceEa"](ctypes.c_int8(index))
def use(device="{name}"):
    return torch.ones(3, device=device)
def attempt(call):
    try:
        return call()
    except RuntimeError as error:
        return str(error).splitlines()[0]
"""
    return lambda code, **variables: run_on(prelude + code, "devices=4", SHIMS=path, **variables).stdout.splitlines()


def test_set_device_opens_the_driver_and_sets_its_device(run, name):
    """As torch.cuda's; and so does the context."""
    assert run("""
m.set_device(-1)
print(m.is_initialized())
m.set_device(2)
print(m.is_initialized(), given())
print(use().device, given())
m.set_device(0)
print(use().device, given())
""") == ["False", "True 2", f"{name}:2 2", f"{name}:0 0"]
    assert run("""
with m.device(1):
    print(m.is_initialized(), given())
print(given())
""") == ["True 1", "0"]


def test_a_device_that_a_thread_set_before_the_first_use_is_given_to_the_driver(run):
    assert run("""
chosen, opened = threading.Event(), threading.Event()
def work():
    choose(3)
    chosen.set()
    opened.wait()
    print("before", given())
    print("after", use().device.index, given())
thread = threading.Thread(target=work)
thread.start()
chosen.wait()
print("main", use().device.index, given())
opened.set()
thread.join()
print("main", use().device.index, given())
""") == ["main 0 0", "before 0", "after 3 3", "main 0 0"]


def test_a_device_that_the_driver_refuses_is_not_set(run, name):
    says = f"{name} driver: set_current(device 1) -> INTERNAL: the fan of that device stands still"
    assert run("""
use()
m.set_device(2)
refused.value = 1
print(attempt(lambda: m.set_device(1)))
print(m.current_device(), given(), use().device.index)
print(attempt(lambda: m.device(1).__enter__()))
print(attempt(lambda: m.set_stream(m.Stream(1))))
print(m.current_device(), given(), m.current_stream(1) == m.default_stream(1))
refused.value = -1
m.set_device(1)
print(m.current_device(), given())
""") == [says, "2 2 2", says, says, "2 2 True", "1 1"]


def test_a_device_that_was_set_before_and_is_refused_raises_at_the_first_use(run, name):
    says = f"{name} driver: set_current(device 1) -> INTERNAL: the fan of that device stands still"
    assert run("""
refused.value = 1
choose(1)
print(attempt(use))
print(attempt(use))
refused.value = -1
print(use().device.index, given())
""") == [says, says, "1 1"]


def test_a_restored_device_that_the_driver_refuses_raises_at_the_next_use(run, name):
    """The guard of an operator cannot raise when it restores the device."""
    says = f"{name} driver: set_current(device 0) -> INTERNAL: the fan of that device stands still"
    assert run(f"""
use()
x = torch.ones(3, device="{name}:1")
refused.value = 0
y = torch.empty(3, device="{name}:1")
print(m.current_device(), given())
print(attempt(use))
refused.value = -1
print(use().device.index, given())
""") == ["0 1", says, "0 0"]


def test_device_0_of_a_list_of_visible_devices_is_given_in_every_thread(run):
    code = """
print(use().device.index, given())
def work():
    print(given(), use().device.index, given())
thread = threading.Thread(target=work)
thread.start()
thread.join()
m.set_device(1)
print(use().device.index, given())
"""
    assert run(code, VISIBLE_DEVICES="3,1") == ["0 3", "0 0 3", "1 1"]
