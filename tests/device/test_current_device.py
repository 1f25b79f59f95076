"""The driver's idea of a thread's current device (set_current) is the thread's own, whenever it was chosen."""

import pytest

pytestmark = pytest.mark.once


@pytest.fixture
def run(run_in_process, name, shim):
    """``run(code, **env)``: what a program prints; ``told()`` is what the driver knows of the thread."""

    def start(code, **env):
        path = shim("current_device")
        prelude = f"""
import ctypes, threading, torch
from torch_backplane import _backend
m = torch.{name}
library = ctypes.CDLL({path!r})
refused = ctypes.c_int.in_dll(library, "refused")
told = library.current_of_this_thread
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
        prefix = name.upper()
        env = {f"{prefix}_DRIVER": None, f"{prefix}_SHIMS": path, **env}
        return run_in_process(prelude + code, options="devices=4", env=env).stdout.splitlines()

    return start


def test_set_device_opens_the_driver_and_tells_it(run, name):
    """As torch.cuda's; and so does the context."""
    assert run("""
m.set_device(-1)
print(m.is_initialized())
m.set_device(2)
print(m.is_initialized(), told())
print(use().device, told())
m.set_device(0)
print(use().device, told())
""") == ["False", "True 2", f"{name}:2 2", f"{name}:0 0"]
    assert run("""
with m.device(1):
    print(m.is_initialized(), told())
print(told())
""") == ["True 1", "0"]


def test_each_thread_that_chose_before_is_told(run):
    assert run("""
chosen, opened = threading.Event(), threading.Event()
def work():
    choose(3)
    chosen.set()
    opened.wait()
    print("before", told())
    print("after", use().device.index, told())
thread = threading.Thread(target=work)
thread.start()
chosen.wait()
print("main", use().device.index, told())
opened.set()
thread.join()
print("main", use().device.index, told())
""") == ["main 0 0", "before 0", "after 3 3", "main 0 0"]


def test_a_device_that_the_driver_refuses_is_not_set(run, name):
    says = f"{name} driver: set_current(device 1) -> INTERNAL: the fan of that device stands still"
    assert run("""
use()
m.set_device(2)
refused.value = 1
print(attempt(lambda: m.set_device(1)))
print(m.current_device(), told(), use().device.index)
print(attempt(lambda: m.device(1).__enter__()))
print(attempt(lambda: m.set_stream(m.Stream(1))))
print(m.current_device(), told(), m.current_stream(1) == m.default_stream(1))
refused.value = -1
m.set_device(1)
print(m.current_device(), told())
""") == [says, "2 2 2", says, says, "2 2 True", "1 1"]


def test_a_device_that_was_chosen_before_and_is_refused_raises_at_the_first_use(run, name):
    says = f"{name} driver: set_current(device 1) -> INTERNAL: the fan of that device stands still"
    assert run("""
refused.value = 1
choose(1)
print(attempt(use))
print(attempt(use))
refused.value = -1
print(use().device.index, told())
""") == [says, says, "1 1"]


def test_a_way_back_that_the_driver_refuses_raises_at_the_next_use(run, name):
    """The guard of an operator cannot raise when it goes back to the device before."""
    says = f"{name} driver: set_current(device 0) -> INTERNAL: the fan of that device stands still"
    assert run(f"""
use()
x = torch.ones(3, device="{name}:1")
refused.value = 0
y = torch.empty(3, device="{name}:1")
print(m.current_device(), told())
print(attempt(use))
refused.value = -1
print(use().device.index, told())
""") == ["0 1", says, "0 0"]


def test_device_0_of_a_list_of_visible_devices_is_told_in_every_thread(run, name):
    assert run(
        """
print(use().device.index, told())
def work():
    print(told(), use().device.index, told())
thread = threading.Thread(target=work)
thread.start()
thread.join()
m.set_device(1)
print(use().device.index, told())
""",
        **{f"{name.upper()}_VISIBLE_DEVICES": "3,1"},
    ) == ["0 3", "0 0 3", "1 1"]
