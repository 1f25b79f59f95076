"""The parts of a batch norm over several processes stay on the device, and are the CPU's batch norm of all elements."""

import pytest
import torch
import torch.nn.functional as F

from portable.compare import FLOATS
from torch_backplane import fallback

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-9, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def in_parts(parts, grads, weight, bias, running):
    """What torch.nn.SyncBatchNorm computes, with the processes' parts in one: results and gradients of all."""
    each = [torch.batch_norm_stats(part, 1e-5) for part in parts]
    mean, invstd = (torch.stack([pair[i] for pair in each]) for i in (0, 1))
    counts = torch.tensor([part.numel() / part.shape[1] for part in parts]).to(weight.device)
    mean, invstd = torch.batch_norm_gather_stats_with_counts(parts[0], mean, invstd, *running, 0.3, 1e-5, counts)
    outs = [torch.batch_norm_elemt(part, weight, bias, mean, invstd, 1e-5) for part in parts]
    sums = [
        torch.batch_norm_backward_reduce(grad, part, mean, invstd, weight, True, True, True)
        for grad, part in zip(grads, parts, strict=True)
    ]
    sum_dy, sum_dy_xmu, grad_weight, grad_bias = (sum(several[1:], several[0]) for several in zip(*sums, strict=True))
    args = (mean, invstd, weight.to(mean.dtype), sum_dy, sum_dy_xmu, counts.int())
    inputs = [torch.batch_norm_backward_elemt(grad, part, *args) for grad, part in zip(grads, parts, strict=True)]
    return [torch.cat(outs), torch.cat(inputs), grad_weight, grad_bias]


@pytest.mark.long_after_first
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_a_batch_norm_in_parts(device, dtype, memory_format):
    x, grad = (torch.randn(5, 4, 3, 6).to(dtype).contiguous(memory_format=memory_format) for _ in range(2))
    weight, bias, mean, var = torch.randn(4), torch.randn(4), torch.zeros(4), torch.ones(4)
    leaves = [t.double().requires_grad_() for t in (x, weight, bias)]
    running = [mean.double(), var.double()]
    expected = F.batch_norm(leaves[0], *running, *leaves[1:], training=True, momentum=0.3)
    expected = [expected.detach(), *torch.autograd.grad(expected, leaves, grad.double())]

    ours = [mean.to(device), var.to(device)]
    placed = [t.to(device).split([2, 3]) for t in (x, grad)]
    with fallback.budget(calls=0):
        found = in_parts(*placed, weight.to(device), bias.to(device), ours)
    for a, b, of in zip([*found, *ours], [*expected, *running], [dtype] * 4 + [torch.float32] * 2, strict=True):
        scale = b.abs().max().item()
        tolerance = max(TOLERANCE[of], TOLERANCE[torch.float32])
        torch.testing.assert_close(a.cpu().double(), b, rtol=tolerance, atol=tolerance * scale)


def test_update_stats(device):
    x, mean, var = torch.randn(5, 4, 3), torch.zeros(4), torch.ones(4)
    ours = [mean.to(device), var.to(device)]
    y = x.to(device)
    with fallback.budget(calls=0):
        found = torch.batch_norm_update_stats(y, *ours, 0.3)
    expected = torch.batch_norm_update_stats(x, mean, var, 0.3)
    for a, b in zip([*found, *ours], [*expected, mean, var], strict=True):
        torch.testing.assert_close(a.cpu(), b)
