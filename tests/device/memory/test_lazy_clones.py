"""Copy-on-write clones (``torch._lazy_clone``): a write allocates memory first, a read allocates none (E31)."""

import pytest
import torch

is_lazy = torch._C._is_cow_tensor


def sparse_values(x):
    """The values of a tensor in CSR layout, changed in place."""
    rows = torch.arange(x.numel() + 1, device=x.device)
    columns = torch.zeros(x.numel(), dtype=torch.int64, device=x.device)
    csr = torch.sparse_csr_tensor(rows, columns, x.view(-1), (x.numel(), 1))
    return csr.mul_(3)


WRITES = {
    "fill_": lambda x: x.fill_(3),
    "fill_ of a view": lambda x: x.t()[::2].fill_(3),
    "zero_": lambda x: x.zero_(),
    "copy_ from the host": lambda x: x.copy_(torch.zeros(4, 4)),
    "copy_ of another dtype": lambda x: x.copy_(torch.zeros(4, 4, dtype=torch.float16, device=x.device)),
    "copy_ into a view": lambda x: x.t().copy_(torch.zeros(4, 4, device=x.device)),
    "add_": lambda x: x.add_(1),
    "out=": lambda x: torch.add(x, 1, out=x),
    "masked_fill_": lambda x: x.masked_fill_(x > 0, 5.0),
    "scatter_": lambda x: x.scatter_(0, torch.zeros(1, 1, dtype=torch.long, device=x.device), 7.0),
    "index_put_": lambda x: x.index_put_((torch.tensor([0], device=x.device),), torch.tensor(4.0, device=x.device)),
    "index_add_": lambda x: x.index_add_(0, torch.tensor([0], device=x.device), torch.ones(1, 4, device=x.device)),
    "exponential_": lambda x: x.exponential_(),
    "normal_": lambda x: x.normal_(3.0),
    "erfinv_ of a view": lambda x: x[1:].erfinv_(),
    "cumsum(out=)": lambda x: torch.cumsum(torch.ones(4, 4, device=x.device), 0, out=x),
    "gather(out=)": lambda x: torch.gather(x * 2, 0, torch.zeros(4, 4, dtype=torch.int64, device=x.device), out=x),
    "sort(out=)": lambda x: torch.sort(3 - x, 0, out=(x, torch.zeros(4, 4, dtype=torch.int64, device=x.device))),
    "a list": lambda x: torch._amp_foreach_non_finite_check_and_unscale_(
        [x], torch.zeros(1, device=x.device), torch.full((1,), 3.0, device=x.device)
    ),
    "the values of a sparse tensor": sparse_values,
    "resize_": lambda x: x.resize_(8, 8).fill_(2),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
@pytest.mark.parametrize("end", ["clone", "original"])
def test_E31_a_write_does_not_change_what_shares_the_memory(device, write, end):
    original = torch.ones(4, 4, device=device)
    clone = torch._lazy_clone(original)
    written, other = (clone, original) if end == "clone" else (original, clone)
    write(written)
    assert torch.equal(other.cpu(), torch.ones(4, 4))
    assert not torch.equal(written.cpu(), other.cpu())


READS = {
    "add": lambda x: x + 1,
    "sum": lambda x: x.sum(),
    "matmul": lambda x: x @ x,
    "sort": lambda x: x.sort(),
    "digamma": torch.digamma,
    "cpu": lambda x: x.cpu(),
    "contiguous": lambda x: x.t().contiguous(),
    "half": lambda x: x.half(),
    "item": lambda x: x[0, 0].item(),
    "cat": lambda x: torch.cat([x, x]),
    "gather": lambda x: x.gather(0, torch.zeros(4, 4, dtype=torch.int64, device=x.device)),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_E31_a_read_allocates_no_memory(device, read):
    original = torch.ones(4, 4, device=device)
    clone = torch._lazy_clone(original)
    read(clone)
    assert is_lazy(clone)
    assert is_lazy(original)


@pytest.mark.requires("multi_device")
@pytest.mark.parametrize("write", ["fill_", "add_", "copy_ of another dtype", "masked_fill_", "normal_", "out="])
def test_the_memory_of_a_write_is_allocated_on_the_tensors_device(device_module, name, write):
    original = torch.ones(4, 4, device=f"{name}:1")
    clone = torch._lazy_clone(original)
    before = device_module.memory_allocated(1)
    assert device_module.current_device() == 0
    WRITES[write](clone)
    device_module.synchronize(1)
    assert device_module.memory_allocated(1) > before
    assert clone.device.index == 1
    assert torch.equal(original.cpu(), torch.ones(4, 4))


def test_they_keep_the_lazy_bits(device):
    x = torch.tensor([1 + 2j, 3 - 1j], device=device)
    conjugate = torch._lazy_clone(x.conj())
    assert torch.equal(conjugate.cpu(), x.cpu().conj().resolve_conj())
    conjugate.mul_(2)
    assert torch.equal(x.cpu(), torch.tensor([1 + 2j, 3 - 1j]))
