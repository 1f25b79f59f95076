"""flex_attention under torch.compile: torch's Triton templates, beside kernels of the dialect.

Values and gradients are held against the formula in float64 on the CPU.
"""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch._inductor import config as settings
from torch._inductor.exc import InductorError
from torch._inductor.utils import run_and_get_code
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

from torch_backplane.inductor import choices

DEVICE = torch.device("mydevice")
TEMPLATE = "async_compile.triton('triton_tem"
PRODUCT = "extern_kernels.bmm"


@pytest.fixture(autouse=True)
def compiles_each():
    torch._dynamo.reset()
    torch.manual_seed(0)
    with settings.patch(force_disable_caches=True):
        yield
    torch._dynamo.reset()


def causal(b, h, i, j):
    return i >= j


def exact(q, k, v, score_mod=None, mask_mod=None):
    """Output, logarithms of sums, and largest scores."""
    heads = q.size(1) // k.size(1)
    k, v = k.repeat_interleave(heads, 1), v.repeat_interleave(heads, 1)
    scores = q @ k.transpose(-2, -1) * q.size(-1) ** -0.5
    places = [torch.arange(n).view([-1 if i == d else 1 for i in range(4)]) for d, n in enumerate(scores.shape)]
    if score_mod:
        scores = score_mod(scores, *places)
    if mask_mod:
        scores = torch.where(mask_mod(*places), scores, -torch.inf)
    return scores.softmax(-1).nan_to_num() @ v, scores.logsumexp(-1), scores.amax(-1)


def block_mask(mask_mod, q, k, size=32):
    return create_block_mask(mask_mod, None, None, q.size(-2), k.size(-2), device=q.device, BLOCK_SIZE=size)


@dataclass
class Case:
    query: tuple[int, ...] = (1, 2, 40, 16)
    key: tuple[int, ...] = (1, 2, 40, 16)
    score_mod: Any = None  # of a captured tensor
    mask_mod: Any = None
    captured: tuple[int, ...] | None = None
    dtype: torch.dtype = torch.float32
    tolerance: float = 1e-4

    def operands(self):
        shapes = [self.query, self.key, self.key, *([self.captured] if self.captured else [])]
        return [torch.randn(shape, dtype=self.dtype) for shape in shapes]


