"""Copies of every dtype, stride, offset and lazy bit, between host and devices, blocking or not."""

import itertools

import pytest
import torch
from dtypes import EVERY

LAYOUTS = {
    "contiguous": lambda x: x,
    "offset": lambda x: x[1:],
    "transposed": lambda x: x.transpose(0, 2),
    "rows": lambda x: x[::2],
    "columns": lambda x: x[..., 1::2],
    "expanded": lambda x: x[:1].expand(4, 5, 6),
    "scalar": lambda x: x[2, 3, 4],
    "channels_last": lambda x: x.unsqueeze(0).contiguous(memory_format=torch.channels_last),
    "empty": lambda x: x[:0],
}


def bits(x):
    """The bytes of a CPU tensor."""
    return x.contiguous().view(torch.uint8) if x.dim() else x.reshape(1).view(torch.uint8)


def numbers(dtype, *shape):
    count = torch.Size(shape).numel()
    return (torch.arange(count) % 7).to(torch.float32).reshape(shape).to(dtype)


@pytest.fixture
def devices(device, device_module):
    return [torch.device(device.type, i) for i in range(min(device_module.device_count(), 2))]


@pytest.mark.parametrize("dtype", EVERY, ids=str)
def test_E11_every_dtype_there_and_back(devices, dtype):
    x = numbers(dtype, 3, 4)
    for device in devices:
        moved = x.to(device)
        assert moved.device == device
        assert moved.dtype == dtype
        assert torch.equal(bits(moved.cpu()), bits(x))
        for other in devices:
            assert torch.equal(bits(moved.to(other, copy=True).cpu()), bits(x))


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_E12_every_layout_there_and_back(devices, layout):
    cpu = torch.arange(4 * 5 * 6, dtype=torch.float32).reshape(4, 5, 6)
    expected = layout(cpu)
    for device in devices:
        on_device = layout(cpu.to(device))
        assert torch.equal(on_device.cpu(), expected)
        assert on_device.cpu().stride() == expected.clone().stride()
        assert torch.equal(expected.to(device).cpu(), expected)
        assert torch.equal(on_device.double().cpu(), expected.double())
        for other in devices:
            assert torch.equal(on_device.to(other, copy=True).cpu(), expected)


@pytest.mark.parametrize(
    ("source", "target"), [p for p in itertools.product(["cpu", 0, 1], repeat=2) if p != ("cpu", "cpu")]
)
@pytest.mark.parametrize("non_blocking", [False, True])
def test_E12_a_strided_copy_with_another_dtype_writes_no_gaps(devices, device_module, source, target, non_blocking):
    place = {"cpu": torch.device("cpu"), 0: devices[0], 1: devices[-1]}
    source, target = place[source], place[target]
    src = torch.arange(60, dtype=torch.float64).reshape(6, 10).to(source).t()[1::2, :4]
    dst = torch.full((8, 10), -1, dtype=torch.int32, device=target)
    window = dst[2:7, 1:9:2]
    window.copy_(src, non_blocking=non_blocking)
    device_module.synchronize(devices[0])
    device_module.synchronize(devices[-1])
    expected = torch.full((8, 10), -1, dtype=torch.int32)
    expected[2:7, 1:9:2] = torch.arange(60, dtype=torch.float64).reshape(6, 10).t()[1::2, :4].int()
    assert torch.equal(dst.cpu(), expected)


def test_E12_slice_assignment_broadcasts(device):
    x, cpu = torch.zeros(3, 4, device=device), torch.zeros(3, 4)
    for t in (x, cpu):
        t[1:, 2] = torch.tensor([5.0, 6.0])
        t[0] = 7
        t[:, :2] = torch.arange(2, dtype=torch.int64, device=t.device)
        t.copy_(t.clone().flip(0))
    assert torch.equal(x.cpu(), cpu)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_E13_conj_and_neg_bits_are_resolved(devices, dtype):
    cpu = torch.tensor([[1 + 2j, 3 - 4j, 0 + 1j], [2 + 2j, 5 - 1j, 1 + 0j]], dtype=dtype)
    for device in devices:
        x = cpu.to(device)
        assert torch.equal(x.conj().cpu(), cpu.conj())
        assert torch.equal(cpu.conj().to(device).cpu(), cpu.conj())
        assert torch.equal(x.conj().t().cpu(), cpu.conj().t())
        assert torch.equal(x.conj().imag.cpu(), cpu.conj().imag)
        assert torch.equal(torch._neg_view(x.real).cpu(), -cpu.real)
        assert torch.equal((torch._neg_view(x.real) + 0).cpu(), -cpu.real)
        assert torch.equal((x.conj() * 1j).cpu(), cpu.conj() * 1j)
        for target in [*devices, torch.device("cpu")]:
            y = torch.zeros(3, 2, dtype=dtype, device=target)
            y.conj().copy_(x.t())
            assert torch.equal(y.cpu(), cpu.t().conj())
            z = torch.zeros(2, 3, dtype=dtype, device=target)
            z.copy_(x.conj())
            assert torch.equal(z.cpu(), cpu.conj())


def test_E11_copy_from_returns_its_destination(device):
    x, y = torch.ones(2, device=device), torch.zeros(2, device=device)
    assert torch.ops.aten._copy_from(x, y).data_ptr() == y.data_ptr()
    assert y.copy_(x) is y
    assert y.tolist() == [1, 1]


def test_non_blocking_from_pinned_memory_keeps_the_block(device, device_module):
    expected = torch.arange(1 << 18)
    busy = torch.zeros(1 << 20, device=device)
    copies = []
    for i in range(20):
        for _ in range(10):
            busy += 1  # on an asynchronous stream, the copy is queued behind this
        pinned = (expected + i).pin_memory()
        assert pinned.is_pinned()
        copies.append(pinned.to(device, non_blocking=True))
        del pinned  # the block must not be reused before the copy has read it
    device_module.synchronize()
    for i, copy in enumerate(copies):
        assert torch.equal(copy.cpu(), expected + i)


def test_non_blocking_to_pageable_memory(device, device_module):
    target = torch.empty(1 << 18, dtype=torch.int64)
    target.copy_(torch.arange(1 << 18, device=device), non_blocking=True)
    device_module.synchronize()
    assert torch.equal(target, torch.arange(1 << 18))


def test_a_copy_between_devices_is_ordered_with_both_streams(devices, device_module):
    first, second = devices[0], devices[-1]
    x = torch.zeros(1 << 18, device=first)
    y = torch.zeros(1 << 18, device=second)
    for i in range(1, 10):
        x.fill_(i)
        y.copy_(x)
        x.fill_(-1)
        assert (y + 0).sum().item() == i << 18


def test_E14_copy_from_and_resize(device):
    x = torch.arange(6.0).reshape(2, 3)
    target = torch.empty(0, device=device)
    torch.ops.aten._copy_from_and_resize(x, target)
    assert torch.equal(target.cpu(), x)
    out = torch.empty(0, device=device)
    torch.sinc(x.to(device), out=out)
    assert torch.equal(out.cpu(), torch.sinc(x))


def test_large_copies_are_exact(device):
    x = torch.arange(3 << 20, dtype=torch.int32)
    assert torch.equal(x.to(device).cpu(), x)
    assert torch.equal(x.to(device)[1::3].cpu(), x[1::3])


def test_copy_of_other_devices_is_refused(device):
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.ones(2, device=device).copy_(torch.ones(2, device="meta"))
