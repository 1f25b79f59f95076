"""safetensors files, read for the device by its name."""

import pytest
import safetensors
import safetensors.torch
import torch

TENSORS = {
    "a": torch.arange(12.0).view(3, 4),
    "b": torch.ones(3, dtype=torch.bfloat16),
    "c": torch.tensor([1, 2], dtype=torch.int64),
    "empty": torch.zeros(0, 2),
    "scalar": torch.tensor(2.5),
    "small": torch.tensor([1.5, 2.0]).to(torch.float8_e4m3fn),
}


@pytest.fixture
def path(tmp_path):
    safetensors.torch.save_file(TENSORS, tmp_path / "x.safetensors")
    return tmp_path / "x.safetensors"


def assert_same(found, expected, device):
    assert found.device == device
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.cpu().float().tolist() == expected.float().tolist()


@pytest.fixture(params=["", ":1", "device", "index"])
def named(request, name):
    """A device, and a way to name it."""
    if request.param == "device":
        return torch.device(name), torch.device(name, 0)
    if request.param == "index":
        return 1, torch.device(name, 1)
    return f"{name}{request.param}", torch.device(name, 1 if request.param else 0)


@pytest.mark.sample
@pytest.mark.requires("multi_device")
@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_I08_files_are_read_for_the_device(path, named, backend):
    given, device = named
    found = safetensors.torch.load_file(path, device=given, backend=backend)
    assert found.keys() == TENSORS.keys()
    for key, expected in TENSORS.items():
        assert_same(found[key], expected, device)
    with safetensors.safe_open(path, "pt", given, backend=backend) as file:
        assert_same(file.get_tensor("a"), TENSORS["a"], device)
        assert_same(file.get_slice("a")[1:, ::2], TENSORS["a"][1:, ::2], device)
        assert sorted(file.keys()) == sorted(TENSORS)
        assert isinstance(file, safetensors.safe_open)
    with open(path, "rb") as opened, safetensors._safe_open_handle(opened, "pt", device=given) as file:
        assert_same(file.get_tensor("b"), TENSORS["b"], device)


@pytest.mark.requires("multi_device")
def test_without_an_index_it_is_the_current_device(path, name, device_module):
    device_module.set_device(1)
    assert safetensors.torch.load_file(path, device=name)["a"].device == torch.device(name, 1)


def test_I08_models(tmp_path, name):
    model = torch.nn.Linear(3, 2).to(name)
    safetensors.torch.save_model(model, tmp_path / "model.safetensors")
    other = torch.nn.Linear(3, 2).to(name)
    assert safetensors.torch.load_model(other, tmp_path / "model.safetensors", device=name) == (set(), [])
    assert_same(other.weight.detach(), model.weight.detach().cpu(), model.weight.device)


def test_I08_the_file_is_read_tensor_by_tensor(path, name, device_module):
    """Nothing is allocated before a tensor is asked for, and nothing but it then."""
    before = device_module.memory_stats()["allocated_bytes.all.allocated"]
    with safetensors.safe_open(path, framework="pt", device=name) as file:
        assert device_module.memory_stats()["allocated_bytes.all.allocated"] == before
        kept = file.get_tensor("a")
        assert device_module.memory_stats()["allocated_bytes.all.allocated"] == before + 512
    assert kept.numel() == 12


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ("{}:99", RuntimeError, "there are [0-9]+ {} devices"),
        ("{}:x", RuntimeError, "(?i)invalid device string"),
        ("{}s", safetensors.SafetensorError, "device {}s is invalid"),
        ("nothing", safetensors.SafetensorError, "device nothing is invalid"),
        ("cpu:0", safetensors.SafetensorError, "device cpu:0 is invalid"),
        (-1, safetensors.SafetensorError, "device -1 is invalid"),
        (None, None, None),
    ],
)
def test_I08_devices_that_are_none(path, name, given, kind, text):
    given = given.format(name) if isinstance(given, str) else given
    if kind is None:  # the library's default
        assert safetensors.safe_open(path, "pt", given).get_tensor("a").device.type == "cpu"
        return
    with pytest.raises(kind, match=text.format(name)):
        safetensors.safe_open(path, framework="pt", device=given)


def test_other_frameworks_and_missing_files_are_the_librarys(path, tmp_path, name):
    with pytest.raises(safetensors.SafetensorError, match=f"device {name} is invalid"):
        safetensors.safe_open(path, framework="np", device=name)
    with safetensors.safe_open(path, framework="np") as file:
        assert file.get_tensor("a").tolist() == TENSORS["a"].tolist()
    with pytest.raises(FileNotFoundError):
        safetensors.safe_open(tmp_path / "none", framework="pt", device=name)


LATE = """
import json, sys
import torch, safetensors
from safetensors import safe_open as taken
from safetensors.torch import save_file, load_file
import safetensors.torch as inner
import torch_backplane.integrations.auto

save_file({"a": torch.ones(2)}, "x.safetensors")
with taken("x.safetensors", framework="pt", device="mydevice:1") as file:
    mine = str(file.get_tensor("a").device)
with inner.safe_open("x.safetensors", framework="pt", device="mydevice") as file:
    theirs = str(file.get_tensor("a").device)
print(json.dumps([mine, theirs, str(load_file("x.safetensors", device="mydevice:1")["a"].device)]))
"""


@pytest.mark.requires("multi_device")
def test_I08_who_imported_it_before_is_served(answer):
    assert answer(LATE, MYDEVICE_INTEGRATIONS=None) == ["mydevice:1", "mydevice:0", "mydevice:1"]
