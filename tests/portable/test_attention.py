"""Fused attention of batches and its gradient, against a plain formula in float64."""

import pytest
import torch

from portable.compare import each, on
from torch_backplane import compiler, fallback

ATTENTION = "_scaled_dot_product_fused_attention_overrideable"
FLOATS = [torch.float32, torch.bfloat16, torch.float16]
TOLERANCE = {torch.float32: 3e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}
forward, backward = getattr(torch.ops.aten, ATTENTION), getattr(torch.ops.aten, f"{ATTENTION}_backward")


@pytest.fixture
def attend(ran):
    """``with attend(ATTENTION):`` the kernel computes where an item is a core; others compose what has many queries."""
    return ran if compiler.target().group_size == 1 else composed


def composed(kernel):
    return fallback.budget(calls=0)


def made(batch, heads, shared, queries, keys, size, dtype=torch.float32, is_transposed=False):
    """Query, key, value and a gradient; ``is_transposed``: (batch, length, heads, size) in memory."""
    shapes = [(batch, heads, queries, size), *[(batch, shared, keys, size)] * 2, (batch, heads, queries, size)]
    tensors = [torch.randn(one).to(dtype) for one in shapes]
    return [one.transpose(1, 2).contiguous().transpose(1, 2) if is_transposed else one for one in tensors]


def formula(query, key, value, grad, mask, is_causal, scale):
    query, key, value = (one.detach().double().requires_grad_() for one in (query, key, value))
    sharing = query.shape[1] // key.shape[1]
    scores = query @ key.repeat_interleave(sharing, 1).transpose(-1, -2) * (scale or query.shape[-1] ** -0.5)
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask.double()
    out = torch._safe_softmax(scores, -1) @ value.repeat_interleave(sharing, 1)
    found = torch.autograd.grad(out, (query, key, value), grad.double())
    return out.detach(), scores.detach().logsumexp(-1), *found


def check(device, attend, operands, mask=None, is_causal=False, scale=None):
    expected = formula(*operands, mask, is_causal, scale)
    query, key, value, grad = on(device, operands)
    mask = on(device, mask)
    with attend(ATTENTION):
        out, sums, *others = forward(query, key, value, mask, 0.0, is_causal, scale=scale)[:8]
    results, wanted = (out, sums, *others[:4]), [True, True, True, False]
    is_added = mask is not None and mask.dtype != torch.bool
    with (composed if is_added else attend)(f"{ATTENTION}_backward"):
        parts = backward(grad, query, key, value, mask, wanted, *results, 0.0, is_causal, *others[4:], scale=scale)
    for found, like in zip((out, *parts[:3]), (query, query, key, value), strict=True):
        assert (found.dtype, found.stride()) == (like.dtype, like.stride())
    tolerance = TOLERANCE[query.dtype]
    for found, wanted in zip((out, sums, *parts[:3]), expected, strict=True):
        torch.testing.assert_close(
            found.cpu().double(), wanted.nan_to_num(0, neginf=-torch.inf), rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("dtype", each(FLOATS))
@pytest.mark.parametrize(("queries", "keys"), [(1, 5), (9, 64), (2, 70), (63, 65), (64, 64), (130, 3), (100, 190)])
@pytest.mark.parametrize("is_causal", [False, True], ids=["", "causal"])
def test_K16_lengths_around_a_tile(device, attend, dtype, queries, keys, is_causal):
    few = queries <= 4 and dtype == torch.float32  # products of few rows read a matrix without a copy
    check(device, composed if few else attend, made(2, 4, 2, queries, keys, 40, dtype), is_causal=is_causal)


MASKS = {
    "added": torch.randn(2, 4, 70, 90),
    "added, of one head": torch.randn(70, 90),
    "added, turned": torch.randn(90, 70).t(),
    "added, of keys": torch.randn(2, 1, 1, 90),
    "added, the least number in rows": torch.zeros(70, 90).index_fill(
        0, torch.arange(5), torch.finfo(torch.float32).min
    ),
    "bool": torch.rand(2, 4, 70, 90) > 0.4,
    "bool, of keys": torch.rand(2, 1, 1, 90) > 0.4,
    "bool, of heads and keys": torch.rand(1, 4, 1, 90) > 0.4,
    "bool, of queries": torch.rand(2, 1, 70, 1) > 0.4,
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("shared", [4, 2])
def test_K16_masks(device, attend, mask, shared):
    """Of rows without a visible key the result and its gradients are 0, and the logarithm is minus infinity."""
    if mask.dtype == torch.bool:
        mask = mask.clone()
        mask[..., :2, :] = mask[..., :2, :] & (mask.shape[-2] == 1)
    check(device, attend, made(2, 4, shared, 70, 90, 24), mask)


@pytest.mark.parametrize("size", [1, 8, 72, 128, 256])
def test_K16_sizes_of_heads(device, attend, size):
    check(device, attend, made(1, 2, 2, 33, 50, size), scale=0.25)


@pytest.mark.parametrize(("heads", "shared"), [(6, 2), (8, 1), (3, 3), (96, 1)])
def test_K16_shared_heads_and_layouts(device, attend, heads, shared):
    check(device, attend, made(2, heads, shared, 20, 70, 16, is_transposed=True), is_causal=True)


def test_K16_gradients_that_are_views(device):
    """Of a sum the gradient is one number for all."""
    leaves = [one.to(device).requires_grad_() for one in made(1, 2, 2, 20, 30, 8)[:3]]
    same = [one.detach().cpu().double().requires_grad_() for one in leaves]
    for these in (leaves, same):
        torch.nn.functional.scaled_dot_product_attention(*these).sum().backward()
    for one, other in zip(leaves, same, strict=True):
        torch.testing.assert_close(one.grad.cpu().double(), other.grad, rtol=3e-5, atol=3e-5)


def test_K16_a_query_that_is_not_finite_leaves_the_others_as_they_are(device):
    query, key, value, _ = (one.to(device) for one in made(1, 1, 1, 70, 70, 8))
    query[0, 0, 3, 2] = torch.nan
    out = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True).cpu()[0, 0]
    assert out.isnan().any(1).nonzero().tolist() == [[3]]


@pytest.mark.parametrize("position", range(3), ids=["query", "key", "value"])
def test_K16_an_operand_that_overlaps_itself(device, position):
    """A dense result in the order of its strides has another innermost dimension."""
    operands = made(1, 2, 2, 4, 4, 8, torch.float16)
    operands[position] = torch.randn(1, 2, 11).half().unfold(-1, 8, 1)
    expected = formula(*operands, None, False, None)
    query, key, value, grad = (one.detach().requires_grad_() for one in on(device, operands))
    rows = torch.randn(1, 2, 11, dtype=torch.float16, device=device)
    rows.copy_(operands[position].as_strided((1, 2, 11), (22, 11, 1)))
    given = [query, key, value]
    given[position] = rows.unfold(-1, 8, 1).detach().requires_grad_()
    out = torch.nn.functional.scaled_dot_product_attention(*given)
    found = out, *torch.autograd.grad(out, given, grad)
    for one, wanted in zip(found, (expected[0], *expected[2:]), strict=True):
        torch.testing.assert_close(one.detach().cpu().double(), wanted, rtol=4e-3, atol=4e-3)
