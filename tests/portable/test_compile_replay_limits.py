"""What ``mode="reduce-overhead"`` does not record, or not without a report, and torch's options for it."""

import contextlib
import textwrap
import warnings

import pytest
import torch
from torch._dynamo.utils import counters
from torch._inductor import config

from portable.replays import graphed, near

pytestmark = [pytest.mark.requires("graph"), pytest.mark.usefixtures("each_compiles")]


def test_many_sizes_are_reported(device, runs):
    with config.patch({"triton.cudagraph_dynamic_shape_warn_limit": 2}):
        function = graphed(lambda x: x + 1, dynamic=True)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for rows in (5, 5, 7, 7, 9, 9, 11, 11):
                function(torch.ones(rows, device=device))
    assert len([one for one in seen if "is recorded for more than 2 sets of sizes" in str(one.message)]) == 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"skip_cudagraph_warmup": True}, ["call", "recorded", *["replayed"] * 3]),
        ({"force_cudagraphs_warmup": True}, ["call"] * 4),
        ({"cudagraph_capture_sizes": (7,)}, ["call"] * 4),
        ({"cudagraph_skip_dynamic_graphs": True}, []),
    ],
    ids=str,
)
def test_options_of_torch(device, runs, options, expected):
    with config.patch({f"triton.{name}": value for name, value in options.items()}):
        function = graphed(lambda x: x + x.shape[0], dynamic=True)
        for _ in range(4):
            assert function(torch.ones(5, device=device)).tolist() == [6] * 5
    assert runs == expected


def test_each_replay_is_waited_for_if_that_is_asked(device, runs, monkeypatch):
    waits, wait = [], torch.accelerator.synchronize
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda *where: waits.append(where) or wait(*where))
    with config.patch({"triton.force_cudagraph_sync": True}):
        function = graphed(lambda x: x + 1)
        for _ in range(4):
            function(torch.ones(3, device=device))
    assert len(waits) == runs.count("replayed") == 3


def test_one_address_after_another_ends_in_calls(device, runs, caplog):
    def step(x):
        x.add_(1)

    with config.patch({"triton.cudagraph_unexpected_rerecord_limit": 2}):
        function = graphed(step)
        given = [torch.zeros(3, device=device) for _ in range(8)]
        for x in given:
            function(x)
    assert [x.tolist() for x in given] == [[1, 1, 1]] * 8
    assert "inputs that are used in place, at more than 2 addresses" in caplog.text
    assert runs == ["call", *["recorded", "replayed"] * 3, *["call"] * 4]


def test_F26_what_cannot_be_recorded_runs_and_is_reported(device, runs, caplog):
    @torch.library.custom_op("replay_tests::at_the_host", mutates_args=())
    def at_the_host(x: torch.Tensor) -> torch.Tensor:
        return x * x.sum().item()

    at_the_host.register_fake(torch.empty_like)
    skipped = counters["inductor"]["cudagraph_skips"]
    function = graphed(lambda x: at_the_host(x) + 1)
    for k in range(1, 5):
        assert function(torch.full((2,), float(k), device=device)).tolist() == [2 * k * k + 1] * 2
    assert runs == ["call"] * 4
    assert counters["inductor"]["cudagraph_skips"] > skipped
    assert "skipping cudagraphs due to aten::_local_scalar_dense" in caplog.text


