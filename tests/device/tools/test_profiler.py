"""torch.profiler sees the device: each piece of work once, linked to its operator, timed on the host's clock."""

import json
import threading
import time
from collections import Counter
from itertools import pairwise

import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, record_function

pytestmark = pytest.mark.requires("profile")

ALL = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
OPERATORS = {"Memset": {"aten::fill_", "aten::zero_"}, "Memcpy": {"aten::_copy_from"}}
CLOCK_NS = 1_000_000
"""torch converts the processor's ticks into times; an operator's times may be off by this."""


def profile(**options):
    return torch.profiler.profile(activities=ALL, **options)


def events(profile):
    """The device's own events, in the order of time."""
    found = [
        event
        for event in profile.profiler.kineto_results.events()
        if event.device_type() == DeviceType.PrivateUse1
        and event.name() != "[memory]"
        and not event.is_user_annotation()
    ]
    return sorted(found, key=lambda event: event.start_ns())


def operators(profile):
    """The operators' events by their ids."""
    return {
        event.correlation_id(): event
        for event in profile.profiler.kineto_results.events()
        if event.device_type() == DeviceType.CPU and event.correlation_id() < 1 << 30
    }


@pytest.fixture(autouse=True)
def nothing_is_left(device_module):
    """The first wait after an index kernel copies what it has reported: no such copy of an earlier test is left."""
    for index in range(device_module.device_count()):
        device_module.synchronize(index)


@pytest.fixture
def work(device):
    """``work(n)``: queues n fills and n copies on the current stream of the device, and returns their names' counts."""
    source = torch.ones(1024, device=device)
    target = torch.empty_like(source)

    def queue(n):
        for i in range(n):
            target.fill_(i)
            source.copy_(target)
        return Counter(Memset=n, Memcpy=n)

    queue(1)
    torch.accelerator.synchronize()
    return queue


def counted(found):
    return Counter(event.name().split()[0] for event in found)


def test_E56_every_piece_of_work_appears_once_linked_and_in_time(work):
    begin = time.time_ns()
    with profile() as p:
        expected = work(20)
    end = time.time_ns()
    found, by_id = events(p), operators(p)
    assert counted(found) == expected
    for event in found:
        assert begin - CLOCK_NS <= event.start_ns() <= event.end_ns() <= end + CLOCK_NS
        operator = by_id[event.linked_correlation_id()]
        assert operator.name() in OPERATORS[event.name().split()[0]]
        assert event.start_ns() >= operator.start_ns() - CLOCK_NS


@pytest.mark.kernels
def test_E56_kernels_carry_their_operators_name(device, device_module):
    a = torch.ones(64, device=device)
    a.exp_()
    device_module.synchronize()  # what index kernels before have reported is copied to the host by the next wait
    with profile() as p:
        a.exp_()
        torch.add(a, a)
    names = [event.name() for event in events(p)]
    assert names == ["aten::exp_ pointwise", "aten::add pointwise"]