CASES = {
    "plain": Case(key=(1, 2, 50, 16)),
    "by distance": Case(score_mod=lambda: lambda score, b, h, i, j: score - (i - j).abs() * 0.1 * (h + 1)),
    "causal": Case(query=(1, 2, 70, 16), key=(1, 2, 70, 16), mask_mod=causal),
    "rows without a place": Case(mask_mod=lambda b, h, i, j: (i >= 3) & (j < 7)),
    "grouped queries, mask and a learned bias": Case(
        query=(2, 4, 40, 16),
        key=(2, 2, 40, 16),
        score_mod=lambda bias: lambda score, b, h, i, j: score + bias[h, i],
        mask_mod=causal,
        captured=(4, 40),
    ),
    "bfloat16": Case(
        score_mod=lambda: lambda score, b, h, i, j: score * 1.5, mask_mod=causal, dtype=torch.bfloat16, tolerance=4e-2
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_F24_flex_attention_is_a_template_with_gradients(name):
    case = CASES[name]
    operands = case.operands()
    ours = [one.to(DEVICE).requires_grad_() for one in operands]
    theirs = [one.double().requires_grad_() for one in operands]
    mask = block_mask(case.mask_mod, *ours[:2]) if case.mask_mod else None

    def call(q, k, v, *captured):
        score_mod = case.score_mod(*captured) if case.score_mod else None
        return flex_attention(q, k, v, score_mod=score_mod, block_mask=mask, enable_gqa=q.size(1) != k.size(1))

    def step():
        out = torch.compile(call, fullgraph=True)(*ours)
        (out * weights(out)).sum().backward()
        return out

    def weights(like):
        return torch.linspace(-1, 1, like.numel()).view_as(like).to(like)

    got, code = run_and_get_code(step)
    assert [text.count(TEMPLATE) for text in code] == [1, 1]
    assert not any(PRODUCT in text for text in code)
    wanted = exact(*theirs[:3], case.score_mod(*theirs[3:]) if case.score_mod else None, case.mask_mod)[0]
    (wanted * weights(wanted)).sum().backward()
    pairs = [(got.detach(), wanted.detach()), *((a.grad, b.grad) for a, b in zip(ours, theirs, strict=True))]
    for one, other in pairs:
        torch.testing.assert_close(one.cpu().double(), other, rtol=5 * case.tolerance, atol=5 * case.tolerance)


def test_F24_excluded_blocks_are_not_visited():
    """Not a number in keys and values that no query sees: a product with it, even by a weight of 0, would show."""
    operands = [torch.randn(1, 2, 128, 16) for _ in range(3)]
    ours = [one.to(DEVICE) for one in operands]
    mask = block_mask(lambda b, h, i, j: j < 64, *ours[:2])
    with torch.no_grad():
        for one in ours[1:]:
            one[:, :, 64:] = torch.nan
    for one in ours:
        one.requires_grad_()
    out = torch.compile(flex_attention, fullgraph=True)(*ours, block_mask=mask)
    out.sum().backward()
    torch.testing.assert_close(
        out.detach().cpu().double(),
        exact(*(one[:, :, : 64 if at else None].double() for at, one in enumerate(operands)))[0],
        rtol=1e-4,
        atol=1e-4,
    )
    assert ours[0].grad.cpu().isfinite().all()
    assert all(one.grad[:, :, :64].cpu().isfinite().all() for one in ours[1:])
    assert not flex_attention(*(one.detach() for one in ours), block_mask=mask).cpu().isfinite().any()  # the formula


def test_sums_and_extremes():
    operands = [torch.randn(1, 2, 40, 16) for _ in range(3)]

    def call(q, k, v):
        out, aux = flex_attention(q, k, v, return_aux=AuxRequest(lse=True, max_scores=True))
        return out, aux.lse, aux.max_scores

    got = torch.compile(call, fullgraph=True)(*(one.to(DEVICE) for one in operands))
    for one, other in zip(got, exact(*(one.double() for one in operands)), strict=True):
        torch.testing.assert_close(one.cpu().double(), other, rtol=1e-4, atol=1e-4)


def test_lengths_may_vary():
    counters.clear()
    compiled = torch.compile(
        lambda q, k, v: flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + (j - i) * 0.1) * 2,
        dynamic=True,
        fullgraph=True,
    )
    for length in (33, 70):
        operands = [torch.randn(1, 2, length + more, 16) for more in (0, 5, 5)]
        wanted = exact(*(one.double() for one in operands), lambda s, b, h, i, j: s + (j - i) * 0.1)[0] * 2
        got = compiled(*(one.to(DEVICE) for one in operands))
        torch.testing.assert_close(got.cpu().double(), wanted, rtol=1e-4, atol=1e-4)
    assert counters["stats"]["unique_graphs"] == 1


def run(options=None, dtype=torch.float32, head=16, blocks=32):
    operands = [torch.randn(1, 1, 64, head, dtype=dtype) for _ in range(3)]
    ours = [one.to(DEVICE) for one in operands]
    mask = block_mask(causal, *ours[:2], blocks)

    def call(q, k, v):
        return flex_attention(q, k, v, block_mask=mask, kernel_options=options)

    got, (code,) = run_and_get_code(torch.compile(call, fullgraph=True), *ours)
    wanted = exact(*(one.double() for one in operands), None, causal)[0]
    torch.testing.assert_close(got.cpu().double(), wanted, rtol=1e-4, atol=1e-4)
    return code


def test_F24_blocks_are_the_callers():
    code = run({"BLOCK_M": 16, "BLOCK_N": 32, "BACKEND": "TRITON"})
    assert "BLOCK_M : tl.constexpr = 16" in code
    assert "BLOCK_N : tl.constexpr = 32" in code


def test_F24_blocks_are_measured_on_the_device(monkeypatch, capfd):
    """In this process, whatever torch is asked for."""
    monkeypatch.setattr(choices, "_SPAN_S", 0.001)
    with settings.patch(max_autotune=True, autotune_in_subproc=True, autotune_local_cache=False):
        run(blocks=128)
    printed = capfd.readouterr().err
    assert "AUTOTUNE flex_attention(" in printed
    assert "SingleProcess AUTOTUNE" in printed


@pytest.mark.parametrize(
    "settings_of_call", [{"dtype": torch.float64}, {"head": 8}, {"blocks": 8}], ids=["float64", "head", "blocks"]
)
def test_F24_what_the_template_does_not_compute_is_the_formula(settings_of_call):
    code = run(**settings_of_call)
    assert (code.count(TEMPLATE), code.count(PRODUCT)) == (0, 2)


@pytest.mark.parametrize(
    ("backend", "settings_of_call"), [("FLASH", {}), ("TRITON_DECODE", {}), ("TRITON", {"dtype": torch.float64})]
)
def test_F24_a_backend_that_cannot_be_is_refused(backend, settings_of_call):
    with pytest.raises(InductorError, match=f'BACKEND="{backend}", which mydevice does not support'):
        run({"BACKEND": backend}, **settings_of_call)
