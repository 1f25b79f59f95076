"""Streams behind torch.Stream and torch.<device>.Stream: current, pooled, external, order, waits."""

import threading

import pytest
import torch


def test_the_default_stream_is_id_zero_and_current(device_module, device):
    assert device_module.current_stream() == device_module.default_stream()
    assert device_module.default_stream().stream_id == 0
    device_module.synchronize()
    assert torch.Stream(stream_id=0, device_index=0, device_type=device_module.default_stream().device_type).query()


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
def test_a_streams_context_also_sets_its_device(device_module, name):
    s = device_module.Stream(device=1)
    assert s.device == torch.device(name, 1)
    with device_module.stream(s):
        assert device_module.current_device() == 1
        assert torch.empty(1, device=name).device.index == 1
        assert device_module.current_stream(0) == device_module.default_stream(0)
    assert device_module.current_device() == 0
    assert device_module.current_stream(1) == device_module.default_stream(1)


@pytest.mark.requires("multi_device")
def test_set_stream_sets_the_device(device_module, name):
    s = device_module.Stream(device=1)
    device_module.set_stream(s)
    assert device_module.current_device() == 1
    assert device_module.current_stream() == s
    device_module.set_stream(None)
    assert device_module.current_stream() == s


def test_the_current_stream_is_a_threads_own(device_module):
    s = device_module.Stream()
    seen = []
    with device_module.stream(s):
        thread = threading.Thread(target=lambda: seen.append(device_module.current_stream()))
        thread.start()
        thread.join()
    assert seen == [device_module.default_stream()]


def test_work_on_one_stream_waits_for_another(device_module, device):
    a, b = device_module.Stream(), device_module.Stream()
    source = torch.ones(1 << 20).pin_memory()
    with a:
        x = source.to(device, non_blocking=True)
        for _ in range(8):
            x = x + 1
    b.wait_stream(a)
    with b:
        y = x * 2
    b.synchronize()
    assert b.query()
    assert y.sum().item() == 18.0 * (1 << 20)


def test_synchronize_completes_all_streams(device_module, device):
    streams = [device_module.Stream() for _ in range(3)]
    results = []
    for s in streams:
        with s:
            results.append(torch.full((1 << 16,), 2.0, device=device) + 1)
    device_module.synchronize()
    assert all(s.query() for s in streams)
    assert [r.sum().item() for r in results] == [3.0 * (1 << 16)] * 3


def test_record_stream_keeps_memory_from_early_reuse(device_module, device):
    s = device_module.Stream()
    x = torch.ones(1 << 18, device=device)
    s.wait_stream(device_module.current_stream())
    with s:
        y = x + 1
        x.record_stream(s)
    del x
    z = torch.zeros(1 << 18, device=device)
    s.synchronize()
    assert y.sum().item() == 2.0 * (1 << 18)
    assert z.sum().item() == 0


def test_an_external_stream_is_the_same_stream(device_module, device):
    from torch_backplane import _backend

    s = device_module.Stream()
    native = s.native_handle
    for external in (device_module.ExternalStream(native), device_module.get_stream_from_external(native, 0)):
        assert isinstance(external, device_module.Stream)
        assert external == s
        assert _backend.C.streams.handle(external.stream_id, 0) == _backend.C.streams.handle(s.stream_id, 0)
        with external:
            y = torch.ones(4, device=device) + 1
        external.synchronize()
        assert y.tolist() == [2.0] * 4


def test_the_default_stream_has_a_native_handle_too(device_module):
    default = device_module.default_stream()
    assert device_module.ExternalStream(0) == default
    assert device_module.ExternalStream(default.native_handle) == default


def test_a_number_that_is_no_stream_is_refused(device_module):
    """It is asked of the driver, and never taken for a handle."""
    with pytest.raises(ValueError, match=r"stream_from_native.*0x7770 is no stream"):
        device_module.ExternalStream(0x7770)


def test_the_native_handle_is_what_a_vendors_kernel_gets(device_module):
    from torch_backplane import _backend

    s = device_module.Stream()
    native = _backend.C.streams.native_handle(s.stream_id, 0)
    assert s._as_parameter_.value == native
    assert s.native_handle == native


def test_a_stream_id_that_was_never_given_out_is_refused(device_module):
    wrong = torch.Stream(stream_id=0xFFF1, device_index=0, device_type=device_module.default_stream().device_type)
    with pytest.raises(RuntimeError, match="unknown stream"):
        wrong.synchronize()


def test_nothing_is_captured(device_module):
    assert device_module.is_current_stream_capturing() is False


def test_waits_release_the_gil(device_module, device):
    """A thread that needs the GIL gets on while another waits: both finish, or the test times out."""
    done = []
    x = torch.ones(1 << 20, device=device)

    def wait():
        for _ in range(50):
            (x + 1).sum()
            device_module.synchronize()
        done.append(True)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [True] * 3


def test_ctrl_c_ends_a_wait_and_the_work_goes_on(run_in_process, name):
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
    simulator = {f"{name.upper()}_DRIVER": None}
    assert run_in_process(code, options="stream=async", env=simulator).stdout.strip() == "interrupted False"


WAITS = """
y.item() | y.cpu() | y.tolist() | repr(y) | y.nonzero() | y[y > 1] | bool(y) | torch.equal(y, x) | y.unique() | int(y)
torch.save(y, io.BytesIO()) | y.copy_(host) | host.copy_(y) | host.to(device) | torch.tensor([1], device=device)
y.to("cpu", torch.float64) | m.synchronize() | m.current_stream().synchronize() | event.synchronize()
"""


@pytest.mark.kernels
@pytest.mark.long_after_first
@pytest.mark.parametrize("kind", ["unified", "discrete"])
def test_ctrl_c_ends_every_wait_for_a_device_that_hangs_and_names_the_kernel(run_in_process, name, tmp_path, kind):
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
    env = {f"{name.upper()}_DRIVER": None, f"{name.upper()}_SHIMS": "fault"}
    first, *others = run_in_process(code, options=options, env=env).stdout.splitlines()
    assert first.startswith(f"in a wait for {name}; queued last was mul.Tensor")
    assert len(others) == len(waits) - 1
    assert [line for line in others if not line.startswith(f"in a wait for {name}; queued last was ")] == []
