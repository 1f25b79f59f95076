"""Streams and events behave as those of torch.cuda: docs/streams.md, rule by rule.

The shim ``drivers/hold_streams.c`` holds streams up, so a test knows what is complete.
"""

import json
import os
import subprocess
import sys
import textwrap
import threading

import gates
import pytest

pytestmark = pytest.mark.once

WORKER = """
import contextlib, io, json, traceback
for line in sys.stdin:
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            exec(json.loads(line), {"torch": torch, "m": m, "d": d, "gates": gates})
    except BaseException:
        output = io.StringIO(traceback.format_exc())
    print(json.dumps(output.getvalue()), flush=True)
"""


@pytest.fixture(
    scope="module",
    params=["unified", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("discrete", "emulated"))],
)
def worker(request, shim, tmp_path_factory, device):
    """One process for each kind of device, which runs the code of one test after the other."""
    gate = shim("hold_streams")
    prefix = device.type.upper()
    env = {key: value for key, value in os.environ.items() if not key.startswith(f"{prefix}_")}
    if request.param == "emulated":
        minimal = gates.minimal_driver(tmp_path_factory.mktemp("minimal"))
        env |= {f"{prefix}_DRIVER": minimal, f"{prefix}_SHIMS": f"{gate},emulate"}
        env[f"{prefix}_OPTIONS"] = "devices=2,emulate.stream=async"
    else:
        env |= {f"{prefix}_SHIMS": gate, f"{prefix}_OPTIONS": f"kind={request.param},stream=async"}
    start = f"import sys, torch\nd = {device.type!r}\nm = torch.get_device_module(d)\n" + gates.prelude(gate)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", start + WORKER], env=env, **pipes) as process:
        yield process
        process.kill()


@pytest.fixture
def run(worker):
    """``run(code)``: code with ``torch``, ``m`` (the device's module), ``d`` (its name) and ``gates``; its output."""

    def run(code):
        limit = threading.Timer(60, worker.kill)  # a wait that never ends
        limit.start()
        worker.stdin.write(json.dumps(textwrap.dedent(code)) + "\n")
        worker.stdin.flush()
        answer = worker.stdout.readline()
        limit.cancel()
        assert answer, "the process ended, or hung"
        assert "Traceback" not in answer, json.loads(answer)
        return json.loads(answer).split()

    return run


def test_the_default_stream_is_a_stream_like_the_others(run):
    """It waits for no other stream, and no other waits for it."""
    out = run("""
        s, default = m.Stream(), m.default_stream()
        x = torch.ones(4, device=d)
        m.synchronize()
        with gates.shut(default):
            y = x.clone()
            with s:
                z = x.clone()
            s.synchronize()
            print(s.query(), default.query())
        m.synchronize()
        with gates.shut(s):
            with s:
                y = x.clone()
            z = x.clone()
            default.synchronize()
            print(s.query(), default.query())
        m.synchronize()
        print(s.query(), default.query())
    """)
    assert out == ["True", "False", "False", "True", "True", "True"]


def test_an_event_is_its_latest_record_and_a_wait_keeps_the_record_that_it_saw(run):
    out = run("""
        a, b, e, f = m.Stream(), m.Stream(), m.Event(), m.Event()
        e.record(a)
        e.synchronize()
        b.wait_event(e)            # sees the first record, which is complete
        f.record(b)
        with gates.shut(a):
            e.record(a)
            b.synchronize()
            print(e.query(), f.query())
            b.wait_event(e)        # sees the second
            f.record(b)
            print(f.query())
        b.synchronize()
        print(e.query(), f.query())
        m.synchronize()
        with gates.shut(a):        # a wait keeps its record when the event is recorded elsewhere
            e.record(a)
            b.wait_event(e)
            e.record(m.Stream())
            e.synchronize()
            print(e.query(), b.query())
    """)
    assert out == ["False", "True", "False", "True", "True", "True", "False"]


def test_wait_stream_covers_the_work_so_far_and_no_later_work(run):
    out = run("""
        a, b = m.Stream(), m.Stream()
        b.wait_stream(a)
        with gates.shut(a):
            b.synchronize()
            print(b.query())
            b.wait_stream(a)
            print(b.query())
        b.synchronize()
        print(b.query())
        with gates.shut(a):
            a.wait_stream(a)       # for itself: no deadlock
        a.synchronize()
    """)
    assert out == ["True", "False", "True"]


def test_an_event_orders_a_stream_of_another_device(run):
    out = run("""
        a, b, e = m.Stream(device=0), m.Stream(device=1), m.Event()
        x = torch.zeros(1 << 12, device=f"{d}:0")
        m.synchronize(0)
        with gates.shut(a):
            with m.stream(a):
                x.fill_(5)
            e.record(a)
            b.wait_event(e)
            with m.stream(b):
                y = torch.full((1 << 12,), 2.0, device=f"{d}:1")
                y.fill_(6)
            print(b.query())
        b.synchronize()
        print(e.query(), x.sum().item() == 5 * (1 << 12), y[0].item())
    """)
    assert out == ["False", "True", "True", "6.0"]


