"""Liger Kernel: its Triton operators, forward and backward, against the same in plain torch on the CPU."""

import pytest
import torch
import torch.nn.functional as F
from beside import moved, tensors
from one_configuration import one_configuration

with one_configuration():
    from liger_kernel import ops
    from liger_kernel.ops.experimental.embedding import LigerEmbeddingFunction
    from liger_kernel.ops.experimental.mm_int8int2 import matmul, pack_weights
    from liger_kernel.transformers import functional as liger
    from liger_kernel.utils import infer_comm_backend, infer_device, infer_device_arch

LIBRARIES = ("liger_kernel", "triton")


def drawn(*shape, seed=1, dtype=torch.float32, scale=1.0):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale
    return values.to(dtype).requires_grad_()


def numbers(high, *shape, seed=2):
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def labels():
    found = numbers(50, 12)
    found[3] = -100
    return found


def rms(x, weight=None, eps=1e-6):
    normed = x * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)
    return normed if weight is None else normed * weight


def logged(x):
    return x.log_softmax(-1)


def divergence(student, teacher, beta=0.5):
    p, q = teacher.exp(), student.exp()
    middle = torch.log(beta * p + (1 - beta) * q)
    return (beta * p * (teacher - middle) + (1 - beta) * q * (student - middle)).sum() / student.shape[0]


def sparsemax(x):
    ordered = x.sort(-1, descending=True).values
    counts = torch.arange(1, x.shape[-1] + 1)
    total = ordered.cumsum(-1)
    inside = (1 + counts * ordered > total).sum(-1, keepdim=True)
    return (x - (total.gather(-1, inside - 1) - 1) / inside).clamp(min=0)


def half_turned(x):
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


def rotated(q, k, cos, sin):
    cos, sin = cos[:, None], sin[:, None]
    return q * cos + half_turned(q) * sin, k * cos + half_turned(k) * sin


def rotated_by_sections(q, k, cos, sin):
    sections = [4, 6, 6] * 2
    cos, sin = (
        torch.cat([part[i % 3] for i, part in enumerate(one.split(sections, -1))], -1)[:, None] for one in (cos, sin)
    )
    return q * cos + half_turned(q) * sin, k * cos + half_turned(k) * sin


def rotated_by_numbers(q, k, angles):
    turns = torch.polar(torch.ones_like(angles), angles)[None, :, None]

    def turned(x):
        return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turns).flatten(-2)

    return turned(q), turned(k)


def angles(*leading):
    found = torch.rand(*leading, 16, generator=torch.Generator().manual_seed(5))
    found = torch.cat([found, found], -1)
    return found.cos(), found.sin()


def causal(scores, fill):
    return scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), fill)


def attended_by_neighbours(q, k, v):
    places = torch.arange(q.shape[-2])
    far = (places[:, None] - places).abs() > 3
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(far, -torch.inf)
    return scores.softmax(-1) @ v


def residual_attention(blocks, query, norm):
    scores = (rms(blocks, norm) * query).sum(-1)
    return (scores.softmax(0)[..., None] * blocks).sum(0)


def both_losses(student, teacher, target):
    kept = (target != -100).float()
    far = 0.5 * (student.softmax(-1) - teacher.softmax(-1)).abs().sum(-1)
    return F.cross_entropy(student, target, reduction="none"), far * kept


def policy_loss(logits, old, reference, taken, advantages, clip=0.2, beta=0.04):
    found = (logits[:, :-1] / 0.9).log_softmax(-1).gather(-1, taken[..., None])[..., 0]
    ratio = (found - old).exp()
    loss = -torch.minimum(ratio * advantages[:, None], ratio.clamp(1 - clip, 1 + clip) * advantages[:, None])
    return loss + beta * ((reference - found).exp() - (reference - found) - 1)


def mixture(x, gate_up, down, chosen, weights):
    hidden = torch.einsum("th,tkfh->tkf", x, gate_up[chosen])
    gate, up = hidden.chunk(2, -1)
    return (torch.einsum("tkf,tkhf->tkh", F.silu(gate) * up, down[chosen]) * weights[..., None]).sum(1)


