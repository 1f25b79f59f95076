"""Fake tensors of the device: their device, factories under tracing, and no data pointer ever taken."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from torch_backplane import _backend


def test_C37_D39_a_fake_tensor_reports_the_device_and_results_keep_it(device, name):
    with FakeTensorMode():
        x = torch.empty(3, device=name)
        assert x.device.type == (x + 1).device.type == name
        indexed = torch.tensor([1.0, 2.0], device=device)
        assert (indexed.device, indexed.shape) == (device, (2,))
        assert (indexed @ torch.empty(2, 3, device=device)).device == device


@pytest.mark.requires("multi_device")
def test_C37_without_an_index_it_is_the_current_device(device_module, name):
    torch.empty(1, device=name)
    device_module.set_device(1)
    with FakeTensorMode():  # a size that no other test has: torch caches results by arguments
        assert torch.empty(3, 7, 11, device=name).device == torch.device(name, 1)


@pytest.mark.once
def test_C37_fake_tensors_open_no_device_and_a_device_may_be_set_before_the_first_use(printed, name):
    """FSDP2 moves a model from ``meta``, where a fake tensor without an index is made first."""
    code = """
        from torch._subclasses.fake_tensor import FakeTensorMode
        with FakeTensorMode():
            y = torch.empty(1 << 50, device=d + ":0") + 1
        print(y.device, m.is_initialized())
        m.set_device(1)
        with FakeTensorMode():
            print(torch.empty(3, device=d).device)
    """
    assert printed(code, "devices=2").splitlines() == [f"{name}:0 False", f"{name}:1"]


@pytest.mark.parametrize("throws", [False, True])
def test_D38_bindings_refuse_a_fake_tensor_cleanly(device, throws):
    """Every binding that takes a tensor, with a fake whose storage gives a null pointer and with one that throws."""
    with FakeTensorMode():
        fake = torch.empty(4, device=device)
    if throws:
        torch._C._set_throw_on_mutable_data_ptr(fake)
        with pytest.raises(RuntimeError, match=r"fake|data"):
            fake.data_ptr()
    with pytest.raises((RuntimeError, ValueError)):
        _backend.C.memory.host_view(fake)
    assert torch.ones(2, device=device).tolist() == [1.0, 1.0]


def test_D40_factories_reach_the_device(device):
    for make in (
        lambda: torch.zeros(2, device=device),
        lambda: torch.arange(4, device=device),
        lambda: torch.triu_indices(2, 2, device=device),
        lambda: torch.eye(3, device=device),
        lambda: torch.randperm(4, device=device),
        lambda: torch.linspace(0, 1, 3, device=device),
        lambda: torch.full((2,), 3, device=device),
        lambda: torch.hann_window(4, device=device),
    ):
        assert make().device == device
    with torch.device(device):
        assert torch.ones(2).device == device
    assert torch.equal(torch.triu_indices(3, 3, device=device).cpu(), torch.triu_indices(3, 3))
    assert torch.eye(2, device=device).tolist() == [[1.0, 0.0], [0.0, 1.0]]
