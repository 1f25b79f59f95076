"""The device's tools see a launch of a Triton kernel as any launch: profiles, faults, graphs, the stream sanitizer."""

import json

import programs
import pytest
import torch
import triton
import triton.language as tl
from torch.profiler import ProfilerActivity, profile

from torch_backplane import sanitizer

DEVICE = "mydevice"
MODULE = torch.mydevice


@triton.jit
def double_rows(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


@triton.jit
def add_into(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.atomic_add(out + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def swap_in_a_loop(x, y, out, turns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    first, second = x + at, y + at
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(turns):
        total += tl.load(first)
        first, second = second, first
    tl.store(out + at, total)


@triton.jit
def talk(x):
    tl.device_print("value", tl.load(x))


def tensors(n=64):
    return torch.arange(float(n), device=DEVICE), torch.zeros(n, device=DEVICE)


# ---- profiles ----


def test_T09_a_profile_and_its_trace_have_the_functions_name(tmp_path):
    x, out = tensors()
    double_rows[(1,)](x, out, 64, BLOCK=64)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as found:
        for _ in range(3):
            double_rows[(1,)](x, out, 64, BLOCK=64)
        MODULE.synchronize()
    rows = {row.key: row for row in found.key_averages() if row.device_type == torch.autograd.DeviceType.CPU}
    assert rows["double_rows"].count == 3
    assert rows["double_rows"].device_time_total > 0
    found.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    kinds = [event["cat"] for event in events if event.get("name") == "double_rows"]
    assert sorted(kinds) == ["cpu_op"] * 3 + ["kernel"] * 3


def test_T09_the_command_trace_has_the_functions_name(tmp_path):
    text = """
x, out = tensors()
for _ in range(5):
    double_rows[(1,)](x, out, 64, BLOCK=64)
module.synchronize()
"""
    (tmp_path / "program.py").write_text(programs.KERNELS + text)
    summary = tmp_path / "summary.json"
    code = f"""
import sys
from backplane_tools.cli import main
main(["trace", "--json", {str(summary)!r}, {str(tmp_path / "program.py")!r}])
"""
    (tmp_path / "traced").mkdir()
    programs.run(tmp_path / "traced", code)
    assert ["double_rows", 5] in [[one["name"], one["calls"]] for one in json.loads(summary.read_text())["kernels"]]


# ---- faults ----

LAUNCH = """
x, out = torch.empty(64, device="mydevice"), torch.empty(64, device="mydevice")
for _ in range(2):
    attempt(lambda: double_rows[(1,)](x, out, 64, BLOCK=64))
attempt(module.synchronize)
attempt(lambda: print("goes on", torch.ones(4).sum().item()))
"""
REFUSED_CODE = "RuntimeError mydevice driver: bp.module.load(device 0)"
OUTCOMES = {  # of each fault the errors of the two launches, in parts
    "compile=@1": [["RuntimeError The kernel double_rows of mydevice could not be compiled", "Its source is kept"]] * 2,
    "load=@1": [[REFUSED_CODE, "injected by fault.load=@1"]],
    "load=@1+": [[REFUSED_CODE, "injected by fault.load=@1+"]] * 2,
    "alloc=@1": [],
}


@pytest.mark.parametrize("fault", OUTCOMES)
def test_T10_what_fails_before_a_launch_is_its_error_and_the_process_goes_on(tmp_path, fault):
    settings = {"MYDEVICE_SHIMS": "fault", "MYDEVICE_OPTIONS": f"fault.{fault}", "MYDEVICE_CACHE_DIR": str(tmp_path)}
    *errors, last = programs.run(tmp_path, LAUNCH, **settings).splitlines()
    assert last == "goes on 4.0"
    assert len(errors) == len(OUTCOMES[fault])
    for error, parts in zip(errors, OUTCOMES[fault], strict=True):
        assert all(part in error for part in parts), error


@pytest.mark.parametrize("blocking", ["0", "1"])
def test_T10_a_kernel_that_fails_is_named_and_raised_at_the_launch_if_launches_block(tmp_path, blocking):
    faults = {"MYDEVICE_SHIMS": "fault", "MYDEVICE_OPTIONS": "fault.kernel=@1", "MYDEVICE_LAUNCH_BLOCKING": blocking}
    text = LAUNCH.replace("range(2)", "range(1)").replace("attempt(module", 'print("launched")\nattempt(module')
    lines = programs.run(tmp_path, text, **faults).splitlines()
    launch, wait = lines[: lines.index("launched")], lines[lines.index("launched") + 1]
    assert lines[-1] == "goes on 4.0"
    assert wait.startswith("AcceleratorError mydevice driver: synchronize(device 0) -> FAULT: a kernel failed")
    assert len(launch) == int(blocking)
    if launch:
        assert "The failed work is the kernel queued by double_rows on the default stream" in launch[0]


@pytest.mark.parametrize("blocking", ["0", "1"])
def test_T10_the_watchdog_names_a_kernel_that_does_not_end(tmp_path, blocking):
    text = """
@triton.jit
def endless(flag):
    while tl.atomic_add(flag, 0) == 0:
        pass


flag = torch.zeros(1, dtype=torch.int32, device="mydevice")
module.synchronize()
endless.warmup(flag, grid=(1,))
attempt(lambda: endless[(1,)](flag))
print("launched")
attempt(module.synchronize)
sys.stdout.flush()
os._exit(0)
"""
    settings = {"MYDEVICE_WATCHDOG_SECONDS": "1.5", "MYDEVICE_LAUNCH_BLOCKING": blocking}
    lines = programs.run(tmp_path, text, **settings).splitlines()
    assert [line == "launched" for line in lines] == ([False] if blocking == "1" else []) + [True, False]
    for line in set(lines) - {"launched"}:
        assert "TIMEOUT" in line
        assert "the latest work is a kernel queued by endless" in line


# ---- the stream sanitizer ----


def side_by_side(first, second, between=lambda first, second: None):
    """Two launches, each on a stream, and what comes between."""
    streams = MODULE.Stream(), MODULE.Stream()
    for stream, launch in zip(streams, (first, second), strict=True):
        stream.wait_stream(MODULE.default_stream())
        if launch is second:
            between(*streams)
        with MODULE.stream(stream):
            launch()
    MODULE.synchronize()  # the tensors' memory is free when the test ends


def test_T11_a_race_between_two_launches_names_kernels_arguments_and_streams():
    x, out = tensors()
    with sanitizer.enabled(raise_errors=False) as report:
        side_by_side(
            lambda: double_rows[(1,)](x, out, 64, BLOCK=64),
            lambda: double_rows[(1,)](out, x, 64, BLOCK=64),
        )
    text = "\n".join(str(error) for error in report.errors)
    assert len(report.errors) == 2
    assert "it is read by double_rows (x) on stream" in text
    assert "while it is written by double_rows (out) on stream" in text
    assert "it is written by double_rows (out) on stream" in text
    assert "triton/runtime" not in text
    assert "test_tools.py" in text


def test_T11_a_race_with_an_operator_raises_and_the_kernel_is_not_launched():
    x, out = tensors()
    stream = MODULE.Stream()
    with sanitizer.enabled():
        x.mul_(1)
        with MODULE.stream(stream), pytest.raises(sanitizer.SanitizerError, match=r"read by double_rows \(x\).*mul_"):
            double_rows[(1,)](x, out, 64, BLOCK=64)
    assert out.sum().item() == 0


@pytest.mark.parametrize("way", ["wait", "event", "host", "reads alone", "apart", "atomics of one stream"])
def test_T11_what_is_in_order_or_does_not_conflict_is_no_race(way):
    x, out = tensors(128)
    other = torch.zeros_like(out)
    event = MODULE.Event()

    def between(first, second):
        if way == "wait":
            second.wait_stream(first)
        elif way == "event":
            event.record(first)
            event.wait(second)
        elif way == "host":
            first.synchronize()

    ins = {"reads alone": (x, x), "apart": (x[:64], x[64:])}.get(way, (x, out))
    outs = {"reads alone": (out, other), "apart": (out[:64], out[64:])}.get(way, (out, other))
    with sanitizer.enabled():
        side_by_side(
            lambda: double_rows[(1,)](ins[0], outs[0], 64, BLOCK=64),
            (lambda: None) if way.startswith("atomics") else lambda: double_rows[(1,)](ins[1], outs[1], 64, BLOCK=64),
            between,
        )
        if way.startswith("atomics"):
            MODULE.synchronize()
            add_into[(1,)](x, out, 64, BLOCK=64)
            add_into[(1,)](x, out, 64, BLOCK=64)


def test_T11_pointers_that_a_loop_swaps_are_read_and_the_result_is_written():
    x, y, out = (torch.ones(64, device=DEVICE) for _ in range(3))
    swap = lambda x, y, out: swap_in_a_loop[(1,)](x, y, out, 3, BLOCK=64)  # noqa: E731
    with sanitizer.enabled():
        side_by_side(lambda: swap(x, y, out), lambda: swap(x, y, torch.empty_like(x)))
    with sanitizer.enabled(raise_errors=False) as report:
        side_by_side(lambda: swap(x, y, out), lambda: swap(x, out, torch.empty_like(x)))
    (error,) = report.errors
    assert "read by swap_in_a_loop (y)" in str(error)
    assert "written by swap_in_a_loop (out)" in str(error)


def test_T11_atomics_write():
    x, out = tensors()
    with sanitizer.enabled(raise_errors=False) as report:
        side_by_side(
            lambda: add_into[(1,)](x, out, 64, BLOCK=64),
            lambda: add_into[(1,)](x, out, 64, BLOCK=64),
        )
    assert ["written by add_into (out)" in str(error) for error in report.errors] == [True]


def test_T11_a_freed_tensor_needs_record_stream():
    with sanitizer.enabled(raise_errors=False) as report:
        stream, x = MODULE.Stream(), torch.zeros(1 << 22, device=DEVICE)
        stream.wait_stream(MODULE.current_stream())
        with MODULE.stream(stream):
            double_rows[(1,)](x, x, 64, BLOCK=64)
        del x
        torch.zeros(1 << 22, device=DEVICE)
    assert ["memory was freed" in str(error) for error in report.errors] == [True]
    assert "written by double_rows (out)" in str(report.errors[0])


# ---- graphs ----


def test_T12_a_replay_reads_what_its_inputs_are_then():
    x, out = tensors()
    graph = MODULE.CUDAGraph()
    with MODULE.graph(graph):  # the kernel may be compiled within

        @triton.jit
        def triple(x, out, BLOCK: tl.constexpr):
            at = tl.arange(0, BLOCK)
            tl.store(out + at, tl.load(x + at) * 3)

        triple[(1,)](x, out, BLOCK=64)
        double_rows[(1,)](out, out, 64, BLOCK=64)
    assert out.sum().item() == 0
    for value in (1.0, 5.0):
        x.fill_(value)
        graph.replay()
        assert out.tolist() == [6 * value] * 64


def test_T12_a_kernel_that_prints_is_refused_in_a_capture_which_goes_on(capsys):
    x, out = tensors()
    talk[(1,)](x[7:])
    graph = MODULE.CUDAGraph()
    with MODULE.graph(graph):
        double_rows[(1,)](x, out, 64, BLOCK=64)
        with pytest.raises(RuntimeError, match=r"talk prints or asserts.*cannot be recorded into a graph"):
            talk[(1,)](x)
        double_rows[(1,)](out, out, 64, BLOCK=64)
    graph.replay()
    assert out.tolist() == [4.0 * i for i in range(64)]
    assert capsys.readouterr().out == "pid (0, 0, 0) idx () value: 7.000000\n"


def test_T12_the_kernel_cache_keeps_the_code_for_the_next_process(tmp_path):
    text = """
from torch_backplane import compiler
x, out = tensors()
double_rows[(1,)](x, out, 64, BLOCK=64)
print(out.sum().item(), compiler.counts().compiled, compiler.counts().from_cache)
"""
    folders = {"MYDEVICE_CACHE_DIR": str(tmp_path / "code"), "TRITON_CACHE_DIR": str(tmp_path / "texts")}
    outputs = [programs.run(tmp_path, text, **folders).split() for _ in range(2)]
    assert [output[0] for output in outputs] == ["4032.0"] * 2
    (_, compiled, cached), (_, none, all_cached) = (map(float, output) for output in outputs)
    assert compiled > 0 == none
    assert all_cached == compiled + cached
