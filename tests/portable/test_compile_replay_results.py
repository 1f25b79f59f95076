"""Results of replayed graphs (``mode="reduce-overhead"``): how long they stay, who may read them, and their memory."""

import gc

import pytest
import torch
from torch import nn

from portable.replays import graphed, near

pytestmark = [pytest.mark.requires("graph"), pytest.mark.usefixtures("each_compiles")]


def test_F26_results_stay_when_the_graph_is_replayed(device, runs):
    """torch's CUDA graphs overwrite them."""
    inputs = torch.randn(7, 300)
    function = graphed(lambda x: (x * 2, x.sum(), x.view(3, 100) + 1))
    kept = [function(x.to(device)) for x in inputs]
    views = [three[1:] for _, _, three in kept]
    for x, (double, total, plus), view in zip(inputs, kept, views, strict=True):
        near(double, x * 2)
        near(total, x.sum())
        near(plus, x.view(3, 100) + 1)
        near(view, (x.view(3, 100) + 1)[1:])
    assert runs.count("call") == 1


def test_results_outlive_the_function(device, device_module):
    function = graphed(lambda x: x * 3)
    for _ in range(3):
        y = function(torch.ones(1000, device=device))
    del function
    torch.compiler.reset()
    gc.collect()
    device_module.empty_cache()
    other = torch.zeros(100_000, device=device)
    assert y.tolist() == [3] * 1000
    assert other.sum().item() == 0


def test_reset_returns_the_memory(device, device_module):
    def reserved():
        gc.collect()
        device_module.empty_cache()
        return device_module.memory_reserved()

    before = reserved()
    function = graphed(lambda x: (x @ x).relu() @ x)
    for _ in range(3):
        function(torch.randn(1024, 1024, device=device))
    assert reserved() > before
    torch.compiler.reset()
    assert reserved() == before


def test_a_change_in_place_between_forward_and_backward_is_an_error(device):
    """A saved tensor that is an input or a result is that tensor, with its version."""
    function = graphed(lambda x, w: (x * w).exp())
    for k in range(5):
        w, x = torch.zeros(4, device=device, requires_grad=True), torch.ones(4, device=device)
        y = function(x, w)
        with torch.no_grad():
            (y, x)[k % 2].mul_(10)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_another_stream_may_read_results(device, device_module):
    """While they exist, and as long as record_stream says."""
    function, side, found, kept = graphed(lambda x: (x * 2 + 1, x @ x)), device_module.Stream(), [], []
    for k in range(6):
        x = torch.full((256, 256), float(k), device=device)
        y, product = function(x)
        side.wait_stream(device_module.current_stream())
        with device_module.stream(side):
            late = product
            for _ in range(20):
                late = late @ late * 0
            found.append((y + late).sum())
        product.record_stream(side)
        if k % 2:
            y.record_stream(side)
        else:
            kept.append(y)
        del y, product
    device_module.synchronize()
    assert [int(one.item()) for one in found] == [256 * 256 * (2 * k + 1) for k in range(6)]


def test_a_result_that_stays_is_moved_for_all_streams(device, device_module):
    function, side = graphed(lambda x: ((x * 2).sum(), x * 3)), device_module.Stream()
    late = torch.zeros(512, 512, device=device)
    for k in range(5):
        y = function(torch.full((1000,), float(k), device=device))[0]
        before = y.data_ptr()
        side.wait_stream(device_module.current_stream())
        for _ in range(10):
            late = late @ late
        function(torch.full((1000,), 77.0, device=device))
        with device_module.stream(side):
            read = y * 1
        side.synchronize()
        assert read.item() == 2000 * k
    assert y.data_ptr() != before


def test_a_result_that_is_exported_does_not_move(device):
    function, kept = graphed(lambda x: (x * 2, x.sum())), []
    for k in range(6):
        _, total = function(torch.full((1000,), float(k), device=device))
        kept.append((total, torch.from_dlpack(total)))
    for k, (total, exported) in enumerate(kept):
        assert total.item() == exported.item() == 1000 * k
        assert total.data_ptr() == exported.data_ptr()


def test_results_are_moved_while_another_stream_captures(device, device_module):
    function, side, graph = graphed(lambda x: (x.sum(), x * 3)), device_module.Stream(), device_module.CUDAGraph()
    kept = [function(torch.full((1000,), float(k), device=device))[0] for k in range(3)]
    x = torch.ones(3, device=device)
    with device_module.stream(side):
        graph.capture_begin(capture_error_mode="relaxed")
        y = x + 1
    kept.append(function(torch.full((1000,), 3.0, device=device))[0])
    with device_module.stream(side):
        graph.capture_end()
    graph.replay()
    assert [one.item() for one in kept] == [0, 1000, 2000, 3000]
    assert y.tolist() == [2, 2, 2]


def test_a_result_that_the_host_views_does_not_move(device, device_module):
    function, kept = graphed(lambda x: (x.sum(), x * 3)), []
    for k in range(4):
        kept.append(function(torch.full((1000,), float(k), device=device))[0])
        with device_module.host_view(kept[-1]) as host:
            function(torch.ones(1000, device=device))
            assert host.item() == 1000 * k
            host.add_(1)
    assert [one.item() for one in kept] == [1000 * k + 1 for k in range(4)]


@pytest.mark.long
def test_recordings_go_with_what_was_compiled(device, device_module):
    from torch_backplane.inductor import replay

    def run(width):
        model = nn.Linear(width, width, device=device)
        compiled = torch.compile(model, mode="reduce-overhead")
        for _ in range(3):
            compiled(torch.ones(2, width, device=device)).sum().backward()

    torch.compiler.reset()
    gc.collect()
    before, counts = len(replay._all), []
    for width in (64, 65, 66, 67):
        run(width)
        torch._dynamo.reset_code_caches()
        gc.collect()
        counts.append(len(replay._all) - before)
    assert counts[-1] <= counts[0]


@pytest.mark.long
def test_buffers_of_inputs_are_shared(device, runs, device_module):
    """By the recordings of a graph for other addresses."""
    model = nn.Linear(1000, 8).to(device).requires_grad_(False)
    compiled, reserved = graphed(model), []
    for _ in range(12):
        model.weight.data = model.weight.data.clone()
        compiled(torch.ones(1000, 1000, device=device))
        reserved.append(device_module.memory_reserved())
    assert runs.count("recorded") >= 2
    assert reserved[-1] - reserved[3] < 8 * 10**6


def test_what_a_function_returned_can_be_its_next_input(device, runs):
    function, x = graphed(lambda x: x.sin() + 1), torch.randn(50)
    got = x.to(device)
    for _ in range(6):
        got, x = function(got), x.sin() + 1
    near(got, x)
    assert runs.count("call") == 1


def test_results_that_are_views_of_inputs_or_of_each_other(device, runs):
    def function(x, y):
        z = x * 2
        return x.t(), z, z[1:], y, x[0].sum()

    compiled = graphed(function)
    for _ in range(4):
        x, y = torch.randn(3, 4), torch.randn(2)
        given = x.to(device), y.to(device)
        got = compiled(*given)
        for one, wanted in zip(got, function(x, y), strict=True):
            near(one, wanted)
        assert got[0].data_ptr() == given[0].data_ptr()
        assert got[2].untyped_storage().data_ptr() == got[1].untyped_storage().data_ptr()
    assert runs.count("replayed") == 3
