"""Attention in torch.compile: the device's own operator for scaled_dot_product_attention, a formula for flex_attention.

What is computed is held against the formula in float64 on the CPU.
"""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.utils import counters
from torch._inductor.exc import InductorError
from torch._inductor.utils import run_and_get_code
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

from portable.compare import each, real
from torch_backplane.inductor import triton

OPERATOR = "torch.ops.aten._scaled_dot_product_fused_attention_overrideable"
KERNEL = "generated_kernel(async_compile"
pytestmark = pytest.mark.usefixtures("each_compiles")


@pytest.fixture
def without_triton(monkeypatch):
    """The formula, also where Triton is installed, whose templates would compute it."""
    monkeypatch.setattr(triton, "why_none", lambda: "not in this test")


def compared(function, formula, arguments, device, tolerance, compiles=True):
    """Results and gradients of a function of the device, against a formula of the CPU in float64; what it generated."""
    exact = [one.double() if one.is_floating_point() else one.clone() for one in arguments]
    moved = [one.to(device) for one in arguments]
    for ours, theirs in zip(moved, exact, strict=True):
        if ours.is_floating_point():
            ours.requires_grad_()
            theirs.requires_grad_()
    wanted = results_and_gradients(formula, exact)
    if compiles:
        got, code = run_and_get_code(results_and_gradients, torch.compile(function), moved)
    else:
        got, code = results_and_gradients(function, moved), []
    for ours, theirs in zip(got, wanted, strict=True):
        assert ours.device.type == device.type
        torch.testing.assert_close(ours.cpu().double(), theirs, rtol=tolerance, atol=tolerance)
    return code


def results_and_gradients(function, arguments):
    results = function(*arguments)
    results = [results] if isinstance(results, torch.Tensor) else list(results)
    terms = [(one * weights(one)).sum() for one in results if one.requires_grad]
    sum(terms).backward()
    return [one.detach() for one in results] + [one.grad for one in arguments if one.requires_grad]


def weights(like):
    return torch.linspace(-1, 1, like.numel(), dtype=torch.float64).view_as(like).to(like)


# ---- scaled_dot_product_attention


def qkv(query=(2, 4, 9, 16), key=(2, 4, 13, 16), dtype=torch.float32):
    return [real(*query, dtype=dtype), real(*key, dtype=dtype), real(*key, dtype=dtype)]


def lower_left(rows, columns):
    mask = torch.rand(rows, columns) > 0.5
    mask[:, 0] = True
    return mask


def attention(q, k, v, mask=None, **settings):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **settings)


FUSED = {
    "plain": (attention, qkv, 1e-5),
    "between other operators": (lambda q, k, v: attention(q * 2, k + 1, v.sin()).relu(), qkv, 1e-4),
    "causal": (partial(attention, is_causal=True, scale=0.3), lambda: qkv(key=(2, 4, 9, 16)), 1e-5),
    "bool mask": (attention, lambda: [*qkv(), lower_left(9, 13)], 1e-5),
    "bias with a gradient": (attention, lambda: [*qkv(), real(9, 13)], 1e-5),
    "grouped queries": (partial(attention, enable_gqa=True), lambda: qkv(key=(2, 2, 13, 16)), 1e-5),
    "bfloat16": (attention, lambda: qkv(dtype=torch.bfloat16), 3e-2),
}


@pytest.mark.parametrize("case", each(FUSED, "plain", "bias with a gradient", "bfloat16"))
def test_fused_attention_is_the_devices_operator(device, case):
    function, make, tolerance = FUSED[case]
    code = compared(function, function, make(), device, tolerance)
    assert OPERATOR + ".default" in code[0]
    assert OPERATOR + "_backward.default" in code[1]


def test_fused_attention_drops_what_eager_drops(device):
    operands = [one.to(device).requires_grad_() for one in qkv()]

    def call(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)

    found = []
    for function in (call, torch.compile(call)):
        torch.manual_seed(5)
        out = function(*operands)
        found.append([out.detach(), *torch.autograd.grad(out.square().sum(), operands)])
    for ours, eager in zip(*found, strict=True):
        torch.testing.assert_close(ours, eager)


def test_fused_attention_of_other_lengths_compiles_once(device):
    counters.clear()
    compiled = torch.compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v).relu(), dynamic=True)
    for length in (33, 70):
        q, k, v = qkv((1, 2, length, 16), (1, 2, length + 5, 16))
        wanted = F.scaled_dot_product_attention(q.double(), k.double(), v.double()).relu()
        got = compiled(q.to(device), k.to(device), v.to(device))
        torch.testing.assert_close(got.cpu().double(), wanted, rtol=1e-4, atol=1e-4)
    assert counters["stats"]["unique_graphs"] == 1


# ---- flex_attention


