"""Launches: arguments, streams, graphs, hooks, prints and assertions, errors."""

import os
import subprocess
import sys

import language as kernels
import pytest
import torch
import triton
import triton.language as tl

from torch_backplane import compiler

DEVICE = "mydevice"
MODULE = torch.mydevice


@triton.jit
def fill(out, value, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), value)


@triton.jit
def talk(x, BLOCK: tl.constexpr):
    value = tl.load(x + tl.arange(0, BLOCK))
    tl.device_print("value", value)
    tl.device_print("sum and first:", tl.sum(value, 0), tl.max(value, 0))
    tl.device_assert(value < 3, "values are below 3")


@triton.jit
def greet():
    tl.device_print("hello")


@triton.autotune(configs=[triton.Config({"BLOCK": block}) for block in (64, 256)], key=["n"])
@triton.jit
def tuned_add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


WARPS = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (64, 256) for warps in (1, 2, 4)]


@triton.autotune(configs=WARPS, key=["n"])
@triton.jit
def tuned_scale(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


@triton.autotune(configs=WARPS, key=["n"])
@triton.jit
def tuned_by_warps(x, out, n, BLOCK: tl.constexpr, num_warps: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def test_T03_a_tensor_of_another_device_is_refused():
    with pytest.raises(ValueError, match=r"cannot be accessed from Triton.*is on cpu, not on mydevice"):
        fill[(1,)](torch.empty(64), 1.0, BLOCK=64)


def test_addresses_and_none():
    out = torch.zeros(64, device=DEVICE)

    class View:
        dtype = torch.float32

        def data_ptr(self):
            return out.data_ptr()

    fill[(1,)](View(), 2.0, BLOCK=64)
    assert out.cpu().eq(2).all()


def test_T03_an_empty_grid_launches_nothing():
    out = torch.zeros(64, device=DEVICE)
    fill[(0,)](out, 1.0, BLOCK=64)
    fill[(4, 0)](out, 1.0, BLOCK=64)
    assert out.cpu().eq(0).all()


def test_T03_a_launch_is_on_the_current_stream():
    out, stream = torch.zeros(64, device=DEVICE), MODULE.Stream()
    stream.wait_stream(MODULE.current_stream())
    with MODULE.stream(stream):
        for value in range(20):
            fill[(1,)](out, float(value), BLOCK=64)
        result = out + 1
    MODULE.current_stream().wait_stream(stream)
    assert result.cpu().eq(20).all()


def test_T03_a_lazy_clone_is_written_and_its_source_is_not():
    source = torch.zeros(64, device=DEVICE)
    clone = torch._lazy_clone(source)
    fill[(1,)](clone, 5.0, BLOCK=64)
    assert (source.cpu().sum().item(), clone.cpu().sum().item()) == (0, 320)


def test_T03_launches_are_captured_into_a_graph():
    x, out = torch.arange(64.0, device=DEVICE), torch.zeros(64, device=DEVICE)
    kernels.add[(1,)](x, x, out, 64, BLOCK=64)
    graph = MODULE.Graph() if hasattr(MODULE, "Graph") else MODULE.CUDAGraph()
    with MODULE.graph(graph):
        kernels.add[(1,)](x, out, out, 64, BLOCK=64)
    out.zero_()
    for _ in range(3):
        graph.replay()
    assert torch.equal(out.cpu(), 3 * torch.arange(64.0))


def test_T05_hooks_are_called_around_a_launch():
    seen = []
    enter, leave = triton.knobs.runtime.launch_enter_hook, triton.knobs.runtime.launch_exit_hook
    calls = [lambda metadata: seen.append("enter"), lambda metadata: seen.append("leave")]
    enter.add(calls[0])
    leave.add(calls[1])
    try:
        fill[(1,)](torch.zeros(64, device=DEVICE), 1.0, BLOCK=64)
    finally:
        enter.remove(calls[0])
        leave.remove(calls[1])
    assert seen == ["enter", "leave"]


def test_T05_autotuning_times_by_the_devices_events():
    x, out = torch.arange(1000.0, device=DEVICE), torch.zeros(1000, device=DEVICE)
    tuned_add[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, x, out, 1000)
    assert torch.equal(out.cpu(), 2 * torch.arange(1000.0))
    assert tuned_add.best_config.kwargs["BLOCK"] in (64, 256)
    assert triton.testing.do_bench(lambda: out.add_(1), warmup=1, rep=2) > 0


@pytest.fixture
def timed(monkeypatch):
    """Counts what is timed."""
    calls = []

    def do_bench(call, **options):
        call()
        calls.append(call)
        return [float(len(calls))] * 3

    monkeypatch.setattr(triton.testing, "do_bench", do_bench)
    return calls


def takes_ttir():
    """Whether the driver's own compiler decides what ``num_warps`` does, so that no two configurations are equal."""
    return "ttir" in compiler.target().languages


@pytest.mark.parametrize(("kernel", "count"), [(tuned_scale, 2), (tuned_by_warps, 6)])
def test_T05_configurations_of_equal_kernels_are_timed_once(kernel, count, timed):
    count = 6 if takes_ttir() else count
    for turn, n in enumerate((1000, 900), 1):
        x, out = torch.arange(1000.0, device=DEVICE), torch.zeros(1000, device=DEVICE)
        kernel[lambda meta, n=n: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
        assert torch.equal(out.cpu()[:n], 2 * torch.arange(float(n)))
        assert len(timed) == turn * count  # other arguments are timed again
        assert len(kernel.configs_timings) == len(WARPS)
        equal = {config.kwargs["BLOCK"]: time[0] for config, time in kernel.configs_timings.items()}
        assert kernel.best_config.kwargs["BLOCK"] == min(equal, key=equal.get)


def test_T05_blocks_that_no_memory_holds_are_refused():
    from triton.runtime.errors import OutOfResources

    x, out = torch.ones(1024, 1024, device=DEVICE), torch.zeros(1024, 1024, device=DEVICE)
    with pytest.raises(OutOfResources, match="out of resource"):
        kernels.matmul[(1, 1)](x, x, out, *[1024] * 4, 1, 1024, 1, 1024, 1, BM=1024, BN=1024, BK=1024)
    assert out.sum().item() == 0


@pytest.mark.skipif(takes_ttir(), reason="no two configurations are equal")
def test_T05_equal_kernels_that_do_not_fit_are_tried_once(monkeypatch):
    from triton.runtime.errors import OutOfResources

    calls = []

    def do_bench(call, **options):
        calls.append(call)
        if len(calls) == 1:
            raise OutOfResources(2, 1, "shared memory")
        call()
        return [1.0] * 3

    monkeypatch.setattr(triton.testing, "do_bench", do_bench)
    x, out = torch.arange(100.0, device=DEVICE), torch.zeros(100, device=DEVICE)
    tuned_scale[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, out, 100)
    assert len(calls) == 2
    assert tuned_scale.best_config.kwargs["BLOCK"] == 256


def test_T05_a_function_that_no_autotuner_wrote_is_always_timed(timed):
    do_bench = triton.runtime.driver.active.get_benchmarker()
    out = torch.zeros(64, device=DEVICE)
    for _ in range(2):
        do_bench(lambda: fill[(1,)](out, 1.0, BLOCK=64), quantiles=(0.5,))
    assert len(timed) == 2


def test_T05_the_profiler_names_the_users_function():
    out = torch.zeros(64, device=DEVICE)
    with torch.profiler.profile() as profile:
        fill[(1,)](out, 1.0, BLOCK=64)
    assert any("fill" in event.name for event in profile.events())


def test_T04_what_a_kernel_prints(capsys):
    talk[(1,)](torch.tensor([1, 2], device=DEVICE), BLOCK=2)
    greet[(2,)]()
    lines = sorted(capsys.readouterr().out.splitlines())
    assert lines == [
        "pid (0, 0, 0) idx () hello",
        "pid (0, 0, 0) idx () sum and first (operand 0): 3",
        "pid (0, 0, 0) idx () sum and first (operand 1): 2",
        "pid (0, 0, 0) idx (0) value: 1",
        "pid (0, 0, 0) idx (1) value: 2",
        "pid (1, 0, 0) idx () hello",
    ]


def test_T04_an_assertion_names_its_line_the_program_and_the_element():
    x = torch.tensor([1, 4], device=DEVICE)
    talk[(1,)](x, BLOCK=2)  # without debug=True there are no assertions, as on Triton's own devices
    with pytest.raises(
        AssertionError, match=r"test_launch.py:\d+: device_assert in program \(0, 0, 0\) at element \(1\): values are"
    ):
        talk[(1,)](x, BLOCK=2, debug=True)


def test_T06_the_interpreter_takes_tensors_of_the_device(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import torch, mydevice, triton, triton.language as tl\n"
        "@triton.jit\n"
        "def fill(out, value, BLOCK: tl.constexpr):\n"
        "    tl.store(out + tl.arange(0, BLOCK), value)\n"
        "out = torch.zeros(8, device='mydevice')\n"
        "fill[(1,)](out, 3.0, BLOCK=8)\n"
        "print(out.cpu().sum().item())\n"
    )
    done = subprocess.run(
        [sys.executable, program],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "24.0"
