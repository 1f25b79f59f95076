"""torch.save, torch.load and what else writes tensors: contract row E43. Metadata (E41, E42): tests/extend."""

import copy
import io
import pickle

import pytest
import torch


def saved(value, **options):
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    buffer.seek(0)
    return buffer


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.uint8]
)
@pytest.mark.parametrize("weights_only", [True, False])
def test_e43_a_tensor_comes_back_with_its_device(device, dtype, weights_only):
    x = torch.tensor([0, 1, 2, 3]).to(dtype).to(device)
    y = torch.load(saved(x), weights_only=weights_only)
    assert (y.device, y.dtype) == (x.device, dtype)
    assert torch.equal(y.cpu(), x.cpu())


@pytest.mark.requires("multi_device")
def test_e43_the_index_is_kept(device):
    x = torch.arange(4.0, device=f"{device.type}:1")
    assert torch.load(saved(x)).device == torch.device(device.type, 1)
    assert torch.load(saved(x), map_location=f"{device.type}:0").device == torch.device(device.type, 0)
    moved = torch.load(saved(x), map_location={f"{device.type}:1": f"{device.type}:0"})
    assert moved.device == torch.device(device.type, 0)
    assert moved.tolist() == [0, 1, 2, 3]


def test_e43_an_index_that_is_not_there_is_an_error_with_a_cure(device):
    content = saved(torch.arange(4.0, device=device)).getvalue()
    missing = content.replace(f"{torch.device(device.type, 0)}".encode(), f"{torch.device(device.type, 9)}".encode())
    assert missing != content
    with pytest.raises(RuntimeError, match="map_location"):
        torch.load(io.BytesIO(missing))


def test_e43_map_location_reaches_the_cpu_and_the_device(device):
    x = torch.arange(6.0, device=device).view(2, 3)
    on_cpu = torch.load(saved(x), map_location="cpu")
    assert on_cpu.device.type == "cpu"
    assert torch.equal(on_cpu, x.cpu())
    for place in (device, torch.device(device.type, 0), lambda storage, location: storage.to(device=device)):
        back = torch.load(saved(on_cpu), map_location=place)
        assert back.device == torch.device(device.type, 0)
        assert torch.equal(back.cpu(), on_cpu)


def test_e43_mmap(device, tmp_path):
    x = torch.arange(1000.0, device=device)
    torch.save({"x": x}, tmp_path / "x.pt")
    y = torch.load(tmp_path / "x.pt", mmap=True)["x"]
    assert y.device == x.device
    assert torch.equal(y.cpu(), x.cpu())
    z = torch.load(tmp_path / "x.pt", mmap=True, map_location="cpu")["x"]
    assert torch.equal(z, x.cpu())


def test_e43_the_old_file_format(device):
    x = torch.arange(5.0, device=device)
    y = torch.load(saved(x, _use_new_zipfile_serialization=False), weights_only=False)
    assert y.device == x.device
    assert torch.equal(y.cpu(), x.cpu())


def test_e43_views_share_their_storage_again(device):
    base = torch.arange(6.0, device=device)
    x, row = torch.load(saved((base, base[2:4])))
    x[2] = 50
    assert row.tolist() == [50, 3]
    assert row.storage_offset() == 2


def test_e43_strides_conj_and_neg_are_kept(device):
    x = torch.arange(6.0, device=device).view(2, 3).t()
    conj = torch.tensor([1 + 2j, 3 - 1j], device=device).conj()
    neg = torch.tensor([1 + 2j, 3 - 1j], device=device).conj().imag
    assert neg.is_neg()
    for original, loaded in zip((x, conj, neg), torch.load(saved((x, conj, neg))), strict=True):
        assert loaded.stride() == original.stride()
        assert loaded.is_conj() == original.is_conj()
        assert loaded.is_neg() == original.is_neg()
        assert torch.equal(loaded.cpu(), original.cpu())


def test_e43_a_model_and_its_optimizer(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2)).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(16, 4, device=device)
    for _ in range(2):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    file = saved({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    state = torch.load(file)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    other.load_state_dict(state["model"])
    assert torch.equal(other(x).cpu(), model(x).cpu())
    again = torch.optim.Adam(other.parameters())
    again.load_state_dict(state["optimizer"])
    moment = next(iter(again.state.values()))["exp_avg"]
    assert moment.device == x.device
    assert torch.equal(moment.cpu(), next(iter(optimizer.state.values()))["exp_avg"].cpu())
    file.seek(0)
    on_cpu = torch.load(file, map_location="cpu")
    assert {value.device.type for value in on_cpu["model"].values()} == {"cpu"}


def test_e43_pickle_and_deepcopy(device):
    x = torch.nn.Parameter(torch.arange(3.0, device=device))
    y = pickle.loads(pickle.dumps(x))
    assert isinstance(y, torch.nn.Parameter)
    assert y.device == x.device
    z = copy.deepcopy(x)
    assert z.device == x.device
    assert z.data_ptr() != x.data_ptr()
    assert y.tolist() == z.tolist() == [0, 1, 2]


def test_e43_storages(device):
    storage = torch.arange(4.0, device=device).untyped_storage()
    loaded = torch.load(saved(storage), weights_only=False)._untyped_storage
    assert loaded.device == storage.device
    assert bytes(loaded.cpu()) == bytes(storage.cpu())


def test_metadata_that_nobody_knows_is_refused(device):
    """As a file of another device may hold it; torch's own keys are not its concern."""
    x = torch.ones(2, dtype=torch.complex64, device=device)
    for value in (True, False):
        with pytest.raises(ValueError, match=r"'othervendor.format' is not a key .* map_location='cpu'"):
            torch._utils.set_tensor_metadata(x, {"conj": True, "othervendor.format": value})
    torch._utils.set_tensor_metadata(x, {"conj": True})
    assert x.is_conj()