def plain(score, b, h, i, j):
    return score


def anywhere(b, h, i, j):
    return j >= 0


def causal(b, h, i, j):
    return i >= j


def formula(q, k, v, score_mod=plain, mask_mod=anywhere, scale=None):
    """Output, logarithms of sums, and largest scores."""
    heads = q.size(1) // k.size(1)
    k, v = k.repeat_interleave(heads, 1), v.repeat_interleave(heads, 1)
    scores = q @ k.transpose(-2, -1) * (scale or q.size(-1) ** -0.5)
    places = [torch.arange(n).view([-1 if i == d else 1 for i in range(4)]) for d, n in enumerate(scores.shape)]
    scores = torch.where(mask_mod(*places), score_mod(scores, *places), -torch.inf)
    weights = scores.softmax(-1).nan_to_num()
    return weights @ v, scores.logsumexp(-1), scores.amax(-1)


def block_mask(mask_mod, q, k):
    return create_block_mask(mask_mod, None, None, q.size(-2), k.size(-2), device=q.device, BLOCK_SIZE=32)


def both(score_mod=None, mask_mod=None, **settings):
    """A call of flex_attention and its formula; the modifications are made of the tensors behind q, k, v."""

    def call(q, k, v, *captured):
        return flex_attention(
            q,
            k,
            v,
            score_mod=score_mod(*captured) if score_mod else None,
            block_mask=block_mask(mask_mod(*captured), q, k) if mask_mod else None,
            **settings,
        )

    def exact(q, k, v, *captured):
        return formula(
            q,
            k,
            v,
            score_mod(*captured) if score_mod else plain,
            mask_mod(*captured) if mask_mod else anywhere,
            settings.get("scale"),
        )[0]

    return call, exact


FLEX = {
    "plain": (*both(), qkv, 1e-5),
    "values of another size": (
        *both(scale=0.2),
        lambda: [real(1, 2, 9, 8), real(1, 2, 13, 8), real(1, 2, 13, 20)],
        1e-5,
    ),
    "by distance": (
        *both(lambda: lambda score, b, h, i, j: score - (i - j).abs() * 0.1 * (h + 1)),
        qkv,
        1e-4,
    ),
    "capped": (*both(lambda: lambda score, b, h, i, j: torch.tanh(score / 2) * 2), qkv, 1e-4),
    "learned slopes": (
        *both(lambda slope: lambda score, b, h, i, j: score + slope[h] * (j - i)),
        lambda: [*qkv(), real(4) * 0.1],
        1e-3,
    ),
    "slopes that are not learned": (
        *both(lambda slope: lambda score, b, h, i, j: score + slope[h] * (j - i)),
        lambda: [*qkv(), torch.tensor([0, 1, -1, 2])],
        1e-4,
    ),
    "learned relative positions": (
        *both(lambda bias: lambda score, b, h, i, j: score + bias[h, i - j + 12]),
        lambda: [*qkv(), real(4, 21)],
        1e-4,
    ),
    "causal": (*both(None, lambda: causal), lambda: qkv((2, 2, 70, 16), (2, 2, 70, 16)), 1e-4),
    "sliding window": (
        *both(None, lambda: lambda b, h, i, j: (i >= j) & (i - j <= 5)),
        lambda: qkv((1, 2, 64, 16), (1, 2, 64, 16)),
        1e-4,
    ),
    "documents": (
        *both(None, lambda document: lambda b, h, i, j: (document[i] == document[j]) & causal(b, h, i, j)),
        lambda: [*qkv((1, 2, 64, 16), (1, 2, 64, 16)), torch.arange(64) // 11],
        1e-4,
    ),
    "rows without a place": (
        *both(None, lambda: lambda b, h, i, j: (i >= 3) & (j < 7)),
        lambda: qkv((1, 2, 32, 16), (1, 2, 32, 16)),
        1e-4,
    ),
    "grouped queries, mask and bias": (
        *both(
            lambda bias: lambda score, b, h, i, j: score + bias[h, i],
            lambda bias: causal,
            enable_gqa=True,
        ),
        lambda: [*qkv((2, 4, 40, 16), (2, 2, 40, 16)), real(4, 40)],
        1e-4,
    ),
    "bfloat16": (
        *both(lambda: lambda score, b, h, i, j: score * 1.5, lambda: causal),
        lambda: qkv((1, 2, 40, 16), (1, 2, 40, 16), dtype=torch.bfloat16),
        4e-2,
    ),
    "float64": (*both(None, lambda: causal), lambda: qkv((1, 2, 40, 8), (1, 2, 40, 8), dtype=torch.float64), 1e-6),
}


@pytest.mark.parametrize("case", each(FLEX, "plain", "learned slopes", "grouped queries, mask and bias", "bfloat16"))
@pytest.mark.usefixtures("without_triton")
def test_flex_attention_is_generated(device, case):
    call, exact, make, tolerance = FLEX[case]
    code = compared(call, exact, make(), device, tolerance)
    assert all(KERNEL in text and "extern_kernels.bmm" in text for text in code)


@pytest.mark.parametrize("case", each(["learned slopes", "causal"]))
def test_flex_attention_runs_eagerly(device, case):
    call, exact, make, tolerance = FLEX[case]
    compared(call, exact, make(), device, tolerance, compiles=False)


def test_flex_attention_gives_sums_and_extremes(device):
    def call(q, k, v):
        out, aux = flex_attention(q, k, v, return_aux=AuxRequest(lse=True, max_scores=True))
        return out, aux.lse, aux.max_scores.detach()

    def exact(q, k, v):
        out, sums, largest = formula(q, k, v)
        return out, sums, largest.detach()

    compared(call, exact, qkv(), device, 1e-4)


@pytest.mark.long
def test_flex_attention_of_other_lengths_compiles_once(device):
    def call(q, k, v):
        return flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score + (j - i) * 0.1)

    counters.clear()
    compiled = torch.compile(call, dynamic=True, fullgraph=True)
    for length in (33, 70):
        operands = qkv((1, 2, length, 16), (1, 2, length + 5, 16))
        moved = [one.to(device).requires_grad_() for one in operands]
        exact = [one.double().requires_grad_() for one in operands]
        wanted = formula(*exact, lambda score, b, h, i, j: score + (j - i) * 0.1)[0]
        got = compiled(*moved)
        torch.testing.assert_close(got.cpu().double(), wanted, rtol=1e-4, atol=1e-4)
        got.square().sum().backward()
        wanted.square().sum().backward()
        for ours, theirs in zip(moved, exact, strict=True):
            torch.testing.assert_close(ours.grad.cpu().double(), theirs.grad, rtol=1e-4, atol=1e-4)
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.usefixtures("without_triton")
def test_one_kernel_stands_between_the_products(device):
    def call(q, k, v):
        return flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: torch.where(i >= j, score, -torch.inf))

    operands = qkv((2, 2, 70, 16), (2, 2, 70, 16))
    with torch.no_grad():
        got, (code,) = run_and_get_code(torch.compile(call), *(one.to(device) for one in operands))
    wanted = formula(*(one.double() for one in operands), mask_mod=causal)[0]
    torch.testing.assert_close(got.cpu().double(), wanted, rtol=1e-4, atol=1e-4)
    assert (code.count(KERNEL), code.count("extern_kernels.bmm(")) == (1, 2)
    assert "_fused_flex_attention_" in code


