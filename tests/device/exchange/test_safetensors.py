"""safetensors saves tensors of the device, and the helper loads them onto it."""

import sys

import pytest
import torch
from safetensors.torch import save_file

from torch_backplane.safetensors import load_file


@pytest.fixture
def tensors(device):
    return {
        "weight": torch.arange(12.0, device=device).view(3, 4),
        "half": torch.ones(5, dtype=torch.bfloat16, device=device),
        "count": torch.tensor(7, device=device),
        "empty": torch.empty(0, 2, device=device),
    }


def test_round_trip(device, tensors, tmp_path):
    save_file(tensors, tmp_path / "x.safetensors")
    loaded = load_file(tmp_path / "x.safetensors", device=device)
    assert set(loaded) == set(tensors)
    for name, tensor in tensors.items():
        assert (loaded[name].device, loaded[name].dtype) == (tensor.device, tensor.dtype)
        assert torch.equal(loaded[name].cpu(), tensor.cpu())


@pytest.mark.requires("multi_device")
def test_any_device(device, tensors, tmp_path):
    save_file(tensors, str(tmp_path / "x.safetensors"))
    assert load_file(str(tmp_path / "x.safetensors"), device=f"{device.type}:1")["weight"].device == torch.device(
        device.type, 1
    )
    assert load_file(tmp_path / "x.safetensors", device="cpu")["weight"].device.type == "cpu"
    assert load_file(tmp_path / "x.safetensors")["weight"].device == tensors["weight"].device


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match="pip install safetensors"):
        load_file(tmp_path / "x.safetensors")
