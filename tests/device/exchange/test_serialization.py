"""torch.save and torch.load keep the device: contract row E43. Metadata (E41, E42): tests/extend.

Formats, strides, views, storages and checkpoints are in the conformance suite ``serialization``, which
test_conformance_kit.py runs.
"""

import io

import pytest
import torch


def saved(value, **options):
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    buffer.seek(0)
    return buffer


@pytest.mark.requires("multi_device")
def test_e43_the_index_is_kept(device):
    x = torch.arange(4.0, device=f"{device.type}:1")
    assert torch.load(saved(x)).device == x.device
    moved = torch.load(saved(x), map_location={f"{device.type}:1": f"{device.type}:0"})
    assert (moved.device, moved.tolist()) == (torch.device(device.type, 0), [0, 1, 2, 3])


def test_e43_an_index_that_does_not_exist_is_an_error_that_names_map_location(device):
    content = saved(torch.arange(4.0, device=device)).getvalue()
    missing = content.replace(f"{torch.device(device.type, 0)}".encode(), f"{torch.device(device.type, 9)}".encode())
    assert missing != content
    with pytest.raises(RuntimeError, match="map_location"):
        torch.load(io.BytesIO(missing))


def test_e43_mmap(device, tmp_path):
    x = torch.arange(1000.0, device=device)
    torch.save({"x": x}, tmp_path / "x.pt")
    y = torch.load(tmp_path / "x.pt", mmap=True)["x"]
    assert y.device == x.device
    assert torch.equal(y.cpu(), x.cpu())


def test_unknown_metadata_is_refused(device):
    """A file of another device may have it. torch's own keys are not checked."""
    x = torch.ones(2, dtype=torch.complex64, device=device)
    for value in (True, False):
        with pytest.raises(ValueError, match=r"'othervendor.format' is not a key .* map_location='cpu'"):
            torch._utils.set_tensor_metadata(x, {"conj": True, "othervendor.format": value})
    torch._utils.set_tensor_metadata(x, {"conj": True})
    assert x.is_conj()