@pytest.mark.requires("streams")
def test_E56_devices_streams_and_threads(device_module, device):
    """Two devices, four streams of each, two threads of each device: the rows do not overlap, and nothing is lost."""
    devices = [torch.device(device.type, index) for index in range(min(2, device_module.device_count()))]
    streams = {d: [device_module.Stream(d) for _ in range(4)] for d in devices}
    rounds = 25

    def run(d, half):
        tensor = torch.empty(256, device=d)
        for _ in range(rounds):
            for stream in streams[d][2 * half : 2 * half + 2]:
                with stream:
                    tensor.fill_(1)
        for stream in streams[d]:
            tensor.record_stream(stream)

    begin = time.time_ns()
    with profile() as p:
        threads = [threading.Thread(target=run, args=(d, half)) for d in devices for half in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for d in devices:
            device_module.synchronize(d)
    wall = time.time_ns() - begin
    rows = {}
    for event in events(p):
        assert event.name() == "Memset"
        rows.setdefault((event.device_index(), event.device_resource_id()), []).append(event)
    distinct = {(s.device_index, s.native_handle) for of_device in streams.values() for s in of_device}
    assert len(rows) == len({(s.device_index, s.stream_id) for of_device in streams.values() for s in of_device})
    assert len(distinct) <= len(rows)
    assert sum(len(row) for row in rows.values()) == len(devices) * 4 * rounds
    for row in rows.values():
        assert len(row) % rounds == 0
        for one, after in pairwise(row):
            assert one.end_ns() <= after.start_ns()
    assert sum(event.duration_ns() for event in events(p)) <= wall * len(rows)


def test_E56_key_averages_have_the_devices_time(work, device):
    with profile(record_shapes=True, with_stack=True, with_flops=True) as p:
        work(10)
    rows = {row.key: row for row in p.key_averages()}
    found = events(p)
    of_fills = sum(event.duration_ns() for event in found if event.name() == "Memset") / 1e3
    assert rows["Memset"].count == 10
    assert rows["Memset"].self_device_time_total == pytest.approx(of_fills)
    filled = [rows[name] for name in OPERATORS["Memset"] if name in rows and rows[name].self_device_time_total]
    assert sum(row.self_device_time_total for row in filled) == pytest.approx(of_fills)
    table = p.key_averages().table(sort_by="self_device_time_total")
    assert f"Self {device.type.upper()}" in table
    assert "Memset" in table


@pytest.mark.kernels
def test_E56_the_backward_is_linked_too_and_has_flops_and_stacks(device):
    """Its kernels are queued by autograd's thread."""
    weight = torch.ones(8, 8, device=device, requires_grad=True)
    settings = torch._C._profiler._ExperimentalConfig(verbose=True)  # without it torch gives no stack of an event
    with profile(with_flops=True, with_stack=True, experimental_config=settings) as p:
        (weight @ weight).sum().backward()
    rows = {row.key: row for row in p.key_averages()}
    assert rows["aten::mm"].flops == 3 * 2 * 8**3  # one forward, two backward
    assert any("test_profiler.py" in line for event in p.events() for line in event.stack)
    found, by_id = events(p), operators(p)
    assert found
    launched = {event.linked_correlation_id() for event in found}
    assert launched <= by_id.keys()
    assert sum(by_id[number].name() == "aten::mm" for number in launched) == 3


def test_E56_the_trace_is_valid_and_has_arrows_bytes_and_rows(work, device, device_module, tmp_path):
    handler = torch.profiler.tensorboard_trace_handler(str(tmp_path), worker_name="worker")
    with profile(on_trace_ready=handler):
        work(5)
    (path,) = tmp_path.glob("worker.*.pt.trace.json")
    data = json.loads(path.read_text())
    rows = data["traceEvents"]
    copies = [row for row in rows if row.get("cat") == "gpu_memcpy"]
    fills = [row for row in rows if row.get("cat") == "gpu_memset"]
    assert (len(copies), len(fills)) == (5, 5)
    for row in copies:
        assert row["args"]["bytes"] == 4096
        # the trace gives microseconds with three digits
        assert row["args"]["memory bandwidth (GB/s)"] == pytest.approx(4.096 / max(row["dur"], 0.001), rel=0.01)
    begins = {row["id"]: row for row in rows if row.get("cat") == "ac2g" and row["ph"] == "s"}
    ends = {row["id"]: row for row in rows if row.get("cat") == "ac2g" and row["ph"] == "f"}
    assert set(begins) == set(ends)
    assert len(ends) == 10
    on_device = {(row["pid"], row["tid"], row["ts"]) for row in copies + fills}
    assert {(row["pid"], row["tid"], row["ts"]) for row in ends.values()} == on_device
    cpu = [row for row in rows if row.get("cat") == "cpu_op"]
    for row in begins.values():
        on_thread = [op for op in cpu if (op["pid"], op["tid"]) == (row["pid"], row["tid"])]
        assert any(op["ts"] - 1000 <= row["ts"] <= op["ts"] + op["dur"] + 1000 for op in on_thread)
    # the last name is the one that is shown
    named = {row["pid"]: row["args"]["name"] for row in rows if row["ph"] == "M" and row["name"] == "process_name"}
    assert named[0] == f"{device.type}:0"
    threads = {row["args"]["name"] for row in rows if row["ph"] == "M" and row["name"] == "thread_name"}
    assert any("default stream" in name for name in threads)
    assert data["deviceProperties"][0]["name"] == device_module.get_device_name(0)


def test_E56_ranges_are_on_the_devices_row(work, device_module, tmp_path):
    with profile() as p:
        work(2)
        with record_function("outer"):
            work(1)
            with device_module.profiler.range("inner"):
                work(3)
        device_module.profiler.mark("here")
    of_thread = [event for event in p.events() if event.name == "outer" and event.device_type == DeviceType.CPU]
    assert [event.self_device_time_total for event in of_thread] == [0]
    found = {"outer": 8, "inner": 6}  # pieces of work in it
    p.export_chrome_trace(str(tmp_path / "trace.json"))
    rows = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    device_rows = [row for row in rows if row.get("cat") in ("gpu_memcpy", "gpu_memset")]
    spans = {row["name"]: row for row in rows if row.get("cat") == "gpu_user_annotation"}
    assert set(spans) == set(found)
    for name, count in found.items():
        begin, end = spans[name]["ts"], spans[name]["ts"] + spans[name]["dur"]
        inside = [row for row in device_rows if begin - 0.002 <= row["ts"] and row["ts"] + row["dur"] <= end + 0.002]
        assert len(inside) == count
    assert "here" in {row["name"] for row in rows if row.get("cat") == "user_annotation"}


def test_E56_a_schedule_gives_each_cycle_its_own_work(work):
    cycles = []
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=2)
    with profile(schedule=schedule, on_trace_ready=lambda p: cycles.append(counted(events(p)))) as p:
        for step in range(8):
            work(step + 1)
            torch.accelerator.synchronize()
            p.step()
    assert cycles == [Counter(Memset=7, Memcpy=7), Counter(Memset=15, Memcpy=15)]