def test_an_error_of_an_operator_is_raised_and_does_not_end_the_recordings(device, runs):
    @torch.library.custom_op("replay_tests::fails_once", mutates_args=())
    def fails_once(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 2:
            raise ValueError("not now")
        return x + 1

    calls = []
    fails_once.register_fake(torch.empty_like)
    function, x = graphed(lambda x: fails_once(x) * 2), torch.ones(2, device=device)
    function(x)
    with pytest.raises(ValueError, match="not now"):
        function(x)
    assert [function(x).tolist() for _ in range(3)] == [[4, 4]] * 3
    assert runs.count("replayed") == 3


@pytest.mark.long
def test_a_size_that_does_not_fit_is_not_recorded(device, runs, device_module):
    function = graphed(lambda x: (x * 2).cos() + x.shape[0], dynamic=True)

    def both():
        for rows in (1000, 4_000_000):
            function(torch.ones(rows, 4, device=device))

    both()
    device_module.set_per_process_memory_fraction(0.2)
    try:
        free = device_module.mem_get_info()[0]
        assert free > 2**26
        held = torch.empty(int(free * 0.2) - 3 * 2**26, dtype=torch.uint8, device=device)
        function(torch.ones(1000, 4, device=device))
        with contextlib.suppress(torch.OutOfMemoryError):
            function(torch.ones(4_000_000, 4, device=device))
        del held
    finally:
        device_module.set_per_process_memory_fraction(1.0)
    runs.clear()
    function(torch.ones(1000, 4, device=device))
    assert runs == ["replayed"]


def test_an_error_can_be_asked_for(device):
    @torch.library.custom_op("replay_tests::at_the_host_again", mutates_args=())
    def at_the_host_again(x: torch.Tensor) -> torch.Tensor:
        return x * x.sum().item()

    at_the_host_again.register_fake(torch.empty_like)
    with config.patch({"triton.cudagraph_or_error": True}):
        function = graphed(at_the_host_again)
        function(torch.ones(2, device=device))
        with pytest.raises(RuntimeError, match="skipping cudagraphs due to aten::_local_scalar_dense"):
            function(torch.ones(2, device=device))


def test_operators_that_must_not_be_recorded(device, runs):
    @torch.library.custom_op("replay_tests::counted", mutates_args=(), tags=[torch.Tag.cudagraph_unsafe])
    def counted(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x + len(calls)

    calls = []
    counted.register_fake(torch.empty_like)
    function = graphed(counted)
    got = [function(torch.zeros(1, device=device)).item() for _ in range(4)]
    assert got == [1, 2, 3, 4]
    assert runs == []


def test_a_number_on_the_cpu_is_not_recorded(device):
    function = graphed(lambda x, y: x * y)
    for k in range(4):
        assert function(torch.ones(2, device=device), torch.tensor(float(k))).tolist() == [k, k]


def test_an_error_of_the_call_is_its_own(device):
    function = graphed(lambda x, i: x[i])
    for _ in range(3):
        function(torch.ones(4, device=device), torch.tensor([1], device=device))

    def fail():
        function(torch.ones(4, device=device), torch.tensor([9], device=device))
        torch.accelerator.synchronize()

    with pytest.raises(IndexError):
        fail()


def test_a_users_capture_has_the_kernels(device, device_module):
    function, x = graphed(lambda x: x * 2), torch.ones(4, device=device)
    for _ in range(3):
        function(x)
    graph = device_module.CUDAGraph()
    with device_module.graph(graph):
        y = function(x)
    x.fill_(4)
    graph.replay()
    assert y.tolist() == [8] * 4


@pytest.mark.requires("host_exec")  # an option of the simulated device
def test_F26_a_driver_without_graphs_is_named_once(run_in_process):
    code = """
        import warnings, torch, mydevice
        x = torch.randn(4, device="mydevice")
        for mode in ("reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"):
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                function = torch.compile(lambda x: x + len(mode), mode=mode)
                for _ in range(3):
                    assert torch.equal(function(x), x + len(mode))
            print([str(one.message).partition(":")[0] for one in seen if "bp.graph" in str(one.message)])
            torch.compiler.reset()
    """
    said = "torch.compile's modes reduce-overhead and max-autotune run on mydevice kernel by kernel"
    ran = run_in_process(textwrap.dedent(code), options="graph=off", env={"MYDEVICE_DRIVER": None})
    assert ran.stdout.splitlines() == [str([said]), "[]", "[]"]


@pytest.mark.skipif(not hasattr(torch._dynamo, "override_cudagraphs"), reason="newer torch")
def test_a_part_may_ask_for_graphs_or_for_none(device, runs):
    """Both graphs of a block that a graph break divides."""

    def function(x, fwd):
        with torch._dynamo.override_cudagraphs(fwd=fwd):
            y = x * 2
            torch._dynamo.graph_break()
            z = y + 1
        return z

    for mode, fwd, recorded in (("reduce-overhead", None, 2), ("reduce-overhead", False, 0), ("default", True, 2)):
        torch._dynamo.reset()
        compiled = torch.compile(function, mode=mode)
        for _ in range(3):
            assert compiled(torch.ones(2, device=device), fwd).tolist() == [3, 3]
        assert runs.since().count("recorded") == recorded


@pytest.mark.skipif(not hasattr(torch._dynamo, "override_cudagraphs"), reason="newer torch")
@pytest.mark.parametrize("bwd", [None, False])
def test_a_part_may_ask_for_no_graph_of_its_backward(device, runs, bwd):
    def function(x):
        with torch._dynamo.override_cudagraphs(bwd=bwd):
            return (x * x).sin()

    compiled = torch.compile(function, mode="reduce-overhead")
    for _ in range(4):
        x = torch.ones(2, device=device, requires_grad=True)
        compiled(x).sum().backward()
        near(x.grad, 2 * torch.ones(2) * torch.ones(2).cos())
    assert runs.count("recorded") == (2 if bwd is None else 1)
