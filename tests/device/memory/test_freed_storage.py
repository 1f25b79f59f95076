"""A tensor whose storage was freed: every operator raises in the call, and the device stays usable."""

import pytest
import torch

# x, z (with an offset), o (0-dim) and l (int64) have no memory; y has. One line for each kind of kernel.
READS = """
x + 1
z + 1
x.sum()
x.half()
x.clone()
x.cpu()
x.tolist()
x.to(second)
o.item()
repr(x)
x.softmax(0)
x.sinc()
x.nonzero()
x.to_sparse()
x.gather(0, index)
y.index_add_(0, index, x[:1])
x.view(2, 2).t().contiguous()
torch.mm(x.view(2, 2), y.view(2, 2))
torch.mm(z, y.view(2, 2))
torch.cat([y, x])
torch.where(y > 0, x, y)
torch.equal(x, y)
torch.nn.functional.layer_norm(x, (4,))
torch.nn.functional.dropout(x)
torch.nn.functional.embedding(index, x.view(2, 2))
torch.nn.functional.embedding(l, y.view(2, 2))
torch.nn.functional.conv1d(x.view(1, 1, 4), y.view(1, 1, 4))
torch.nn.functional.scaled_dot_product_attention(x.view(1, 1, 2, 2), y.view(1, 1, 2, 2), y.view(1, 1, 2, 2))
y.copy_(x)
torch.ones(4).copy_(x)
y[::2].copy_(x[::2])
torch._foreach_add([x], 1.0)
"""
WRITES = """
x.add_(1)
x.fill_(1)
x.view(2, 2)[:, :1].fill_(1)
x.uniform_()
x.sinc_()
x.copy_(y)
x.copy_(torch.ones(4))
x.copy_(torch.ones(4).pin_memory(), non_blocking=True)
x.copy_(torch.ones(4, dtype=torch.int64))
x.copy_(torch.ones(4, device=second))
x.masked_fill_(y > 0, 2.0)
x.index_add_(0, index, y[:1])
torch.add(y, 1, out=x)
torch.sinc(y, out=x)
torch.mm(y.view(2, 2), y.view(2, 2), out=x.view(2, 2))
torch.cat([y[:2], y[2:]], out=x)
torch.randn(4, out=x)
torch.randperm(4, out=l)
torch._foreach_add_([x], 1.0)
"""
PROGRAM = """
first, second = torch.device(d, 0), torch.device(d, m.device_count() - 1)
y, index = torch.ones(4, device=first), torch.tensor([0], device=first)

def freed():
    tensors = [torch.arange(4.0, device=first), torch.ones(6, device=first)[2:].view(2, 2)]
    tensors += [torch.ones((), device=first), torch.ones(4, dtype=torch.int64, device=first)]
    for tensor in tensors:
        tensor.untyped_storage().resize_(0)
    return tensors

for line in LINES:
    x, z, o, l = freed()
    try:
        eval(line)
        torch.accelerator.synchronize()
        print("no error:", line)
    except RuntimeError as error:
        text = str(error)
        if "not allocated yet" not in text and "out of bounds for storage" not in text and "unallocated" not in text:
            print(line, "->", text)
    assert (y + 1).tolist() == [2, 2, 2, 2], line
print("done")
"""


@pytest.mark.parametrize("lines", [READS, WRITES], ids=["reads", "writes"])
def test_E18_an_operator_on_a_storage_without_memory_raises(printed, device_module, lines):
    """In another process: what is not refused reads or writes at the address 0."""
    one = device_module.device_count() == 1
    tried = [line for line in lines.strip().splitlines() if not (one and "second" in line)]  # else it is the first
    assert printed(f"LINES = {tried}\n{PROGRAM}") == "done\n"


def test_E18_what_needs_no_memory_works(device):
    x = torch.arange(4.0, device=device)
    x.untyped_storage().resize_(0)
    assert torch.empty_like(x).shape == torch.zeros_like(x).shape == x.view(2, 2).flatten().shape
    assert x[:0].add_(1).numel() == 0
    assert x.detach().untyped_storage().nbytes() == 0
    assert x.set_().numel() == 0


@pytest.mark.parametrize("function", [lambda y, out: torch.add(y, 1, out=out), lambda y, out: torch.sinc(y, out=out)])
@pytest.mark.parametrize("size", [2, 9])
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_E18_an_out_without_memory_may_be_resized(device, function, size):
    x, y = torch.arange(4.0, device=device), torch.linspace(0, 1, size)
    x.untyped_storage().resize_(0)
    function(y.to(device), x)
    assert torch.equal(x.cpu(), function(y, torch.empty(0)))


def test_E18_a_storage_that_is_too_small_is_refused_by_copies_and_by_the_fallback(device):
    x, neighbour = torch.arange(1024.0, device=device), torch.zeros(64, device=device)
    x.untyped_storage().resize_(64)
    for call in (x.cpu, x.clone, x.sinc_, x.zero_, lambda: x.copy_(torch.ones(1024)), lambda: x[::2].copy_(x[1::2])):
        with pytest.raises(RuntimeError, match="out of bounds for storage of size 64"):
            call()
    assert x[:16].tolist() == list(range(16))
    assert neighbour.count_nonzero().item() == 0


def test_E18_a_host_tensor_without_memory_is_refused(device):
    x = torch.ones(4)
    x.untyped_storage().resize_(0)
    y = torch.ones(4, device=device)
    for call in (lambda: y.copy_(x), lambda: x.copy_(y), lambda: x.to(device)):
        with pytest.raises(RuntimeError, match="not allocated yet"):
            call()
