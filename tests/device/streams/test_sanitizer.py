"""The stream sanitizer finds races and forgotten record_stream, names both sides, and is silent on sound programs.

Some races need kernels that are queued: the host waits for the fallback, which makes an order.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from torch_backplane import _backend, sanitizer

ROOT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.requires("streams")


@pytest.fixture
def report():
    with sanitizer.enabled(raise_errors=False) as report:
        yield report


@pytest.fixture
def streams(device_module):
    return device_module.Stream(), device_module.Stream()


@pytest.fixture
def x(device, device_module, report):
    """Eight numbers, for which no stream waits."""
    x = torch.ones(8, device=device)
    device_module.synchronize()
    return x


def write_on_a_stream(tensor, stream):
    with stream:
        tensor.fill_(1)


def test_a_race_raises_with_both_stacks(streams, device_module, device):
    a, b = streams
    with sanitizer.enabled():
        x = torch.ones(64, device=device)
        for s in (a, b):
            s.wait_stream(device_module.current_stream())
        write_on_a_stream(x, a)
        with b, pytest.raises(sanitizer.SanitizerError) as found:
            x.clone()
    text = str(found.value)
    assert "nothing orders them" in text
    assert "written by aten.fill_.Scalar (self)" in text
    assert "read by aten.clone.default (self)" in text
    assert "x.clone()" in text
    assert "write_on_a_stream" in text
    assert "tensor.fill_(1)" in text
    assert "x = torch.ones(64" in text
    assert "wait_stream" in text


@pytest.mark.parametrize("first", ["read", "write"])
@pytest.mark.parametrize("second", ["read", "write"])
def test_reads_may_overlap_and_nothing_else(streams, x, report, first, second):
    a, b = streams
    for s, kind in ((a, first), (b, second)):
        with s:
            x.clone() if kind == "read" else x.fill_(2)
    assert len(report.errors) == (first == "write" or second == "write")


ORDERS = {
    "wait_stream": lambda m, a, b, event: b.wait_stream(a),
    "event": lambda m, a, b, event: b.wait_event(event),
    "event.synchronize": lambda m, a, b, event: event.synchronize(),
    "event.query": lambda m, a, b, event: until(event.query),
    "stream": lambda m, a, b, event: a.synchronize(),
    "device": lambda m, a, b, event: m.synchronize(),
    "a third stream": lambda m, a, b, event: through(m.Stream(), a, b),
}


def until(complete):
    while not complete():
        pass


def through(stream, a, b):
    stream.wait_stream(a)
    b.wait_stream(stream)


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
def test_every_kind_of_order_is_seen(streams, device_module, x, report, order):
    a, b = streams
    with a:
        x.fill_(2)
    order(device_module, a, b, a.record_event())
    with b:
        x.clone()
    assert report.errors == []


@pytest.mark.parametrize("wait", ["before the work", "after the first record", "after the second", "item"])
def test_an_event_orders_the_work_before_the_record_that_was_waited_for(streams, x, report, wait):
    """Reading an item orders all of its stream's work."""
    a, b = streams
    event = a.record_event()
    with a:
        if wait != "before the work":
            x.fill_(2)
            event.record(a)
        if wait == "after the first record":
            b.wait_event(event)
        x.fill_(3)
        if wait == "after the second":
            event.record(a)
        if wait == "item":
            x[0].item()
    if wait not in ("after the first record", "item"):
        b.wait_event(event)
    with b:
        x.clone()
    assert len(report.errors) == (wait in ("before the work", "after the first record"))


@pytest.mark.kernels
def test_parts_of_one_memory_are_distinguished(streams, device_module, device, report):
    a, b = streams
    x = torch.zeros(4, 8, device=device)
    device_module.synchronize()
    with a:
        x[:2].fill_(1)
        x[2:, ::2].fill_(1)
    with b:
        x[2:, 1::2].fill_(2)  # between the other's elements
    assert report.errors == []
    with b:
        x[3, 2:4].fill_(3)
    assert len(report.errors) == 1


@pytest.mark.kernels
@pytest.mark.parametrize("cure", [None, "record_stream", "wait", "wait later"])
def test_a_forgotten_record_stream_is_found(streams, device_module, device, report, cure):
    a, _ = streams
    x = torch.ones(64, device=device)
    a.wait_stream(device_module.current_stream())
    with a:
        y = x * 2
    if cure == "record_stream":
        x.record_stream(a)
    if cure == "wait":
        device_module.current_stream().wait_stream(a)
    del x
    if cure == "wait later":
        device_module.current_stream().wait_stream(a)
    z = torch.zeros(64, device=device)
    if cure is None:
        (error,) = report.errors
        assert "record_stream" in str(error)
        assert "read by aten.mul" in str(error)
        assert "y = x * 2" in str(error)
        assert "x = torch.ones(64" in str(error)
        assert "z = torch.zeros(64" in str(error)
    else:
        assert report.errors == []
    del y, z


