"""Streams made from three integers: every use refuses numbers that no stream has, and reads within its tables."""

import pytest
import torch

# Of no pool, of a level or a slot that does not exist, beyond 32 bits, negative, even and no external stream's.
IDS = [63, 0x4001, 0xFFF1, 0xFE41, 1099511627777, 2**33 + 1, 2**63 - 1, -1, -511, -(2**63), -(2**63) + 1, 2, 4096]
DEVICES = [2, 63, 64, 100, 127, -1, -2, -128]

USES = """
def uses(s):
    event = torch.Event(d)
    event.record()
    pinned = torch.ones(4).pin_memory()
    yield "query", s.query
    yield "synchronize", s.synchronize
    yield "record_event", s.record_event
    yield "wait_event", lambda: s.wait_event(event)
    yield "wait_stream", lambda: other.wait_stream(s)
    yield "record", lambda: torch.Event(d).record(s)
    yield "record_stream", lambda: torch.ones(3, device=d).record_stream(s)
    yield "enter", lambda: s.__enter__()
    yield "accelerator.set_stream", lambda: torch.accelerator.set_stream(s)
    yield "set_stream", lambda: m.set_stream(s)
    yield "stream", lambda: m.stream(s).__enter__()
    yield "alloc", lambda: m.caching_allocator_alloc(512, s.device_index, s)
    yield "Stream", lambda: m.Stream(stream_id=s.stream_id, device_index=s.device_index, device_type=s.device_type)
    yield "capturing", lambda: s.is_capturing() if hasattr(s, "is_capturing") else refuse(s)
    yield "native", lambda: s.native_handle if hasattr(torch.Stream, "native_handle") else refuse(s)

def refuse(s):
    m.stream(s).__enter__()
"""


def program(name):
    return f"""
import torch
d = "{name}"
m = torch.{name}
{USES}
kind = torch.Stream(d).device_type
other = m.Stream()
numbers = [(number, 0) for number in {IDS}] + [(0, device) for device in {DEVICES}] + [(1, 100)]
for stream_id, device_index in numbers:
    s = torch.Stream(stream_id=stream_id, device_index=device_index, device_type=kind)
    for use, call in uses(s):
        try:
            result = call()
        except RuntimeError as error:
            expected = ("unknown stream id", "invalid device index", "different device")
            if not any(text in str(error) for text in expected):
                print(use, stream_id, device_index, error)
        else:
            print(use, stream_id, device_index, "gave", result)
x = torch.ones(1000, device=d)
del x
print(m.current_stream() == m.default_stream(), m.current_device(), torch.ones(3, device=d).sum().item())
pinned = torch.ones(1 << 16).pin_memory()
for stream_id, device_index in ((-511, 0), (0, 100)):
    try:
        with torch.Stream(stream_id=stream_id, device_index=device_index, device_type=kind):
            x = pinned.to(d, non_blocking=True)
        print("copied")
    except RuntimeError:
        pass
del pinned
m.synchronize()
print(torch.ones(1 << 16).pin_memory().to(d, non_blocking=True).sum().item() == 1 << 16)
"""


@pytest.mark.requires("multi_device")
def test_E05_numbers_that_no_stream_has_are_refused_by_every_use(run_in_process, name):
    """Nor is pinned memory recorded on such a stream: the free that would query the stream cannot raise."""
    done = run_in_process(program(name), options="devices=2")
    assert done.stdout.splitlines() == ["True 0 3.0", "True"]


def test_a_stream_of_another_device_type_is_refused(device_module):
    s = device_module.Stream()
    with pytest.raises(ValueError, match="expected a stream of"):
        device_module._set_stream_by_id(s.stream_id, s.device_index, 1)
    with pytest.raises(ValueError, match="device_type="):
        device_module.Stream(stream_id=s.stream_id, device_index=s.device_index, device_type=1)
    assert device_module.current_stream() == device_module.default_stream()


@pytest.mark.requires("multi_device")
def test_a_stream_that_cannot_be_entered_changes_neither_stream_nor_device(device_module):
    s = device_module.Stream(1)
    wrong = torch.Stream(stream_id=-511, device_index=1, device_type=s.device_type)
    with pytest.raises(RuntimeError, match="unknown stream id"):
        device_module.set_stream(wrong)
    with pytest.raises(RuntimeError, match="unknown stream id"), device_module.stream(wrong):
        pass
    assert device_module.current_device() == 0
    assert device_module.current_stream(1) == device_module.default_stream(1)
    with device_module.stream(s):
        assert (device_module.current_device(), device_module.current_stream()) == (1, s)
    assert device_module.current_device() == 0
    assert device_module.current_stream(1) == device_module.default_stream(1)
