"""PyTorch's hooks of the device: registered once, and used for pinned memory and generators (E19, E20, E35, E38)."""

import subprocess
import sys

import pytest
import torch

import backplane_sdk


def test_E19_pinned_memory_is_recognised_and_only_dense_cpu_tensors_are_pinned(device):
    pageable = torch.arange(6.0)
    pinned = pageable.pin_memory()
    assert pinned.is_pinned()
    assert pinned[2:].is_pinned()
    assert torch.equal(pinned, pageable)
    assert not pageable.is_pinned()
    on_device = pageable.to(device)
    assert not on_device.is_pinned()
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        on_device.pin_memory()
    with pytest.raises(RuntimeError, match="Only dense CPU tensors can be pinned"):
        torch.empty(3, device=device, pin_memory=True)
    with pytest.raises(RuntimeError, match="pinned"):
        torch.empty_strided((1,), (1,), device=device, pin_memory=True)


def test_E20_pinning_comes_from_the_hooks_and_takes_the_drivers_memory(device, device_module):
    torch.empty(1, device=device)
    before = device_module.host_memory_stats()["num_host_alloc"]
    kept = [torch.empty(1 << 20, dtype=torch.uint8).pin_memory() for _ in range(3)]
    assert all(x.is_pinned() for x in kept)
    assert device_module.host_memory_stats()["num_host_alloc"] > before
    direct = {"aten::_pin_memory", "aten::is_pinned"}
    registered = set(torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1"))
    assert direct & registered == set()


def test_E35_generators_come_only_from_the_hooks(device):
    assert torch.Generator(device).device == device
    sources = backplane_sdk.source_dir()
    used = [
        path
        for folder in ("backend", "drivers", "include")
        for path in (sources / folder).rglob("*.[ch]*")
        if "REGISTER_GENERATOR_PRIVATEUSE1" in path.read_text()
    ]
    assert used == []


@pytest.mark.long
def test_E38_the_hooks_are_registered_once(name, backend_package):
    code = f"""
import importlib, torch, {backend_package.__name__} as package
importlib.reload(package)
assert torch.accelerator.is_available() and torch.accelerator.current_accelerator().type == "{name}"
print(torch.ones(2, device="{name}").sum().item(), torch._C._get_accelerator().type)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.stdout.split() == ["2.0", name], done.stdout + done.stderr