def test_a_block_mask_is_made_outside_and_used_without_gradients(device):
    operands = qkv((2, 2, 70, 16), (2, 2, 70, 16))
    moved = [one.to(device) for one in operands]
    with torch.no_grad():
        got = torch.compile(flex_attention)(*moved, block_mask=block_mask(causal, *moved[:2]))
    wanted = formula(*(one.double() for one in operands), mask_mod=causal)[0]
    torch.testing.assert_close(got.cpu().double(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("compiles", [False, True], ids=["eager", "compiled"])
def test_autocast_makes_halves_of_the_operands(device, compiles):
    def call(q, k, v):
        with torch.autocast(device.type, torch.bfloat16):
            return flex_attention(q, k, v)

    operands = qkv()
    got = (torch.compile(call) if compiles else call)(*(one.to(device) for one in operands))
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(
        got.cpu().double(), formula(*(one.double() for one in operands))[0], rtol=3e-2, atol=3e-2
    )


@pytest.mark.parametrize("backend", ["TRITON", "FLASH"])
@pytest.mark.usefixtures("without_triton")
def test_a_backend_that_the_device_does_not_have_is_refused(device, backend):
    query = real(1, 1, 32, 16).to(device)

    def call(q, name=backend):
        return flex_attention(q, q, q, kernel_options={"BACKEND": name})

    refused = f'BACKEND="{backend}", which mydevice does not support'
    with pytest.raises(InductorError, match=refused):
        torch.compile(call)(query)
    for one in (query, query.clone().requires_grad_()):
        with pytest.raises(NotImplementedError, match=refused):
            call(one)
    assert torch.equal(call(query, "AUTO"), flex_attention(query, query, query))


def test_flex_attention_of_other_devices_is_as_it_was(device):
    """torch's own list still refuses what it does not know."""
    query = real(1, 1, 4, 8).requires_grad_()
    with pytest.raises(NotImplementedError, match="backward on CPU"):
        flex_attention(query, query, query)
    meta = torch.empty(1, 1, 4, 8, device="meta")
    with pytest.raises(ValueError, match="only supported on"):
        flex_attention(meta, meta, meta)