def test_device_synchronize_waits_for_its_own_device_alone(run):
    out = run("""
        a, b = m.Stream(device=0), m.Stream(device=1)
        with gates.shut(b):
            with gates.shut(a):
                pass
            m.synchronize(0)
            print(a.query(), b.query())
        m.synchronize(1)
        print(b.query())
    """)
    assert out == ["True", "False", "True"]


def test_a_wait_releases_the_gil(run):
    """The gate is opened by another Python thread while this one waits: a wait that held the GIL would not end."""
    out = run("""
        import threading
        s, e, blocking = m.Stream(), m.Event(), m.Event(blocking=True)
        x = torch.ones(8, device=d)
        waits = [m.synchronize, s.synchronize, e.synchronize, blocking.synchronize, x.cpu, lambda: x.sum().item()]
        m.synchronize()
        for wait in waits:
            with m.stream(s):
                gate = gates.shut(s)
                gate.__enter__()
                e.record()
                blocking.record()
                x.record_stream(s)
                opener = threading.Timer(0.05, gate.__exit__, (None, None, None))
                opener.start()
                wait()
                print(e.query())
            opener.join()
    """)
    assert out == ["True"] * 6


def test_backward_runs_on_the_streams_of_the_forward(run):
    """The caller's stream waits for the streams of the leaves, as in torch.cuda."""
    out = run("""
        s = m.Stream()
        seen = []
        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x
            @staticmethod
            def backward(ctx, grad):
                seen.append(m.current_stream() == s)
                gates.delay(m.current_stream(), 20_000)
                (x,) = ctx.saved_tensors
                return grad * x * 2
        x = torch.arange(4.0, device=d, requires_grad=True)
        s.wait_stream(m.current_stream())
        with m.stream(s):
            y = Square.apply(x)
        m.current_stream().wait_stream(s)
        y.sum().backward()
        print(seen == [True], x.grad.tolist() == [0.0, 2.0, 4.0, 6.0], m.current_stream() == m.default_stream())
    """)
    assert out == ["True", "True", "True"]


def test_gradients_of_two_streams_add_up(run):
    out = run("""
        a, b = m.Stream(), m.Stream()
        w = torch.ones(1 << 14, device=d, requires_grad=True)
        for s in (a, b):
            s.wait_stream(m.current_stream())
        with m.stream(a):
            gates.delay(a, 20_000)
            p = (w * 2).sum()
        with m.stream(b):
            q = (w * 3).sum()
        for s in (a, b):
            m.current_stream().wait_stream(s)
        (p + q).backward()
        print(bool((w.grad == 5).all()))
    """)
    assert out == ["True"]


def test_a_non_blocking_copy_keeps_its_host_memory_until_it_is_done(run):
    """Freed pinned memory is reused only after the copies from it, also one that a compiled kernel converts."""
    out = run("""
        from torch_backplane import compiler

        s = m.Stream()
        for dtype in (torch.float32, torch.int64 if compiler.is_available() else torch.float32):
            x = torch.zeros(1 << 16, dtype=dtype, device=d)
            m.synchronize()
            host = torch.full((1 << 16,), 7.0).pin_memory()
            place = host.data_ptr()
            with gates.shut(s):
                with m.stream(s):
                    x.copy_(host, non_blocking=True)
                del host
                other = torch.full((1 << 16,), 9.0).pin_memory()
                print(other.data_ptr() == place)
            s.synchronize()
            again = torch.full((1 << 16,), 1.0).pin_memory()
            print(again.data_ptr() == place, x.eq(7).all().item())
            del other, again
    """)
    assert out == ["False", "True", "True"] * 2


def test_a_non_blocking_copy_to_the_host_writes_no_memory_that_was_freed(run):
    out = run("""
        s = m.Stream()
        x = torch.full((1 << 16,), 7.0, device=d)
        s.wait_stream(m.current_stream())
        m.synchronize()
        with gates.shut(s):
            with m.stream(s):
                host = x.to("cpu", non_blocking=True)
            print(host.is_pinned())
            del host
            others = [torch.full((1 << 16,), 9.0).pin_memory() for _ in range(4)]
        s.synchronize()
        print(all(bool(other.eq(9).all()) for other in others))
    """)
    assert out[1] == "True"


