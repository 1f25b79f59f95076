"""What a graph cannot hold, which calls are wrong, and what stays usable after them."""

import threading

import pytest
import torch
from graphs import MARKS, another_stream, replayed

from backplane_tools.conformance.checks import in_threads

pytestmark = MARKS


def refusals(device, device_module, x):
    event = device_module.Event()
    event.record(device_module.default_stream())
    side = another_stream(device_module)
    yield "item", "aten::_local_scalar_dense", x[0].item
    yield "cpu", "aten::copy_ between the host", x.cpu
    yield "to the device", "aten::copy_ between the host", lambda: torch.ones(3).to(device)
    yield "unpinned", "aten::copy_ between the host", lambda: x.copy_(torch.ones(4), non_blocking=True)
    yield "fallback", "aten::_linalg_eigvals, which runs on the CPU,", lambda: torch.linalg.eigvals(x.view(2, 2))
    yield "device", "A wait for the device", device_module.synchronize
    yield "stream", "A wait for the stream", lambda: device_module.current_stream().synchronize()
    yield "query", "A query of the stream", lambda: device_module.current_stream().query()
    yield "other stream", "A wait for the stream waits for", side.synchronize
    yield "event", "A wait for an event", event.synchronize
    yield "wait outside", "recorded outside of that capture", event.wait


def test_H03_what_a_graph_cannot_hold_is_refused_at_the_call_and_the_capture_goes_on(device, device_module):
    x = torch.ones(4, device=device)
    for what, text, call in refusals(device, device_module, x):
        graph = device_module.CUDAGraph()
        with device_module.graph(graph, capture_error_mode="thread_local"):
            y = x + 1
            with pytest.raises(RuntimeError, match=text):
                call()
            z = y * 3
        replayed(graph, device_module)
        assert z.tolist() == [6.0] * 4, what


@pytest.mark.parametrize("name", ["Adam", "AdamW", "NAdam", "RAdam", "Adamax", "ASGD", "Adadelta", "RMSprop", "Rprop"])
def test_H03_a_step_that_the_host_counts_is_refused(device, device_module, name):
    parameter = torch.ones(4, device=device, requires_grad=True)
    parameter.grad = torch.ones_like(parameter)
    optimizer = getattr(torch.optim, name)([parameter])
    optimizer.step()
    graph = device_module.CUDAGraph()
    with device_module.graph(graph):
        y = parameter * 2
        with pytest.raises(RuntimeError, match=f"a step of {name} .* capturable=True"):
            optimizer.step()
    replayed(graph, device_module)
    assert torch.equal(y, parameter * 2)
    optimizer.step()  # which nothing captures


def test_H03_an_error_within_a_capture_leaves_stream_and_allocator_usable(device, device_module):
    stream = device_module.Stream()
    x = torch.ones(1000, device=device)
    device_module.synchronize()
    graph = device_module.CUDAGraph()
    with pytest.raises(RuntimeError, match="_local_scalar_dense"), device_module.graph(graph, stream=stream):
        (x * 2).sum().item()
    with stream:
        assert not device_module.is_current_stream_capturing()
        assert (x + 1).sum().item() == 2000
    graph.reset()
    with device_module.graph(graph, stream=stream):
        y = x * 4
    replayed(graph, device_module)
    assert y.sum().item() == 4000


def test_an_event_of_a_capture_belongs_to_it(graph, device, device_module):
    event = device_module.Event()
    with device_module.graph(graph):
        event.record()
        with pytest.raises(RuntimeError, match="latest record is part of a graph"):
            event.query()
        event.wait()
    with pytest.raises(RuntimeError, match="latest record is part of a graph"):
        event.synchronize()
    with pytest.raises(RuntimeError, match="capture of a graph that has ended"):
        event.wait()
    event.record()
    event.synchronize()
    assert event.query()


def test_work_that_does_not_come_back_ends_the_capture_with_an_error(graph, device, device_module):
    x = torch.ones(4, device=device)
    side = another_stream(device_module)
    context = device_module.graph(graph)
    context.__enter__()
    side.wait_stream(device_module.current_stream())
    with side:
        x.add_(1)
    with pytest.raises(RuntimeError, match="has not come back"):
        context.__exit__()
    with side:
        x.mul_(3)
    device_module.synchronize()
    assert x.tolist() == [3.0] * 4
    with pytest.raises(RuntimeError, match="is empty: capture it first"):
        graph.replay()


