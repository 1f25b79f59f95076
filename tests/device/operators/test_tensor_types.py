"""The legacy tensor types: constructor, isinstance, Tensor.type, pickles."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch

from torch_backplane.device.tensor_types import DTYPES


def test_E59_the_names_and_dtypes_are_torchs(device_module, name):
    assert {short: getattr(torch, short).dtype for short in DTYPES} == DTYPES
    for short, dtype in DTYPES.items():
        ours = getattr(device_module, short)
        assert (ours.dtype, ours.layout, ours.is_sparse, ours.is_cuda) == (dtype, torch.strided, False, False)
        assert (ours.__name__, ours.__module__) == (short, f"torch.{name}")
        assert getattr(ours, f"is_{name}") is True
        assert ours in torch._tensor_classes
    cuda = {n for n in vars(torch.cuda.sparse) if n.endswith("Tensor")}
    assert {n for n in vars(device_module.sparse) if n.endswith("Tensor")} == cuda
    assert device_module.sparse.FloatTensor.layout is torch.sparse_coo
    assert device_module.FloatTensor.add is torch.Tensor.add
    with pytest.raises(AttributeError):
        device_module.FloatTensor.no_such_method  # noqa: B018
    with pytest.raises(TypeError, match="immutable"):
        device_module.FloatTensor.dtype = torch.int8


@pytest.mark.long_after_first
@pytest.mark.parametrize("short", sorted(DTYPES))
def test_E59_the_constructor_does_what_torchs_does(device_module, device, short):
    ours, theirs = getattr(device_module, short), getattr(torch, short)
    data = [[1, 0], [2, 3]]
    dtype = DTYPES[short]
    for arguments in ((), (2, 3), (torch.Size([2, 0]),), (data,), (np.array(data),), (torch.tensor(data),)):
        try:
            expected = theirs(*arguments)
        except TypeError:  # a tensor of another dtype
            with pytest.raises(TypeError):
                ours(*arguments)
            continue
        if arguments and isinstance(arguments[0], torch.Tensor):
            arguments = (arguments[0].to(device),)
        found = ours(*arguments)
        assert (found.shape, found.dtype, found.device) == (expected.shape, dtype, device)
        if arguments and not isinstance(arguments[0], (int, torch.Size)):
            assert torch.equal(found.cpu(), expected)
    source = torch.tensor(data, dtype=dtype, device=device)
    assert ours(source).data_ptr() == source.data_ptr()
    assert ours(source.untyped_storage()).data_ptr() == source.data_ptr()
    assert ours(source.untyped_storage()).numel() == 4
    with pytest.raises(TypeError):
        ours(torch.tensor(data, dtype=dtype))  # of the CPU


@pytest.mark.requires("multi_device")
def test_E59_the_constructor_takes_a_device(device_module, name):
    assert device_module.FloatTensor(2, device=f"{name}:1").device.index == 1
    with device_module.device(1):
        assert device_module.LongTensor([1]).device.index == 1
    with pytest.raises(RuntimeError, match="device type"):
        device_module.FloatTensor(2, device="cpu")


def test_E59_isinstance_asks_dtype_layout_and_device(device_module, device):
    x = torch.ones(2, device=device)
    assert isinstance(x, device_module.FloatTensor)
    assert isinstance(torch.nn.Parameter(x), device_module.FloatTensor)
    assert not isinstance(x.long(), device_module.FloatTensor)
    assert not isinstance(x.cpu(), device_module.FloatTensor)
    assert not isinstance(x, (torch.FloatTensor, torch.cuda.FloatTensor, device_module.sparse.FloatTensor))
    assert isinstance(x.to_sparse(), device_module.sparse.FloatTensor)
    assert not isinstance(x.to_sparse(), device_module.FloatTensor)
    assert not isinstance(3, device_module.FloatTensor)
    made = device_module.sparse.FloatTensor(2, 3)
    assert (made.layout, made.shape, made.device) == (torch.sparse_coo, (2, 3), device)


def test_E59_the_type_of_a_tensor_names_the_class(device_module, device, name):
    x = torch.tensor([1.5, 2.5])
    for short in DTYPES:
        ours = getattr(device_module, short)
        for target in (ours, f"torch.{name}.{short}"):
            there = x.type(target)
            assert there.device == device
            assert there.type() == f"torch.{name}.{short}"
            assert isinstance(there, ours)
            assert torch.equal(there.cpu(), x.to(DTYPES[short]))
        assert torch._utils._import_dotted_name(there.type()) is ours
    assert x.to(device).type(torch.LongTensor).device.type == "cpu"
    sparse = x.to(device).to_sparse()
    assert torch._utils._import_dotted_name(sparse.type()) is device_module.sparse.FloatTensor


def test_E59_classes_are_copied_and_pickled_by_their_names(device_module, device):
    for ours in (device_module.FloatTensor, device_module.sparse.HalfTensor):
        assert pickle.loads(pickle.dumps(ours)) is ours
        assert copy.deepcopy(ours) is ours
        file = io.BytesIO()
        torch.save({"type": ours, "tensor": torch.ones(2, device=device)}, file)
        file.seek(0)
        assert torch.load(file, weights_only=False)["type"] is ours


def test_E59_the_default_type_is_set_by_dtype_and_device(device_module, name):
    """torch accepts only its own types, and warns; nothing is changed."""
    with pytest.warns(UserWarning, match="set_default_device"), pytest.raises(TypeError, match="invalid type object"):
        torch.set_default_tensor_type(device_module.HalfTensor)
    assert torch.get_default_dtype() is torch.float32
    assert torch.empty(0).device.type == "cpu"