def test_recorded_memory_is_kept_however_it_is_seen(run):
    """By any view of it, and through a lazy clone."""
    out = run("""
        neg, clone = torch._neg_view, torch._lazy_clone
        for seen in (lambda x: x, torch.conj, neg, torch.imag, lambda x: x.conj().imag, clone):
            others = None
            m.empty_cache()
            s = m.Stream()
            x = torch.ones(1 << 12, dtype=torch.complex64, device=d)
            place = torch._C._data_address(x)
            m.synchronize()
            with gates.shut(s):
                with m.stream(s):
                    torch.empty(1, device=d).fill_(1)
                seen(x).record_stream(s)
                del x
                others = [torch.empty(1 << 12, dtype=torch.complex64, device=d) for _ in range(4)]
                print(place in [y.data_ptr() for y in others])
            m.synchronize()
            others += [torch.empty(1 << 12, dtype=torch.complex64, device=d) for _ in range(4)]
            print(place in [y.data_ptr() for y in others])
    """)
    assert out == ["False", "True"] * 6


def test_streams_and_events_are_destroyed_while_work_is_queued(run):
    out = run("""
        s, t = m.Stream(), m.Stream()
        x = torch.ones(1 << 10, device=d)
        m.synchronize()
        with gates.shut(s):
            e = m.Event()
            with m.stream(s):
                x.fill_(2)
            e.record(s)
            t.wait_event(e)
            with m.stream(t):
                x.fill_(6)
            del e, s
            print(t.query())
        t.synchronize()
        print(x.sum().item() == 6 * (1 << 10))
    """)
    assert out == ["False", "True"]


def test_D32_boxed_calls_release_the_gil(run):
    """The thread that opens the gate runs only if the call releases the GIL."""
    out = run("""
        import contextlib, sys, threading
        op = torch.ops.aten._local_scalar_dense.default
        keys = torch._C.DispatchKeySet(torch._C.DispatchKey.PrivateUse1)
        boxed = lambda x: torch._C._dispatch_call_boxed(op._handle, x)
        x = torch.full((), 7.0, device=d)
        m.synchronize()
        interval = sys.getswitchinterval()
        for call in (op, boxed, lambda x: op.redispatch(keys, x)):
            with contextlib.ExitStack() as gate:
                turn = threading.Event()
                thread = threading.Thread(target=lambda: turn.wait() and gate.close())
                thread.start()
                sys.setswitchinterval(1000)
                gate.enter_context(gates.shut(m.current_stream()))
                turn.set()
                print(call(x))
                sys.setswitchinterval(interval)
                thread.join()
    """)
    assert out == ["7.0", "7.0", "7.0"]


def test_E12_pinned_memory_is_read_in_stream_order(run):
    """As torch.cuda's test_copy_non_blocking_type_conversion: a copy reads what an earlier one is still to write."""
    out = run("""
        n = 4096
        values = torch.arange(1.0, n + 1)
        a, host = values.to(d), torch.zeros(n).pin_memory()
        copies = {
            "another dtype": (torch.empty(n, dtype=torch.int64, device=d), host),
            "a strided destination": (torch.zeros(n, 2, device=d)[:, 0], host),
            "both": (torch.zeros(2, n, dtype=torch.float64, device=d).t()[:, 1], host),
            "a strided source": (torch.empty(n // 2, device=d), host[::2]),
            "a sparse source": (torch.empty(n // 8, dtype=torch.int64, device=d), host[::8]),
            "a broadcast source": (torch.empty(3, n, dtype=torch.int64, device=d), host),
            "a negative source": (torch.empty(n, device=d), torch._neg_view(host)),
            "bytes": (torch.empty(n, device=d), host),
        }
        s = m.Stream()

        def is_right(target, source, stream, non_blocking):
            target.zero_()
            host.zero_()
            m.synchronize()
            gates.delay(m.default_stream(), 5000)
            host.copy_(a, non_blocking=True)
            stream.wait_stream(m.default_stream())
            with stream:
                target.copy_(source, non_blocking=non_blocking)
            m.synchronize()
            host.copy_(values)
            expected = torch.zeros(target.shape, dtype=target.dtype).copy_(source)
            return torch.equal(target.cpu(), expected)

        for name, (target, source) in copies.items():
            for stream in (m.default_stream(), s):  # the second reads what another stream writes
                for non_blocking in (True, False):
                    if not is_right(target, source, stream, non_blocking):
                        print(name, stream, non_blocking)
        print("done")
    """)
    assert out == ["done"]


def test_E12_a_copy_to_pinned_memory_converts_in_stream_order(run):
    """With another dtype, strides on either side or lazy bits."""
    out = run("""
        n = 4096
        source = torch.zeros(n, 2, device=d)
        targets = torch.empty(n, dtype=torch.int64), torch.empty(n, 3), torch.empty(n)
        for target in [torch.zeros_like(t).pin_memory() for t in targets]:
            target = target[:, 1] if target.dim() == 2 else target
            for x in (source[:, 0], torch._neg_view(source[:, 1])):
                source.zero_()
                m.synchronize()
                gates.delay(m.default_stream(), 5000)
                source += 3
                target.copy_(x, non_blocking=True)
                source += 1  # too late for the copy
                m.synchronize()
                print(set(target.tolist()) == ({3} if not x.is_neg() else {-3}))
    """)
    assert out == ["True"] * 6
