"""Fused attention: which calls take the device's kernel, its nine results, its gradients, its dropout."""

import pytest
import torch
from dtypes import FLOATS
from torch.nn.attention import SDPBackend, sdpa_kernel

FORWARD = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
BACKWARD = torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward
ALL_FUSED = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.OVERRIDEABLE]
FUSED, MATH = SDPBackend.OVERRIDEABLE.value, SDPBackend.MATH.value


def attention(*args, **kwargs):
    return torch.nn.functional.scaled_dot_product_attention(*args, **kwargs)


def qkv(query=(2, 4, 5, 8), key=(2, 4, 7, 8), value=None, dtype=torch.float32):
    torch.manual_seed(0)
    return [torch.randn(shape).to(dtype) for shape in (query, key, value or key)]


def mask(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def close(found, expected, dtype=torch.float32):
    tolerance = {torch.float64: 1e-9, torch.float32: 1e-5}.get(dtype, 2e-2)
    torch.testing.assert_close(found.detach().cpu(), expected.detach(), rtol=tolerance, atol=tolerance)


def compare(device, tensors, dtype=torch.float32, wanted=None, bias=None, bias_grad=False, **kwargs):
    """Values and the wanted gradients equal those of the CPU's composition of matmul and softmax."""
    results = []
    for on, backend in ((device, SDPBackend.OVERRIDEABLE), ("cpu", SDPBackend.MATH)):
        leaves = [t.detach().clone(memory_format=torch.preserve_format).to(on) for t in tensors]
        leaves = [t.requires_grad_(w) for t, w in zip(leaves, wanted or [True] * len(tensors), strict=True)]
        mask = None if bias is None else bias.clone().to(on).requires_grad_(bias_grad)
        with sdpa_kernel(backend):
            result = attention(*leaves, attn_mask=mask, **kwargs)
        assert result.device.type == torch.device(on).type
        if result.requires_grad:
            weight = torch.linspace(-1, 1, result.numel()).view(result.shape).to(on, dtype)
            (result * weight).sum().backward()
        results.append([result, *(t.grad for t in (*leaves, mask) if t is not None)])
        assert all(t.grad.stride() == t.stride() for t in leaves if t.grad is not None)
    for found, expected in zip(*results, strict=True):
        assert (found is None) == (expected is None)
        if found is not None:
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            close(found, expected, dtype)


def test_E25_attention_selects_the_overrideable_backend(device):
    q, k, v = (t.to(device) for t in qkv())
    q.requires_grad_()
    assert type(attention(q, k, v).grad_fn).__name__ == "ScaledDotProductFusedAttentionOverrideableBackward0"
    grouped = [t.to(device) for t in qkv(key=(2, 2, 7, 8))]
    assert torch._fused_sdp_choice(*grouped, enable_gqa=True) == FUSED


@pytest.mark.parametrize(
    ("case", "choice"),
    {
        "as it is": (lambda q: (q, q, q), FUSED),
        "mask": (lambda q: (q, q, q, q.new_zeros(5, 5)), FUSED),
        "bool mask": (lambda q: (q, q, q, q.new_zeros(5, 5, dtype=torch.bool)), FUSED),
        "half": (lambda q: (q.half(),) * 3, FUSED),
        "transposed": (lambda q: (q.transpose(1, 2),) * 3, FUSED),
        "three dimensions": (lambda q: (q[0],) * 3, MATH),
        "complex": (lambda q: (q + 0j,) * 3, MATH),
        "mixed dtypes": (lambda q: (q, q.double(), q), MATH),
        "empty": (lambda q: (q[:, :, :0],) * 3, MATH),
        "other heads without gqa": (lambda q: (q, q[:, :2], q[:, :2]), MATH),
        "mask of another dtype": (lambda q: (q, q, q, q.new_zeros(5, 5).double()), MATH),
        "mask that does not broadcast": (lambda q: (q, q, q, q.new_zeros(5, 4)), MATH),
    }.values(),
)
def test_E25_what_the_fused_kernel_does_not_support_is_composed(device, case, choice):
    assert torch._fused_sdp_choice(*case(torch.ones(2, 4, 5, 8, device=device))) == choice


@pytest.mark.parametrize("backend", ALL_FUSED)
def test_E25_every_fused_backend_selects_the_devices_kernel(device, backend):
    q, k, v = (t.to(device) for t in qkv())
    with sdpa_kernel(backend):
        assert torch._fused_sdp_choice(q, k, v) == FUSED
        with pytest.warns(UserWarning, match="shape"), pytest.raises(RuntimeError, match="No viable backend"):
            attention(q[0, 0], k[0, 0], v[0, 0])
    with sdpa_kernel(SDPBackend.MATH):
        assert torch._fused_sdp_choice(q, k, v) == MATH
    with sdpa_kernel([backend, SDPBackend.MATH]):
        assert torch._fused_sdp_choice(q, k, v) == FUSED
    with sdpa_kernel([SDPBackend.MATH, backend], set_priority=True):
        assert torch._fused_sdp_choice(q, k, v) == MATH


@pytest.mark.parametrize("dtype", FLOATS)
def test_E26_E27_values_and_gradients_equal_the_cpus(device, dtype):
    compare(device, qkv(dtype=dtype), dtype)
    compare(device, qkv(dtype=dtype), dtype, is_causal=True, scale=0.3)


@pytest.mark.parametrize("shape", [(5, 7), (2, 1, 5, 7), (2, 4, 5, 7), (1, 7), (4, 1, 7)], ids=str)
def test_E26_E27_masks(device, shape):
    compare(device, qkv(), bias=mask(*shape), bias_grad=True)


def test_E26_masks_without_a_gradient(device):
    """Also of bools, and a row that is masked whole, which is zero."""
    compare(device, qkv(), bias=mask(2, 1, 5, 7))
    seen = mask(2, 1, 5, 7) > -0.5
    seen[..., 0] = True
    seen[:, :, 2] = False
    compare(device, qkv(), bias=seen)
    assert attention(*(t.to(device) for t in qkv()), attn_mask=seen.to(device))[:, :, 2].abs().sum().item() == 0


@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
def test_E26_E27_grouped_queries(device, is_causal):
    compare(device, qkv(key=(2, 2, 7, 8)), is_causal=is_causal, enable_gqa=True)
    compare(device, qkv(key=(2, 1, 7, 8)), enable_gqa=True, bias=mask(5, 7), bias_grad=True)


@pytest.mark.parametrize("wanted", [(True, False, False), (False, True, False), (False, False, True)], ids=str)
def test_E27_only_wanted_gradients(device, wanted):
    compare(device, qkv(), wanted=wanted)
    compare(device, qkv(value=(2, 4, 7, 6)), wanted=wanted, bias=mask(5, 7), bias_grad=True)


def test_E26_E27_other_layouts_and_sizes(device):
    q, k, v = qkv((2, 5, 4, 8), (2, 7, 4, 8))
    compare(device, [t.transpose(1, 2) for t in (q, k, v)])
    compare(device, [t[..., ::2].transpose(1, 2) for t in (q, k, v)])
    for is_causal in (False, True):
        wide = [torch.cat([t, t.flip(-1)], -1)[..., ::2] for t in qkv((2, 4, 6, 8), (2, 4, 6, 8))]
        compare(device, wide, is_causal=is_causal)
        compare(device, [t.mT.contiguous().mT for t in wide], is_causal=is_causal)
    compare(device, qkv(), bias=mask(7, 5).t(), bias_grad=True)
    compare(device, qkv(), bias=mask(5, 14)[:, ::2])
    compare(device, qkv(value=(2, 4, 7, 3)))
    compare(device, qkv((1, 1, 1, 1), (1, 1, 1, 1)))
    compare(device, [qkv()[0][:, :1].expand(2, 4, 5, 8), *qkv()[1:]])
    output = attention(*(t.transpose(1, 2).to(device) for t in (q, k, v)))
    assert output.transpose(1, 2).is_contiguous()


def test_E27_an_expanded_gradient(device):
    tensors = qkv()
    gradients = []
    for on in ("cpu", device):
        x = [t.detach().to(on).requires_grad_() for t in tensors]
        gradients.append(torch.autograd.grad(attention(*x).sum(), x))
    for a, b in zip(*reversed(gradients), strict=True):
        close(a, b)


@pytest.mark.parametrize("shape", [(0, 4, 5, 8), (2, 4, 0, 8), (2, 0, 5, 8)], ids=str)
def test_E26_empty_tensors(device, shape):
    found = attention(*(t.to(device) for t in qkv(shape, shape)))
    close(found, torch.empty(shape))  # torch 2.11 divides by the number of heads on the CPU


def test_E26_nine_results(device):
    q, k, v = qkv()
    results = FORWARD(q.to(device), k.to(device), v.to(device))
    assert len(results) == 9
    output, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, seed, offset, debug_mask = results
    scores = q @ k.transpose(-2, -1) / 8**0.5
    close(output, scores.softmax(-1) @ v)
    assert logsumexp.dtype == torch.float32
    close(logsumexp, scores.logsumexp(-1))
    assert (cum_seq_q, cum_seq_k, max_q, max_k, debug_mask) == (None, None, 5, 7, None)
    assert (seed.dtype, seed.shape, offset.dtype, offset.shape) == (torch.int64, (), torch.int64, ())
    weights = FORWARD(q.to(device), k.to(device), v.to(device), return_debug_mask=True)[8]
    close(weights, scores.softmax(-1))


def test_E27_the_backward_operator_returns_the_wanted_gradients(device):
    q, k, v = (t.to(device) for t in qkv())
    bias = mask(5, 7).to(device)
    output, logsumexp, *rest, _ = FORWARD(q, k, v, bias)
    cum_seq_q, cum_seq_k, max_q, max_k, seed, offset = rest
    for wanted in ([True, False, True, False], [False, True, False, True], [False] * 4):
        call = (torch.ones_like(output), q, k, v, bias, wanted, output, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k)
        gradients = BACKWARD(*call, 0.0, False, seed, offset)
        assert [g is not None for g in gradients] == wanted


def test_E26_E27_dropout_draws_from_the_devices_generator(device, device_module):
    q, k, v = (t.to(device).requires_grad_() for t in qkv((1, 2, 64, 8), (1, 2, 64, 8)))
    cpu_state = torch.get_rng_state()

    def run(seed):
        device_module.manual_seed(seed)
        output = attention(q, k, v, dropout_p=0.5)
        return output, *torch.autograd.grad(output.square().sum(), (q, k, v))

    first, again, other = run(1), run(1), run(2)
    for a, b, c in zip(first, again, other, strict=True):
        assert torch.equal(a.cpu(), b.cpu())
        assert not torch.equal(a.cpu(), c.cpu())
    assert torch.equal(torch.get_rng_state(), cpu_state)
    device_module.manual_seed(1)
    assert not torch.equal(attention(q, k, v, dropout_p=0.5).cpu(), attention(q, k, v, dropout_p=0.5).cpu())
    dropped = FORWARD(q, k, v, None, 0.5, False, True)[8]
    assert 0.4 < (dropped == 0).float().mean().item() < 0.6
    assert attention(q, k, v, dropout_p=1.0).abs().sum().item() == 0


def test_E27_gradients_of_dropout_are_those_of_the_drawn_mask(device):
    """The backward draws the forward's mask again: gradients equal those of a composition with that mask."""
    q, k, v = (t.to(device).requires_grad_() for t in qkv(dtype=torch.float64))
    output, *_, dropped = FORWARD(q, k, v, None, 0.4, False, True)
    kept = (dropped.detach() != 0).cpu()
    found = torch.autograd.grad(output.square().sum(), (q, k, v))
    host = [t.detach().cpu().requires_grad_() for t in (q, k, v)]
    weights = (host[0] @ host[1].transpose(-2, -1) / 8**0.5).softmax(-1) * kept / 0.6
    expected_output = weights @ host[2]
    close(output, expected_output, torch.float64)
    for a, b in zip(found, torch.autograd.grad(expected_output.square().sum(), host), strict=True):
        close(a, b, torch.float64)


def test_E27_gradcheck(device):
    tensors = [t.to(device).requires_grad_() for t in qkv((1, 2, 3, 4), (1, 2, 3, 4), dtype=torch.float64)]
    assert torch.autograd.gradcheck(attention, tensors)
    bias = mask(3, 3).double().to(device).requires_grad_()
    assert torch.autograd.gradcheck(lambda q, k, v, b: attention(q, k, v, attn_mask=b), [*tensors, bias])


def test_attention_under_transforms(device):
    q, k, v = qkv((3, 2, 4, 5, 8), (3, 2, 4, 7, 8))
    found = torch.vmap(attention)(q.to(device), k.to(device), v.to(device))
    close(found, torch.stack([attention(*sample) for sample in zip(q, k, v, strict=True)]))
    primals, tangents = qkv(), qkv((2, 4, 5, 8), (2, 4, 7, 8))
    with sdpa_kernel(SDPBackend.MATH):
        expected = torch.func.jvp(attention, tuple(primals), tuple(tangents))
    found = torch.func.jvp(attention, tuple(t.to(device) for t in primals), tuple(t.to(device) for t in tangents))
    for a, b in zip(found, expected, strict=True):
        close(a, b)


def test_multihead_attention_and_encoder(device):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x = torch.randn(2, 6, 16)
    padding = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
    expected = encoder(x, src_key_padding_mask=padding)
    found = encoder.to(device)(x.to(device), src_key_padding_mask=padding.to(device))
    close(found, expected)
    attend = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    output, weights = attend(x, x, x, key_padding_mask=padding)
    attend.to(device)
    found, found_weights = attend(*[x.to(device)] * 3, key_padding_mask=padding.to(device))
    close(found, output)
    close(found_weights, weights)
