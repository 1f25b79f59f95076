"""resize_, set_ and storage resize: old bytes stay, new ones come."""

import pytest
import torch


def test_E17_set_from_a_storage(device):
    x = torch.arange(6.0).to(device)
    y = torch.empty(0, device=device)
    assert y.set_(x.untyped_storage()) is y
    assert y.shape == (6,)
    y.set_(x.untyped_storage(), 1, (2, 2), (1, 2))
    assert y.tolist() == [[1, 3], [2, 4]]
    y.fill_(9)
    assert x.tolist() == [0, 9, 9, 9, 9, 5]
    assert torch.empty(0, device=device).set_(x).data_ptr() == x.data_ptr()
    assert torch.empty(0, device=device).set_(x.untyped_storage(), 2, (3,)).stride() == (1,)


def test_E17_set_without_arguments_empties(device):
    x = torch.ones(4, device=device)
    x.set_()
    assert x.shape == (0,)
    assert x.device == device
    assert x.untyped_storage().nbytes() == 0


def test_E17_set_grows_its_storage_and_refuses_nonsense(device):
    x = torch.arange(2.0).to(device)
    x.set_(x.untyped_storage(), 0, (4,), (1,))
    assert x[:2].tolist() == [0, 1]
    assert x.untyped_storage().nbytes() == 16
    with pytest.raises(RuntimeError, match="offset"):
        x.set_(x.untyped_storage(), -1, (1,), (1,))
    with pytest.raises(RuntimeError):
        x.set_(torch.ones(2).untyped_storage())


def test_is_set_to(device):
    x = torch.ones(3, device=device)
    assert x.is_set_to(x.view(3))
    assert not x.is_set_to(x.clone())


def test_E18_resize_keeps_the_old_data(device):
    x = torch.tensor([1.0, 2.0], device=device)
    view = x.view(2)
    x.resize_(4)
    assert x[:2].tolist() == [1, 2]
    assert x.untyped_storage().nbytes() == 16
    assert view.data_ptr() == x.data_ptr()
    x.resize_(1)
    assert x.tolist() == [1]
    assert x.untyped_storage().nbytes() == 16


def test_E18_resize_takes_a_memory_format_but_not_preserve(device):
    x = torch.empty(0, device=device)
    x.resize_(2, 3, 4, 5, memory_format=torch.channels_last)
    assert x.is_contiguous(memory_format=torch.channels_last)
    with pytest.raises(RuntimeError, match="memory format"):
        x.resize_(2, 2, 2, 2, memory_format=torch.preserve_format)
    x.resize_as_(torch.empty(3, 3, device=device))
    assert x.shape == (3, 3)


def test_E18_storage_resize_goes_through_the_hooks(device):
    x = torch.tensor([1.0, 2.0], device=device)
    storage = x.untyped_storage()
    storage.resize_(64)
    assert storage.nbytes() == 64
    assert x.tolist() == [1, 2]
    storage.resize_(0)
    assert storage.nbytes() == 0
    storage.resize_(8)
    x.fill_(3)
    assert x.tolist() == [3, 3]


def test_E18_a_large_storage_grows_and_keeps_every_byte(device):
    x = torch.arange(1 << 18, device=device)
    x.resize_(1 << 19)
    assert torch.equal(x[: 1 << 18].cpu(), torch.arange(1 << 18))
    x[1 << 18 :] = 1
    assert x[1 << 18 :].sum().item() == 1 << 18


def test_resize_of_an_offset_view_grows_by_its_offset(device):
    x = torch.arange(4.0).to(device)
    view = x[2:]
    view.resize_(5)
    assert view.storage_offset() == 2
    assert view[:2].tolist() == [2, 3]
    assert x.untyped_storage().nbytes() == 28


def test_resize_of_zero_elements_and_of_shared_memory(device):
    x = torch.empty(0, device=device)
    assert x.resize_(0, 3).shape == (0, 3)
    with torch.no_grad():
        torch.ops.aten._resize_output_(x, [2], device)
    assert x.shape == (2,)
