"""resize_, set_ and resizes of storages keep the old bytes. tests/fuzz has random programs of them on little memory."""

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
    assert x.is_set_to(x.view(6))
    assert not x.is_set_to(x.clone())
    x.set_()
    assert (x.shape, x.device, x.untyped_storage().nbytes()) == ((0,), device, 0)


def test_E17_set_grows_its_storage_and_refuses_nonsense(device):
    x = torch.arange(2.0).to(device)
    x.set_(x.untyped_storage(), 0, (4,), (1,))
    assert x[:2].tolist() == [0, 1]
    assert x.untyped_storage().nbytes() == 16
    with pytest.raises(RuntimeError, match="offset"):
        x.set_(x.untyped_storage(), -1, (1,), (1,))
    with pytest.raises(RuntimeError):
        x.set_(torch.ones(2).untyped_storage())


def test_E18_resize_keeps_the_old_data(device):
    x = torch.tensor([1.0, 2.0], device=device)
    view = x.view(2)
    x.resize_(4)
    assert (x[:2].tolist(), x.untyped_storage().nbytes()) == ([1, 2], 16)
    assert view.data_ptr() == x.data_ptr()
    x.resize_(1)
    assert (x.tolist(), x.untyped_storage().nbytes()) == ([1], 16)
    x = torch.arange(4.0).to(device)
    view = x[2:]
    view.resize_(5)
    assert (view.storage_offset(), view[:2].tolist(), x.untyped_storage().nbytes()) == (2, [2, 3], 28)


def test_E18_resize_takes_a_memory_format_but_not_preserve(device):
    x = torch.empty(0, device=device)
    x.resize_(2, 3, 4, 5, memory_format=torch.channels_last)
    assert x.is_contiguous(memory_format=torch.channels_last)
    with pytest.raises(RuntimeError, match="memory format"):
        x.resize_(2, 2, 2, 2, memory_format=torch.preserve_format)
    x.resize_as_(torch.empty(3, 3, device=device))
    assert x.shape == (3, 3)
    assert x.resize_(0, 3).shape == (0, 3)
    torch.ops.aten._resize_output_(x, [2], device)
    assert x.shape == (2,)


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


TOO_LARGE = 1 << 46  # elements: no device has so much


def state(x):
    storage = x.untyped_storage()
    return x.shape, x.stride(), x.storage_offset(), storage.nbytes(), storage.data_ptr(), x.tolist()


RESIZES = {
    "resize_": lambda x: x.resize_(TOO_LARGE),
    "resize_ of two dimensions": lambda x: x.resize_(TOO_LARGE, 2),
    "storage": lambda x: x.untyped_storage().resize_(TOO_LARGE),
    "set_": lambda x: x.set_(torch.ones(5, device=x.device).untyped_storage(), 2, (TOO_LARGE,), (1,)),
    "set_ with strides": lambda x: x.set_(torch.ones(5, device=x.device).untyped_storage(), 2, (2, 2), (TOO_LARGE, 1)),
    "set_ of its own storage": lambda x: x.set_(x.untyped_storage(), 1, (TOO_LARGE,), (1,)),
    "out= of a kernel": lambda x: torch.add(torch.ones(1, device=x.device).expand(TOO_LARGE), 1, out=x),
    "out= of a factory": lambda x: torch.zeros(TOO_LARGE, out=x),
}


@pytest.mark.parametrize("call", RESIZES.values(), ids=RESIZES.keys())
@pytest.mark.parametrize("of", [lambda x: x, lambda x: x[2:6], lambda x: x.view(2, 4).t()], ids=["whole", "part", "t"])
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_E18_without_memory_a_tensor_stays_as_it_was(device, call, of):
    base = torch.arange(8.0, device=device)
    x = of(base)
    before = state(x)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            call(x)
        assert state(x) == before
    x.fill_(7)
    assert base.numel() == 8


@pytest.mark.filterwarnings("ignore:An output with one or more", "ignore:The number of elements in the out")
def test_E18_a_storage_that_is_not_resizable_keeps_its_tensor(device):
    owner, neighbour = torch.arange(8.0, device=device), torch.zeros(4096, device=device)
    x = torch.from_dlpack(owner)
    before = state(x)
    calls = [
        lambda: x.resize_(4096),
        lambda: x.set_(x.untyped_storage(), 0, (4096,), (1,)),
        lambda: torch.add(neighbour, 1, out=x),
        lambda: torch.sinc(neighbour, out=x),
        lambda: torch.arange(4096.0, out=x),
    ]
    for call in calls * 2:
        with pytest.raises(RuntimeError, match="not resizable"):
            call()
        assert state(x) == before
    x.fill_(5)
    assert owner.tolist() == [5] * 8
    assert neighbour.count_nonzero().item() == 0