def coefficients(x, phi, bias, *alphas):
    n = x.shape[-2]
    mixed = rms(x.flatten(-2)) @ phi
    before, after, between = mixed.split([n, n, n * n], -1)
    before_bias, after_bias, between_bias = bias.split([n, n, n * n])
    matrix = (between * alphas[2] + between_bias).unflatten(-1, (n, n)).softmax(-1) + 1e-6
    matrix = matrix / (matrix.sum(-2, keepdim=True) + 1e-6)
    for _ in range(19):
        matrix = matrix / (matrix.sum(-1, keepdim=True) + 1e-6)
        matrix = matrix / (matrix.sum(-2, keepdim=True) + 1e-6)
    return (
        (before * alphas[0] + before_bias).sigmoid(),
        (after * alphas[1] + after_bias).sigmoid() * 2,
        matrix,
    )


def vocabulary_loss(logits, target):
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").view_as(target)


def normed_by_powers(x, weight, bias):
    return sum(w * rms(x**power) for w, power in zip(weight, (3, 2, 1), strict=True)) + bias


def scaled_entropy(x, weight, target):
    logged = ((x @ weight.T) / 0.8).log_softmax(-1)
    kept = (target != -100).float()
    return F.nll_loss(logged, target, reduction="none"), -(logged.exp() * logged).sum(-1) * kept


X, W, B = drawn(3, 7, 96), drawn(96, seed=3), drawn(96, seed=4)
LOGITS, OTHERS = drawn(12, 50), drawn(12, 50, seed=3).detach()
HIDDEN, HEAD = drawn(12, 32, seed=6), drawn(50, 32, seed=7, scale=0.3)
Q, K, V = (drawn(2, heads, 24, 32, seed=heads) for heads in (4, 2, 3))
INSIDE = [drawn(2, 2, 24, 32, seed=i) for i in range(3)]
CHOSEN = torch.stack([torch.randperm(4, generator=torch.Generator().manual_seed(i))[:2] for i in range(10)])
LOG_PROBABILITIES = [drawn(2, 9, 50, seed=i).detach().log_softmax(-1)[..., 0] for i in (8, 9)]

