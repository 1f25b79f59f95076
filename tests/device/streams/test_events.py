"""Events behind torch.Event and torch.<device>.Event: record, wait, query, time."""

import pytest
import torch


def test_an_unrecorded_event_waits_for_nothing(device_module):
    e = device_module.Event()
    assert isinstance(e, torch.Event)
    e.synchronize()
    e.wait()


def test_elapsed_time_is_between_two_timed_records(device_module, device):
    start, end, untimed = (device_module.Event(enable_timing=timed) for timed in (True, True, False))
    start.record()
    torch.ones(1 << 22, device=device) + 1
    end.record()
    untimed.record()
    end.synchronize()
    assert start.elapsed_time(end) > 0 > end.elapsed_time(start)
    for other in (untimed, device_module.Event(enable_timing=True)):
        with pytest.raises((RuntimeError, ValueError)):
            start.elapsed_time(other)


def test_a_stream_records_an_event_again(device_module):
    stream = device_module.Stream()
    e = stream.record_event()
    assert isinstance(e, device_module.Event)
    assert stream.record_event(e) is e


@pytest.mark.requires("multi_device")
def test_a_recorded_event_stays_with_its_device(device_module):
    e = device_module.Event()
    e.record(device_module.current_stream(0))
    with pytest.raises(RuntimeError, match="device"):
        e.record(device_module.current_stream(1))


def test_what_an_event_cannot_be_is_refused(device_module):
    with pytest.raises(NotImplementedError):
        device_module.Event(external=True)
    with pytest.raises(ValueError, match="timing"):
        device_module.Event(interprocess=True, enable_timing=True)


def test_torch_events_and_the_modules_mix(device_module, device, name):
    e = torch.Event(name, enable_timing=True)
    f = device_module.Event(enable_timing=True)
    assert isinstance(e, device_module.Event)
    assert issubclass(device_module.Event, torch.Event)
    s = device_module.Stream()
    e.record()
    s.wait_event(e)
    f.record(s)
    s.synchronize()
    assert e.elapsed_time(f) >= 0


def test_the_text_of_an_event_has_its_state(device_module, device, name):
    e = device_module.Event()
    assert repr(e) == str(e) == f"<torch.{name}.Event uninitialized>"
    e.record()
    assert repr(e) == f"<torch.{name}.Event {e.event_id:#x} device={device}>"
    assert repr(torch.Event("cpu")).startswith("torch.Event device_type=cpu")
