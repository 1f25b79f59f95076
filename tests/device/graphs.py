"""What the tests of graphs share: both kinds of a graph, a capture, and runs of it."""

import contextlib

import pytest
import torch

MARKS = [pytest.mark.requires("graph"), pytest.mark.kernels, pytest.mark.usefixtures("collected")]

# Both names of a graph; torch 2.11 has one of them.
KINDS = ["CUDAGraph", *(["accelerator"] if hasattr(torch.accelerator, "Graph") else [])]


def make(kind, device_module, **options):
    return (torch.accelerator.Graph if kind == "accelerator" else device_module.CUDAGraph)(**options)


@contextlib.contextmanager
def captured(graph, stream, device_module):
    """The block's work, by either kind of graph."""
    ours = isinstance(graph, device_module.CUDAGraph)
    stream.wait_stream(device_module.current_stream())
    with device_module.graph(graph, stream=stream) if ours else stream, contextlib.nullcontext() if ours else graph:
        yield


def another_stream(device_module):
    """Not the default stream of graph(), which the pool may return, too."""
    device_module.graph(device_module.CUDAGraph())
    while (stream := device_module.Stream()) == device_module.graph.default_capture_stream[0]:
        pass
    return stream


def replayed(graph, device_module, times=1):
    for _ in range(times):
        graph.replay()
    device_module.synchronize()