def test_wrong_calls_are_refused(graph, device, device_module):
    def refuse(*calls):
        for text, call in calls:
            with pytest.raises((RuntimeError, ValueError), match=text):
                call()

    refuse(
        (r"The default stream .* cannot capture", graph.capture_begin),
        ("not being captured", graph.capture_end),
        ("is empty: capture it first", graph.replay),
        ("must be one of global, thread_local, rel", lambda: graph.capture_begin(capture_error_mode="strict")),
    )
    with device_module.graph(graph):
        refuse(
            ("is being captured already", graph.capture_begin),
            ("is capturing another graph already", device_module.CUDAGraph().capture_begin),
            ("call capture_end", graph.replay),
            ("call capture_end", graph.reset),
        )
    with pytest.raises(RuntimeError, match="captured already"), device_module.graph(graph):
        pass
    with device_module.graph(device_module.CUDAGraph()), pytest.raises(RuntimeError, match="cannot be replayed while"):
        graph.replay()


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_the_mode_says_whose_waits_are_refused(device, device_module, mode):
    x = torch.ones(4, device=device)
    device_module.synchronize()
    caught = {}

    def wait(name):
        try:
            with device_module.stream(device_module.Stream()):
                (x + 1).tolist()
        except RuntimeError as error:
            caught[name] = str(error)

    graph = device_module.CUDAGraph()
    with device_module.graph(graph, capture_error_mode=mode):
        y = x * 2
        wait("own")
        in_threads(lambda _: wait("other"))
    replayed(graph, device_module)
    assert y.tolist() == [2.0] * 4
    assert set(caught) == {"global": {"own", "other"}, "thread_local": {"own"}, "relaxed": set()}[mode]
    assert all(f"capture_error_mode='{mode}'" in text for text in caught.values()), caught


def test_two_threads_capture_at_once(device, device_module):
    """By ``capture_begin``: the context manager waits for the device first, which no capture outlives."""
    both = threading.Barrier(2, timeout=60)

    def capture(number):
        number += 1
        x = torch.full((100,), float(number), device=device)
        graph = device_module.CUDAGraph()
        device_module.current_stream().synchronize()
        both.wait()
        with device_module.stream(device_module.Stream()):
            graph.capture_begin(capture_error_mode="thread_local")
            both.wait()
            for _ in range(50):
                x.add_(torch.ones_like(x) * number)
            y = torch.rand(100, device=device) + x
            both.wait()
            graph.capture_end()
        both.wait()
        replayed(graph, device_module, 2)
        return x.unique().tolist(), float((y - x).min()) >= -1e-4, float((y - x).max()) <= 1.0001

    assert in_threads(capture, 2) == [([101.0], True, True), ([202.0], True, True)]


@pytest.mark.requires("host_exec")  # an option of the simulated device
def test_H05_a_driver_without_graphs_is_named(printed):
    code = """
        x = torch.ones(3, device=d)
        try:
            with m.graph(m.CUDAGraph()):
                x.add_(1)
        except NotImplementedError as error:
            assert "bp.graph" in str(error), error
            x.add_(2)
            print(x.tolist(), m.is_current_stream_capturing())
    """
    assert printed(code, "graph=off") == "[3.0, 3.0, 3.0] False\n"


def test_H05_a_faulty_capture_leaves_nothing_behind(run_in_process, name):
    code = f"""
        import torch
        m = torch.{name}
        x = torch.ones(3, device="{name}")
        m.synchronize()
        for attempt in range(3):
            graph = m.CUDAGraph()
            try:
                with m.graph(graph):
                    y = x + 5
            except (RuntimeError, torch.OutOfMemoryError) as error:
                print("injected" in str(error))
        graph.replay()
        print(y.tolist())
    """
    faults = "fault.capture=@1,fault.instantiate=@1"
    done = run_in_process(code, options=faults, env={f"{name.upper()}_SHIMS": "fault"})
    assert done.stdout.splitlines() == ["True", "True", "[6.0, 6.0, 6.0]"]