@pytest.mark.kernels
def test_backward_on_another_stream_is_seen(streams, device_module, device, report):
    s, _ = streams
    w = torch.ones(8, device=device, requires_grad=True)
    s.wait_stream(device_module.current_stream())
    with s:
        loss = (w * w).sum()
        loss.backward()
    device_module.current_stream().wait_stream(s)
    with torch.no_grad():
        w.add_(w.grad)
    assert report.errors == []
    with s, torch.no_grad():
        w.grad.zero_()
    assert len(report.errors) == 1


@pytest.mark.kernels
@pytest.mark.parametrize("mistake", [None, "no record_stream", "no wait"])
def test_a_prefetching_training_loop(device_module, device, report, mistake):
    """Batches are copied on another stream, one ahead of the step that uses them."""
    model = torch.nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    side = device_module.Stream()

    def fetch():
        with side:
            return torch.ones(8, 4).pin_memory().to(device, non_blocking=True) * 2

    ahead = fetch()
    for _ in range(4):
        if mistake != "no wait":
            device_module.current_stream().wait_stream(side)
        batch, ahead = ahead, None
        if mistake != "no record_stream":
            batch.record_stream(device_module.current_stream())
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        del batch, loss
        ahead = fetch()
    assert bool(report.errors) == (mistake is not None)
    if mistake is not None:
        assert ("nothing orders them" if mistake == "no wait" else "record_stream") in str(report.errors[0])


@pytest.mark.requires("multi_device")
def test_copies_between_devices_are_ordered_by_the_core(device_module, name, report):
    x = torch.ones(8, device=f"{name}:0")
    y = x.to(f"{name}:1")
    x.fill_(2)
    y.fill_(3)
    assert report.errors == []


def test_off_it_sees_nothing_and_on_twice_is_refused(device_module, device):
    with sanitizer.enabled(), pytest.raises(RuntimeError, match="already"):
        sanitizer.enable()
    sanitizer.disable()
    torch.ones(3, device=device)
    assert _backend.C.order_log.take() == []


@pytest.mark.long
@pytest.mark.once
def test_the_environment_variable_covers_a_process(run_in_process, name):
    code = f"""
        import torch
        m = torch.{name}
        x = torch.ones(8, device="{name}")
        m.synchronize()
        with m.Stream():
            x.fill_(2)
        x.clone()
    """
    done = run_in_process(code, env={f"{name.upper()}_SANITIZER": "1"}, check=False)
    assert "SanitizerError" in done.stderr
    assert "nothing orders them" in done.stderr
    assert run_in_process(code, env={f"{name.upper()}_SANITIZER": "0"}).returncode == 0


@pytest.mark.once
@pytest.mark.long
def test_the_demo_is_silent(name):
    code = f"""
import runpy, sys
import torch
from torch_backplane import _backend, sanitizer
sys.path.insert(0, "examples/demo")
sys.argv = ["demo.py", "--device", {name!r}, "--quick"]
with sanitizer.enabled() as report:
    runpy.run_path("examples/demo/demo.py", run_name="__main__")
print("errors:", len(report.errors))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "errors: 0" in done.stdout


@pytest.mark.parametrize("waits", [True, False])
def test_work_on_another_stream_than_the_current_one_is_seen(device_module, x, report, monkeypatch, waits):
    """A kernel that forks to another stream in a ``backplane::NativeLaunch``, and joins it again or forgets to."""
    side, current = device_module.Stream(), device_module.current_stream()
    notes = []
    take = _backend.C.order_log.take
    monkeypatch.setattr(_backend.C.order_log, "take", lambda: [*take(), *(notes.pop() for _ in notes[:])])

    def forks(x):
        side.wait_stream(current)
        take_notes()
        notes.append((8, side.device_index, side.stream_id, 0, 0))  # OrderKind::launch
        take_notes()
        if waits:
            current.wait_stream(side)
        return x

    def take_notes():
        sanitizer._active.take_notes(sanitizer._stack())

    with torch.library._scoped_library("bp_sanitizer", "DEF") as library:
        library.define("forks(Tensor(a!) x) -> Tensor(a!)")
        library.impl("forks", forks, "PrivateUse1")
        torch.ops.bp_sanitizer.forks(x)
        x.add_(1)
    assert len(report.errors) == (0 if waits else 1)
    if not waits:
        assert "written by bp_sanitizer.forks.default (x) on stream" in str(report.errors[0])