# By the name of the operator: Liger's function, the same in torch, the arguments.
CASES = {
    "attn_res": (liger.liger_attn_res, residual_attention, drawn(4, 2, 5, 64), drawn(64, seed=2), drawn(64, seed=3)),
    "cross_entropy": (liger.liger_cross_entropy, F.cross_entropy, LOGITS, labels()),
    "cross_entropy_smoothed": (
        lambda x, y: liger.liger_cross_entropy(x, y, label_smoothing=0.1, reduction="sum"),
        lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1, reduction="sum"),
        LOGITS,
        labels(),
    ),
    "dyt": (
        liger.liger_dyt,
        lambda x, alpha, gamma, beta: gamma * torch.tanh(alpha * x) + beta,
        X,
        drawn(1, seed=2),
        W,
        B,
    ),
    "embedding": (LigerEmbeddingFunction.apply, lambda table, at: F.embedding(at, table), HEAD, numbers(50, 3, 8)),
    "fused_add_rms_norm": (
        lambda x, r, w: liger.liger_fused_add_rms_norm(x, r, w, 1e-6),
        lambda x, r, w: (rms(x + r, w), x + r),
        X,
        drawn(3, 7, 96, seed=5),
        W,
    ),
    "fused_ce_tvd": (ops.LigerFusedCETVDFunction.apply, both_losses, LOGITS, OTHERS, labels()),
    "fused_linear_cross_entropy": (
        liger.liger_fused_linear_cross_entropy,
        lambda x, w, y: F.cross_entropy(x @ w.T, y),
        HIDDEN,
        HEAD,
        labels(),
    ),
    "fused_linear_jsd": (
        lambda x, w, other, others: liger.liger_fused_linear_jsd(x, w, other, others, temperature=2.0),
        lambda x, w, other, others: divergence(logged(x @ w.T / 2), logged(other @ others.T / 2)),
        HIDDEN,
        HEAD,
        drawn(12, 32, seed=8).detach(),
        drawn(50, 32, seed=9).detach(),
    ),
    "fused_linear_kl_div": (
        liger.liger_fused_linear_kl_div,
        lambda x, w, y: F.kl_div(logged(x @ w.T), y, reduction="batchmean"),
        HIDDEN,
        HEAD,
        OTHERS.softmax(-1),
    ),
    "fused_linear_scaled_cross_entropy": (
        lambda x, w, y: ops.LigerFusedLinearScaledCrossEntropyFunction.apply(x, w, y, 0.8, -100, 1, True),
        scaled_entropy,
        HIDDEN,
        HEAD,
        labels(),
    ),
    "fused_moe": (
        lambda x, gate_up, down, chosen, w: ops.LigerFusedMoEFunction.apply(x, gate_up, down, chosen.int(), w),
        mixture,
        drawn(10, 32),
        drawn(4, 128, 32, seed=2, scale=0.2),
        drawn(4, 32, 64, seed=3, scale=0.2),
        CHOSEN,
        drawn(10, 2, seed=4).detach().softmax(-1).requires_grad_(),
    ),
    "fused_neighborhood_attention": (liger.liger_fused_neighborhood_attention, attended_by_neighbours, *INSIDE),
    "geglu": (
        liger.liger_geglu,
        lambda a, b: F.gelu(a, approximate="tanh") * b,
        X,
        drawn(3, 7, 96, seed=5),
    ),
    "group_norm": (
        lambda x, w, b: liger.liger_group_norm(x, w, b, 6, 3, 1e-5),
        lambda x, w, b: F.group_norm(x, 3, w, b),
        drawn(2, 6, 20),
        drawn(6, seed=2),
        drawn(6, seed=3),
    ),
    "grpo_loss": (
        lambda x, old, reference, taken, gain: ops.GrpoLossFunction.apply(
            x, old, reference, taken, gain, None, 0.9, 0.04, 0.2, 0.2, False, "grpo", None, False
        )[0],
        policy_loss,
        drawn(2, 10, 50),
        *LOG_PROBABILITIES,
        numbers(50, 2, 9),
        drawn(2, seed=5).detach(),
    ),
    "jsd": (
        lambda x, y: liger.liger_jsd(logged(x), logged(y), beta=0.3),
        lambda x, y: divergence(logged(x), logged(y), 0.3),
        LOGITS,
        OTHERS,
    ),
    "kl_div": (
        lambda x, y: liger.liger_kl_div(logged(x), y, reduction="batchmean"),
        lambda x, y: F.kl_div(logged(x), y, reduction="batchmean"),
        LOGITS,
        OTHERS.softmax(-1),
    ),
    "layer_norm": (
        lambda x, w, b: liger.liger_layer_norm(x, w, b, 1e-5),
        lambda x, w, b: F.layer_norm(x, (96,), w, b),
        X,
        W,
        B,
    ),
    "llama4_rope": (
        lambda q, k, at: ops.LigerLlama4RopeFunction.apply(q.clone(), k.clone(), torch.polar(torch.ones_like(at), at)),
        rotated_by_numbers,
        drawn(2, 9, 4, 32),
        drawn(2, 9, 2, 32, seed=2),
        drawn(9, 16, seed=3).detach(),
    ),
    "mhc_coeffs": (
        lambda x, phi, bias, *alphas: liger.liger_mhc_coeffs(x, phi, bias, *alphas, allow_fp32=True),
        coefficients,
        drawn(2, 5, 4, 16),
        drawn(64, 24, seed=2, scale=0.1),
        drawn(24, seed=3),
        *(drawn(seed=i) for i in (4, 5, 6)),
    ),
    "mhc_pre": (
        liger.liger_mhc_pre,
        lambda x, h: (x * h[..., None]).sum(-2),
        drawn(2, 5, 4, 16),
        drawn(2, 5, 4, seed=2),
    ),
    "mhc_post_res": (
        liger.liger_mhc_post_res,
        lambda x, out, post, between: between @ x + post[..., None] * out[..., None, :],
        drawn(2, 5, 4, 16),
        drawn(2, 5, 16, seed=2),
        drawn(2, 5, 4, seed=3),
        drawn(2, 5, 4, 4, seed=4),
    ),
    "mlp": (
        ops.LigerMLPFunction.apply,
        lambda x, gate, up, down: (F.silu(x @ gate.T) * (x @ up.T)) @ down.T,
        drawn(2, 24, 64, dtype=torch.bfloat16),
        *(
            drawn(*shape, seed=i, dtype=torch.bfloat16, scale=0.1)
            for i, shape in enumerate([(96, 64)] * 2 + [(64, 96)])
        ),
    ),
    "mm_int8int2": (
        lambda x, weight: matmul(x, pack_weights(weight.cpu(), 2).to(x.device)),
        lambda x, weight: x.int() @ weight.int(),
        (numbers(255, 16, 256) - 127).to(torch.int8),
        numbers(3, 256, 64) - 1,
    ),
    "modulated_rms_norm": (
        liger.liger_modulated_rms_norm,
        lambda x, w, scale, shift: (1 + scale[:, None]) * rms(x, w) + shift[:, None],
        X,
        W,
        drawn(3, 96, seed=6),
        drawn(3, 96, seed=7),
    ),
    "multi_token_attention": (
        lambda scores, weight, bias: liger.liger_multi_token_attention(scores, weight, bias, padding=1),
        lambda scores, weight, bias: causal(
            F.conv2d(causal(scores, -torch.inf).softmax(-1), weight, bias, padding=1), 0
        ),
        drawn(2, 4, 20, 20),
        drawn(4, 4, 3, 3, seed=2),
        drawn(4, seed=3),
    ),
    "poly_norm": (liger.liger_poly_norm, normed_by_powers, X, drawn(3, seed=2), drawn(seed=3)),
    "qwen2vl_mrope": (
        lambda q, k, cos, sin: liger.liger_qwen2vl_mrope(q, k, cos, sin, [4, 6, 6]),
        rotated_by_sections,
        Q,
        K,
        *angles(3, 2, 24),
    ),
    "relu_squared": (liger.liger_relu_squared, lambda x: F.relu(x).square(), X),
    "rms_norm": (lambda x, w: liger.liger_rms_norm(x, w, 1e-6), rms, X, W),
    "rms_norm_gemma": (
        lambda x, w: liger.liger_rms_norm(x, w, 1e-6, offset=1.0, casting_mode="gemma"),
        lambda x, w: rms(x, 1 + w),
        X,
        W,
    ),
    "rope": (liger.liger_rope, rotated, Q, K, *angles(1, 24)),
    "softmax": (liger.liger_softmax, lambda x: x.softmax(-1), X),
    "sparsemax": (liger.liger_sparsemax, sparsemax, X),
    "swiglu": (liger.liger_swiglu, lambda a, b: F.silu(a) * b, X, drawn(3, 7, 96, seed=5)),
    "swiglu_fused_gate_up": (
        ops.LigerFusedGateUpSiLUMulFunction.apply,
        lambda y: F.silu(y[..., :48]) * y[..., 48:],
        drawn(21, 96),
    ),
    "tvd": (
        lambda x, y: liger.liger_tvd(x.softmax(-1), y, reduction="batchmean"),
        lambda x, y: 0.5 * (x.softmax(-1) - y).abs().sum() / x.shape[0],
        LOGITS,
        OTHERS.softmax(-1),
    ),
    "vocab_parallel_cross_entropy": (
        lambda x, y: ops.LigerVocabParallelCEFunction.apply(x, y, None, -100, 0.0, "megatron", "mean"),
        vocabulary_loss,
        drawn(4, 3, 50),
        numbers(50, 4, 3),
    ),
}