def test_E56_E57_only_a_profile_of_the_device_also_of_it_alone_makes_records(work, device_module):
    before = device_module.profiler.activity_records()
    work(10)
    with torch.profiler.profile(activities=[ProfilerActivity.CPU]):
        work(10)
    torch.accelerator.synchronize()
    assert device_module.profiler.activity_records() == before
    with torch.profiler.profile(activities=[ProfilerActivity.PrivateUse1]) as p:
        expected = work(10)
    assert counted(events(p)) == expected
    assert device_module.profiler.activity_records() == before + 20


def test_the_older_profiler_times_operators(device_module, device, capfd):
    """It counts whole microseconds. What is printed is a line of Kineto's at begin and end."""
    large = torch.empty(1 << 24, device=device)
    with torch.autograd.profiler.profile(use_device=device.type) as p:
        begin = time.perf_counter()
        with device_module.profiler.range("range"):
            for i in range(5):
                large.fill_(i)
        device_module.profiler.mark("mark")
        device_module.synchronize()
        wall = (time.perf_counter() - begin) * 1e6
    rows = list(p.key_averages())  # operators without a time have other rows
    fills = [row for row in rows if row.key == "aten::fill_"]
    assert sum(row.count for row in fills) == 5
    assert 5 <= sum(row.device_time_total for row in fills) <= wall
    assert all(0 <= row.self_device_time_total <= row.device_time_total for row in rows)
    assert all(line.startswith("USDT:") for line in "".join(capfd.readouterr()).splitlines())
    assert {"range", "mark"} <= {row.key for row in rows}
    with torch.autograd.profiler.profile(use_device=device.type, use_kineto=True) as p:
        large.fill_(1)
    (fill,) = [row for row in p.key_averages() if row.key == "Memset"]
    assert (fill.count, fill.self_device_time_total > 0) == (1, True)


def test_a_profile_of_memory_goes_with_it(work, device):
    with profile(profile_memory=True) as p:
        work(2)
        torch.empty(1 << 20, device=device)
    assert counted(events(p)) == Counter(Memset=2, Memcpy=2)
    assert max(row.device_memory_usage for row in p.key_averages()) >= 1 << 22


@pytest.mark.kernels
@pytest.mark.requires("graph")
def test_E58_a_profile_that_ends_within_a_capture_warns_and_does_not_end_it(device, device_module):
    x, side, graph = torch.zeros(1000, device=device), device_module.Stream(), device_module.CUDAGraph()
    side.wait_stream(device_module.current_stream())
    with device_module.graph(graph, stream=side), pytest.warns(UserWarning, match="captures a graph"), profile():
        x.add_(1)
    graph.replay()
    device_module.synchronize()
    assert x.cpu().eq(1).all()


@pytest.mark.kernels
@pytest.mark.requires("graph")
def test_E56_a_replay_shows_the_work_that_the_graph_holds(device, device_module):
    x, side, graph = torch.zeros(1000, device=device), device_module.Stream(), device_module.CUDAGraph()

    def step():
        x.copy_(torch.full_like(x, 3).add_(x))

    side.wait_stream(device_module.current_stream())
    with side:
        step()
    device_module.synchronize()
    with profile() as captured, device_module.graph(graph, stream=side):
        step()
    with profile() as replayed:
        for _ in range(2):
            graph.replay()
        device_module.synchronize()
    # What begins and ends a capture runs, and is no operator's.
    assert [one.name() for one in events(captured) if one.linked_correlation_id()] == []
    found = Counter(one.name() for one in events(replayed))
    assert found["Memset"] == 2
    assert found["Memcpy DtoD"] == 2
    assert sum(count for name, count in found.items() if not name.startswith("Mem")) == 2
    assert x.cpu().eq(9).all()
