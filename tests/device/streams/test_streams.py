"""torch.Stream and torch.<device>.Stream: current, pooled and external streams, and waits.

Their order is in test_stream_semantics.py and in the conformance suite ``runtime``, which test_conformance_kit.py runs.
"""

import pytest
import torch

from torch_backplane import _backend


def test_the_default_stream_is_id_zero_and_current(device_module, device):
    default = device_module.default_stream()
    assert device_module.current_stream() == default
    assert default.stream_id == 0
    assert device_module.ExternalStream(0) == default
    assert device_module.ExternalStream(default.native_handle) == default
    assert device_module.is_current_stream_capturing() is False
    device_module.synchronize()
    assert torch.Stream(stream_id=0, device_index=0, device_type=default.device_type).query()


def test_a_stream_is_torchs_and_the_modules(device_module, device):
    s = device_module.Stream()
    assert isinstance(s, torch.Stream)
    assert s.device == device
    assert s == torch.Stream(stream_id=s.stream_id, device_index=0, device_type=s.device_type)
    assert len({s, device_module.Stream(stream_id=s.stream_id, device_index=0, device_type=s.device_type)}) == 1
    assert f"device={device}" in repr(s)


@pytest.mark.requires("streams")
def test_new_streams_differ(device_module):
    a, b = device_module.Stream(), device_module.Stream()
    assert a != b
    assert a != device_module.default_stream()


@pytest.mark.requires("priorities")
def test_priorities_are_clamped_to_the_range(device_module):
    least, greatest = device_module.Stream.priority_range()
    assert greatest < least
    assert device_module.Stream(priority=greatest).priority == greatest
    assert device_module.Stream(priority=greatest - 100).priority == greatest
    assert device_module.Stream(priority=least + 100).priority == least
    assert device_module.Stream().priority == 0


def test_contexts_nest_and_restore(device_module):
    a, b = device_module.Stream(), device_module.Stream()
    with device_module.stream(a):
        assert device_module.current_stream() == a
        with b:
            assert device_module.current_stream() == b
            with device_module.stream(None):
                assert device_module.current_stream() == b
        assert device_module.current_stream() == a
        with pytest.raises(KeyError), device_module.stream(b):
            raise KeyError
        assert device_module.current_stream() == a
    assert device_module.current_stream() == device_module.default_stream()


@pytest.mark.requires("multi_device")
def test_a_streams_context_and_set_stream_set_its_device(device_module, name):
    s = device_module.Stream(device=1)
    assert s.device == torch.device(name, 1)
    with device_module.stream(s):
        assert device_module.current_device() == 1
        assert torch.empty(1, device=name).device.index == 1
        assert device_module.current_stream(0) == device_module.default_stream(0)
    assert device_module.current_device() == 0
    assert device_module.current_stream(1) == device_module.default_stream(1)
    device_module.set_stream(s)
    assert device_module.current_device() == 1
    assert device_module.current_stream() == s
    device_module.set_stream(None)
    assert device_module.current_stream() == s


def test_an_external_stream_is_the_same_stream(device_module, device):
    s = device_module.Stream()
    native = s.native_handle  # which a vendor's kernel gets
    assert native == s._as_parameter_.value == _backend.C.streams.native_handle(s.stream_id, 0)
    for external in (device_module.ExternalStream(native), device_module.get_stream_from_external(native, 0)):
        assert isinstance(external, device_module.Stream)
        assert external == s
        assert _backend.C.streams.handle(external.stream_id, 0) == _backend.C.streams.handle(s.stream_id, 0)
        with external:
            y = torch.ones(4, device=device) + 1
        external.synchronize()
        assert y.tolist() == [2.0] * 4


def test_a_number_that_is_no_stream_is_refused(device_module):
    """By the driver; and by the core, see test_stream_numbers.py."""
    with pytest.raises(ValueError, match=r"stream_from_native.*0x7770 is no stream"):
        device_module.ExternalStream(0x7770)


def test_ctrl_c_ends_a_wait_and_the_work_goes_on(run_on, name):
    code = f"""
        import os, signal, threading, time, torch
        m = torch.{name}
        x = torch.ones(1 << 25, device="{name}")
        y = torch.empty_like(x)
        for _ in range(300):  # many seconds of copies
            y.copy_(x, non_blocking=True)
        try:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            m.synchronize()
            print("waited to the end")
        except KeyboardInterrupt:
            print("interrupted", m.current_stream().query(), flush=True)
        os._exit(0)
    """
    assert run_on(code, "stream=async").stdout.strip() == "interrupted False"


WAITS = """
y.item() | y.cpu() | y.tolist() | repr(y) | y.nonzero() | y[y > 1] | bool(y) | torch.equal(y, x) | y.unique() | int(y)
torch.save(y, io.BytesIO()) | y.copy_(host) | host.copy_(y) | host.to(device) | torch.tensor([1], device=device)
y.to("cpu", torch.float64) | m.synchronize() | m.current_stream().synchronize() | event.synchronize()
"""


@pytest.mark.kernels
@pytest.mark.long_after_first
@pytest.mark.parametrize("kind", ["unified", "discrete"])
def test_ctrl_c_ends_every_wait_for_a_device_that_hangs_and_names_the_kernel(run_on, name, tmp_path, kind):
    waits = [wait.strip() for wait in WAITS.replace("\n", "|").split("|") if wait.strip()]
    code = f"""
        import io, os, signal, torch
        m, device = torch.{name}, "{name}"
        signal.signal(signal.SIGALRM, signal.default_int_handler)  # no thread: torch.save keeps the GIL while it copies
        x, host = torch.ones(1, device=device), torch.ones(1)
        m.synchronize()
        open("{tmp_path}/armed", "w").close()
        y = x * 2
        event = m.Event()
        event.record()
        for wait in {waits}:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            try:
                exec(wait)
                print(wait, "came back")
            except KeyboardInterrupt as interrupt:
                print(str(interrupt).replace("portable/", ""), flush=True)
        os._exit(0)
    """
    options = f"kind={kind},fault.hang=@1,fault.armed_by={tmp_path}/armed"
    first, *others = run_on(code, options, SHIMS="fault").stdout.splitlines()
    assert first.startswith(f"in a wait for {name}; queued last was mul.Tensor")
    assert len(others) == len(waits) - 1
    assert [line for line in others if not line.startswith(f"in a wait for {name}; queued last was ")] == []