def results(function, arguments, place):
    given = moved(arguments, place)
    found = tensors(function(*given))
    smooth = [
        (one.float() * (1 + torch.arange(one.numel()).view_as(one).to(place) % 5)).sum()
        for one in found
        if one.requires_grad
    ]
    if smooth:
        sum(smooth).backward()
    return found, [one.grad for one in tensors(given) if one.requires_grad]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.sample] if i % 12 == 0 else []) for i, name in enumerate(CASES)]
)
def test_operator(device, name):
    ours, theirs, *arguments = CASES[name]
    expected, gradients = results(theirs, arguments, "cpu")
    found, found_gradients = results(ours, arguments, device)
    for got, wanted in zip(found + found_gradients, expected + gradients, strict=True):
        assert got.device == device
        got, wanted = got.detach().cpu(), wanted.detach()
        if wanted.dtype == torch.bfloat16:
            assert (got.float() - wanted.float()).norm() < 0.02 * wanted.float().norm()
        else:
            torch.testing.assert_close(got, wanted, check_dtype=False, rtol=1e-4, atol=1e-5)


@pytest.mark.sample
def test_the_device_is_inferred(name):
    assert (infer_device(), infer_device_arch()) == (name, name)
    assert infer_comm_backend() == torch.distributed.get_default_backend_for_device(name)
