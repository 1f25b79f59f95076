"""torch.accelerator: devices, streams, memory, capabilities."""

import gc

import pytest
import torch

from torch_backplane import compat


@pytest.mark.requires("multi_device")
def test_the_device_index(device_module, name):
    torch.accelerator.set_device_index(1)
    assert torch.accelerator.current_device_index() == 1 == device_module.current_device()
    with torch.accelerator.device_index(0):
        assert device_module.current_device() == 0
        with torch.accelerator.device_index(None):
            assert device_module.current_device() == 0
    assert device_module.current_device() == 1
    with pytest.raises(RuntimeError):
        torch.accelerator.set_device_index(9)


def test_streams(device_module, name):
    s = torch.Stream(device=name)
    torch.accelerator.set_stream(s)
    assert torch.accelerator.current_stream() == s == device_module.current_stream()
    torch.accelerator.synchronize()
    assert s.query()


def test_memory(device_module, device):
    gc.collect()
    torch.empty(1, device=device)
    before = torch.accelerator.memory_allocated()
    size = 4 << 20  # a whole segment
    x = torch.empty(size, dtype=torch.uint8, device=device)
    assert torch.accelerator.memory_allocated() == before + size == device_module.memory_allocated()
    torch.accelerator.reset_peak_memory_stats()
    assert torch.accelerator.max_memory_allocated() == before + size
    assert torch.accelerator.memory_reserved() == device_module.memory_reserved()
    assert torch.accelerator.max_memory_reserved() == device_module.max_memory_reserved()
    assert torch.accelerator.memory_stats()["allocation.all.current"] > 0
    torch.accelerator.reset_accumulated_memory_stats()
    assert torch.accelerator.memory_stats()["allocation.all.allocated"] == 0
    assert torch.accelerator.get_memory_info() == device_module.mem_get_info()
    del x
    reserved = torch.accelerator.memory_reserved()
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved() < reserved
    compat.empty_host_cache()


def test_capability(device_module):
    dtypes = torch.accelerator.get_device_capability(0)["supported_dtypes"]
    assert torch.float32 in dtypes
    native = device_module.get_device_properties(0).dtypes
    assert set(native) <= dtypes
