"""Calls of the device module in a compiled function: queries are constants, waits and streams a part of the graph."""

import pytest
import torch

from torch_backplane import driver
from torch_backplane.compat import inductor

QUERIES = {
    "is_available": lambda module: module.is_available(),
    "device_count": lambda module: module.device_count(),
    "current_device": lambda module: module.current_device(),
    "get_device_name": lambda module: len(module.get_device_name()),
    "get_device_capability": lambda module: sum(module.get_device_capability(0)),
    "get_device_properties": lambda module: module.get_device_properties(module.current_device()).total_memory // 2**20,
    "is_bf16_supported": lambda module: module.is_bf16_supported(),
    "can_device_access_peer": lambda module: module.can_device_access_peer(0, 0),
    "get_device_module": lambda module: torch.get_device_module().device_count(),
    "get_device_module by name": lambda module: torch.get_device_module(module.__name__.split(".")[-1]).device_count(),
}


def whole(function):
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend="eager")


@pytest.mark.parametrize("query", QUERIES.values(), ids=list(QUERIES))
def test_F21_a_query_is_a_constant_of_the_graph(device, device_module, query):
    def scaled(x):
        return x * (query(device_module) + 2)

    x = torch.ones(3, device=device)
    assert whole(scaled)(x).tolist() == [float(query(device_module) + 2)] * 3


@pytest.mark.requires("multi_device")
def test_F21_another_current_device_is_another_graph(device, device_module):
    compiled = whole(lambda x: x + device_module.current_device())
    x = torch.zeros(2)
    found = []
    for index in (0, 1, 0):
        with device_module.device(index):
            found.append(compiled(x).tolist())
    assert found == [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]


@pytest.mark.requires("host_exec")
def test_F21_a_wait_is_part_of_the_graph(device, device_module):
    def waiting(x):
        device_module.synchronize()
        return x + 1

    x = torch.ones(3, device=device)
    compiled = whole(waiting)
    compiled(x)
    cycles = 300 * device_module.get_device_properties().clock_rate or 300_000_000
    with torch.Stream(device) as busy:
        device_module._sleep(cycles)
    assert not busy.query() or "inline" in str(driver.info().options)
    compiled(x)
    assert busy.query()


@pytest.mark.skipif(not inductor.has_streams(), reason="torch before 2.13 takes streams into no graph")
def test_F21_streams_are_part_of_the_graph(device, device_module):
    side = torch.Stream(device)

    def two_streams(x):
        here = device_module.current_stream()
        side.wait_stream(here)
        with side:
            y = x + 1
        here.wait_stream(side)
        return y * 2

    x = torch.ones(1 << 16, device=device)
    assert torch.equal(whole(two_streams)(x).cpu(), torch.full((1 << 16,), 4.0))


def test_F21_the_property_of_a_tensor_is_a_constant_of_the_graph(device):
    """Of one that the graph is given, and of those that it makes."""
    name = f"is_{device.type}"

    def function(x):
        y = x + 1
        z = y.cpu()
        return y * 2 if getattr(y, name) and getattr(x, name) and not getattr(z, name) else y

    assert whole(function)(torch.ones(3, device=device)).tolist() == [4.0] * 3
