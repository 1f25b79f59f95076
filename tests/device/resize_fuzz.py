"""Random programs of resize_, set_ and out= on a device with little memory: started by test_resize.py with a seed and
a number of steps. A resize_ or set_ that fails leaves every tensor as it was; no tensor is ever larger than its
storage; nobody else's bytes change. Prints how many calls were refused.
"""

from __future__ import annotations

import random
import sys
import warnings

import torch

name, seed, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
device = torch.device(name, 0)
choose = random.Random(seed)
SIZES = [0, 1, 100, 5000, 1 << 16, 1 << 18, 1 << 20, 3 << 20, 6 << 20]
warnings.simplefilter("ignore")


def shape() -> tuple[int, ...]:
    count = choose.choice(SIZES)
    return (count,) if choose.random() < 0.5 else (2, count // 2)


def layout(tensor: torch.Tensor) -> tuple[object, ...]:
    storage = tensor.untyped_storage()
    parts = (tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
    return (*parts, storage.nbytes(), storage.data_ptr(), tensor.dtype, tensor.is_conj())


def last_byte(tensor: torch.Tensor) -> int:
    if tensor.numel() == 0:
        return 0
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (tensor.storage_offset() + reach + 1) * tensor.element_size()


def foreign(count: int) -> torch.Tensor:
    """A tensor whose storage cannot be resized."""
    return torch.from_dlpack(torch.zeros(count, device=device))


def resize(x: torch.Tensor, _: torch.Tensor) -> None:
    if x.dim() == 4:
        x.resize_(1, 2, choose.choice(SIZES), 1, memory_format=torch.channels_last)
    else:
        x.resize_(shape())


def resize_storage(x: torch.Tensor, _: torch.Tensor) -> None:
    storage = x.untyped_storage()
    sharing = [t for t in tensors if t.untyped_storage().data_ptr() == storage.data_ptr()]
    storage.resize_(max(last_byte(t) for t in sharing) + choose.choice(SIZES))


def set_storage(x: torch.Tensor, y: torch.Tensor) -> None:
    stride = (choose.choice([0, 1, 3]),)
    x.set_(y.untyped_storage(), choose.choice([0, 7, -1]), (choose.choice(SIZES),), stride)


def set_tensor(x: torch.Tensor, y: torch.Tensor) -> None:
    x.set_(y)


def set_whole(x: torch.Tensor, y: torch.Tensor) -> None:
    x.set_(y.untyped_storage())


def kernel_out(x: torch.Tensor, _: torch.Tensor) -> None:
    torch.add(torch.zeros(1, device=device).expand(shape()), 1, out=x)


def fallback_out(x: torch.Tensor, _: torch.Tensor) -> None:
    torch.special.bessel_j0(torch.zeros(min(choose.choice(SIZES), 1 << 20), device=device), out=x)


def factory_out(x: torch.Tensor, _: torch.Tensor) -> None:
    function = choose.choice([torch.arange, torch.rand, torch.zeros, lambda n, out: torch.linspace(0, 1, n, out=out)])
    function(choose.choice(SIZES), out=x)


def cat_out(x: torch.Tensor, y: torch.Tensor) -> None:
    torch.cat([y.detach().reshape(-1)[:1000], torch.ones(choose.choice(SIZES), device=device)], out=x)


def copy_and_resize(x: torch.Tensor, _: torch.Tensor) -> None:
    torch.ops.aten._copy_from_and_resize(torch.ones(choose.choice(SIZES)), x)


ALONE = [resize, resize_storage, set_storage, set_tensor, set_whole]
CALLS = [*ALONE, resize, kernel_out, fallback_out, factory_out, cat_out, copy_and_resize]
refused = 0
tensors, neighbours = [], []
for count in (64, 100, 1000, 4000, 1 << 16):
    tensors.append(torch.zeros(count, device=device))
    neighbours.append(torch.zeros(count, device=device))
tensors.append(foreign(64))
for step in range(steps):
    for neighbour in neighbours:
        neighbour.fill_(step)
    x, y = choose.sample(tensors, 2)
    call = choose.choice(CALLS)
    before = [layout(tensor) for tensor in tensors]
    where = f"seed {seed}, step {step}, {call.__name__}"
    reason = ""
    try:
        call(x, y)
    except RuntimeError as error:  # OutOfMemoryError is one
        reason = str(error)
        refused += 1
    if reason and call in ALONE:  # an out= may have been resized when another part of the operator fails
        after = [layout(tensor) for tensor in tensors]
        assert after == before, f"{where}: {reason}\n{before}\n{after}"
    for tensor in tensors:
        assert last_byte(tensor) <= tensor.untyped_storage().nbytes(), f"{where}: {layout(tensor)}"
        if tensor.stride() != (0,):
            tensor.fill_(-1)
    for neighbour in neighbours:
        assert set(neighbour.tolist()) == {step}, where
    if choose.random() < 0.3 or step % 50 == 49:
        tensors[choose.randrange(len(tensors))] = (
            torch.zeros(choose.choice(SIZES[1:4]), device=device) if choose.random() < 0.8 else foreign(64)
        )
torch.accelerator.synchronize()
print(refused)
