"""bool tensors whose bytes are not 0 or 1: all but 0 is true, as on the CPU, in every kernel that reads one."""

import pytest
import torch

BYTES = [2, 0, 255, 1, 128, 0]

BOOLS = {
    "eq": lambda b, o: b == o,
    "ne": lambda b, o: b != o,
    "eq scalar": lambda b, o: b == True,  # noqa: E712
    "lt": lambda b, o: b < o,
    "le": lambda b, o: b <= o,
    "gt": lambda b, o: b > o,
    "ge": lambda b, o: b >= o,
    "and": lambda b, o: b & o,
    "or": lambda b, o: b | o,
    "xor": lambda b, o: b ^ o,
    "not": lambda b, o: ~b,
    "logical_not": lambda b, o: b.logical_not(),
    "add": lambda b, o: b + o,
    "add itself": lambda b, o: b + b,
    "add number": lambda b, o: b + 2,
    "mul": lambda b, o: b * o,
    "mul number": lambda b, o: b * 3,
    "div": lambda b, o: b / 2,
    "maximum": lambda b, o: torch.maximum(b, o),
    "minimum": lambda b, o: torch.minimum(b, ~o),
    "where": lambda b, o: torch.where(b, 1.5, -1.5),
    "where of bools": lambda b, o: torch.where(o, b, ~b),
    "sum": lambda b, o: b.sum(),
    "sum in float": lambda b, o: b.sum(dtype=torch.float32),
    "sum of columns": lambda b, o: b.view(-1, 2).sum(0),
    "mean": lambda b, o: b.mean(dtype=torch.float32),
    "amax": lambda b, o: b.amax(),
    "amin": lambda b, o: b.view(-1, 3).amin(1),
    "any": lambda b, o: b.any(),
    "all": lambda b, o: b.view(-1, 2).all(1),
    "argmax": lambda b, o: b.int().argmax(),
    "to int64": lambda b, o: b.to(torch.int64),
    "to float16": lambda b, o: b.to(torch.float16),
    "to uint8": lambda b, o: b.to(torch.uint8),
    "strided to int32": lambda b, o: b[::2].to(torch.int32),
    "copy": lambda b, o: torch.zeros_like(o).copy_(b),
    "strided copy": lambda b, o: torch.zeros(*b.shape, 2, dtype=torch.bool, device=b.device)[:, 0].copy_(b),
    "clone": lambda b, o: b.clone(),
    "contiguous": lambda b, o: b[::2].contiguous(),
    "cat": lambda b, o: torch.cat([b, o]),
    "gather": lambda b, o: b.gather(0, torch.tensor([2, 0, 1], device=b.device)),
    "index_select": lambda b, o: b.index_select(0, torch.tensor([2, 0, 1], device=b.device)),
    "index": lambda b, o: b[torch.tensor([2, 0], device=b.device)],
    "mask": lambda b, o: torch.arange(b.numel(), device=b.device)[b],
    "masked_fill": lambda b, o: torch.arange(float(b.numel()), device=b.device).masked_fill(b, -1),
    "masked_fill_": lambda b, o: torch.arange(float(b.numel()), device=b.device).masked_fill_(b, -1),
    "fill_": lambda b, o: torch.zeros_like(o).fill_(b[2]),
    "nonzero": lambda b, o: b.nonzero(),
    "cumsum": lambda b, o: b.cumsum(0),
    "pow": lambda b, o: 2**b,
    "dropout's backward": lambda b, o: torch.ops.aten.native_dropout_backward(
        torch.ones(b.numel(), device=b.device), b, 2.0
    ),
}


def odd(device, times=1):
    return torch.tensor(BYTES * times, dtype=torch.uint8).to(device).view(torch.bool)


def truth(tensor):
    """A bool tensor's values, read as bytes."""
    return tensor.cpu().view(torch.uint8) != 0 if tensor.dtype is torch.bool else tensor.cpu()


@pytest.mark.parametrize("call", BOOLS.values(), ids=BOOLS)
def test_every_byte_other_than_0_is_true(device, call):
    times = 33  # 198 elements: whole vectors and a rest
    other = torch.tensor([True, False, True, True, False, True] * times)
    found = call(odd(device, times), other.to(device))
    expected = call(odd("cpu", times), other)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert torch.equal(truth(found), truth(expected))


@pytest.mark.kernels
def test_what_a_kernel_computes_of_bools_has_the_bytes_0_and_1(device):
    b = odd(device, 20)
    for result in (b & b, b | b, b + b, b * b, b == b, ~b, torch.maximum(b, b), b[::2].any(0)):
        assert set(result.view(torch.uint8).flatten().tolist()) <= {0, 1}


def test_their_values_in_python(device):
    b = odd(device)
    assert b.tolist() == [True, False, True, True, True, False]
    assert [int(x.item()) for x in b] == [1, 0, 1, 1, 1, 0]
    assert (b.sum().item(), (b * 3).tolist()) == (4, [3, 0, 3, 3, 3, 0])
