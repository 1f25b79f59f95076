"""Operators that torch has for CUDA and not for the CPU, compared with plain formulas on the CPU."""

import math
from itertools import chain

import pytest
import torch

F = torch.nn.functional
HALVES = (torch.float16, torch.bfloat16)
ROUGH = {"rtol": 2e-2, "atol": 2e-2}
FINE = {"rtol": 1e-4, "atol": 1e-4}


def numbers(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def close(found, expected, **tolerances):
    assert found.dtype is expected.dtype
    torch.testing.assert_close(found.cpu(), expected, **tolerances)


def refuse(cases, errors=RuntimeError):
    for call, text in cases:
        with pytest.raises(errors, match=text):
            call()


def leaves(tensors, **to):
    """Copies that take gradients."""
    return [x.to(**to).detach().requires_grad_() for x in tensors]


def close_gradients(found, expected, of, grad=torch.sin, **tolerances):
    """After both backward passes the gradients of pairs of leaves, in the first's dtype."""
    for result in (found, expected):
        (grad(result.double()) if callable(grad) else result.double() * grad.to(result.device)).sum().backward()
    for a, b in of:
        close(a.grad, b.grad.to(a.dtype), **tolerances)


@pytest.mark.parametrize("dtype", HALVES)
def test_K05_products_of_halves_with_a_float32_result(device, dtype):
    a, b, c = numbers(3, 300, dtype=dtype), numbers(300, 2, dtype=dtype, seed=1), numbers(3, 2, dtype=dtype, seed=2)
    at, bt, ct = a.to(device), b.to(device), c.to(device)
    exact = a.double() @ b.double()
    found = torch.mm(at, bt, out_dtype=torch.float32)
    assert found.dtype is torch.float32
    assert (found.cpu() - exact).abs().max() < 1e-4 < (torch.mm(at, bt).cpu().double() - exact).abs().max()
    out = torch.empty(0, device=device)
    torch.mm(at, bt, out_dtype=torch.float32, out=out)
    assert torch.equal(out, found)
    close(torch.bmm(at[None], bt[None], out_dtype=torch.float32), exact.float()[None])
    for bias in (ct, ct.float()):
        expected = 2 * c.double() + 3 * exact
        close(
            torch.addmm(bias, at, bt, out_dtype=torch.float32, beta=2, alpha=3), expected.float(), rtol=1e-5, atol=1e-3
        )
        found = torch.baddbmm(bias[None], at[None], bt[None], out_dtype=torch.float32, beta=2, alpha=3)
        close(found, expected.float()[None], rtol=1e-5, atol=1e-3)
    close(torch.mm(at, bt, out_dtype=dtype), torch.mm(at, bt).cpu())


def test_K05_products_refuse_what_cuda_refuses(device):
    a, b = numbers(2, 3, dtype=torch.float16).to(device), numbers(3, 2, dtype=torch.float16).to(device)
    out = torch.empty(0, device=device, dtype=torch.half)

    def mm(a, b, out_dtype=torch.float32, **options):
        return lambda: torch.mm(a, b, out_dtype=out_dtype, **options)

    refuse(
        [
            (mm(a, b, torch.float64), "out_dtype must be the same as input dtype or fp32"),
            (mm(a.double(), b.double()), "out_dtype must be the same as input dtype"),
            (mm(a, b.float()), "dtypes must be the same"),
            (mm(a, a), "mat1 and mat2 shapes cannot be multiplied"),
            (mm(a, b, out=out), "out_dtype must be the same as the dtype of the provided out tensor"),
        ]
    )
    with pytest.raises(RuntimeError, match="self dtype must match either out_dtype or mat1"):
        torch.addmm(a.double(), a, b, out_dtype=torch.float32)


def by_group(a, b, ends):
    """The products of the groups of a's rows, each with its matrix."""
    begins = [0, *ends[:-1]]
    return torch.cat([a[i:j] @ b[g] for g, (i, j) in enumerate(zip(begins, ends, strict=True))])


def test_K06_products_of_groups_forward_and_backward(device):
    ends = [3, 3, 8, 16]
    a, b = numbers(16, 16, dtype=torch.bfloat16), numbers(4, 16, 8, dtype=torch.bfloat16, seed=1)
    (at, bt), (ar, br) = leaves((a, b), device=device), leaves((a, b), dtype=torch.float32)
    offs = torch.tensor(ends, dtype=torch.int32, device=device)
    found, expected = F.grouped_mm(at, bt, offs=offs), by_group(ar, br, ends)
    close(found, expected.bfloat16(), **ROUGH)
    close_gradients(found, expected, ((at, ar), (bt, br)), numbers(16, 8, dtype=torch.bfloat16, seed=2), **ROUGH)


def test_K06_experts_of_a_mixture(device):
    """A grouped mixture of experts counts its tokens by histc of integers, and multiplies by expert."""
    tokens, experts = 32, 4
    x, weights = numbers(tokens, 16, dtype=torch.bfloat16), numbers(experts, 16, 8, dtype=torch.bfloat16, seed=1)
    chosen = torch.randint(experts, (tokens,), generator=torch.Generator().manual_seed(2))

    def mixture(x, weights, chosen):
        order = chosen.argsort(stable=True)
        counts = torch.histc(chosen.int(), bins=experts, min=0, max=experts - 1)
        assert counts.dtype is torch.int32
        result = F.grouped_mm(x[order], weights, offs=counts.cumsum(0, dtype=torch.int32))
        return torch.empty_like(result).index_copy(0, order, result)

    expected = torch.stack([x[i].float() @ weights[chosen[i]].float() for i in range(tokens)]).bfloat16()
    close(mixture(x.to(device), weights.to(device), chosen.to(device)), expected, **ROUGH)


def row_scaled(shape, dim, seed):
    """Float8 numbers, the scale of each row or column, and their product."""
    wide = numbers(*shape, seed=seed)
    scale = wide.abs().amax(dim, keepdim=True) / 448
    return (wide / scale).to(torch.float8_e4m3fn), scale


def test_K07_products_scaled_by_rows(device):
    a, scale_a = row_scaled((32, 64), 1, 0)
    b, scale_b = row_scaled((64, 16), 0, 1)
    at, bt = a.to(device), b.t().contiguous().t().to(device)

    def scaled():
        return torch._scaled_mm(at, bt, scale_a.to(device), scale_b.to(device), out_dtype=torch.bfloat16)

    if torch.__version__ < "2.12":  # whose kernel of the CPU takes one scale of a matrix
        with pytest.raises(RuntimeError, match="only supports per-tensor scaling"):
            scaled()
    else:
        close(scaled(), ((a.float() * scale_a) @ (b.float() * scale_b)).bfloat16(), rtol=2e-2, atol=1e-3)


def test_K07_scaled_products(device):
    (a, _), (b, _) = row_scaled((32, 64), 1, 0), row_scaled((64, 16), 0, 1)
    one, two = (torch.tensor(scale, device=device) for scale in (0.5, 0.25))
    found = torch._scaled_mm(a.to(device), b.t().contiguous().t().to(device), one, two, out_dtype=torch.float32)
    close(found, a.float() @ b.float() * 0.125, rtol=1e-3, atol=1e-2)


def test_K07_scaled_products_of_groups(device):
    ends = [16, 16, 40, 48]
    offs = torch.tensor(ends, dtype=torch.int32, device=device)
    a, scale_a = row_scaled((48, 32), 1, 0)
    b, scale_b = row_scaled((4, 32, 16), 1, 1)
    exact = by_group(a.float() * scale_a, b.float() * scale_b, ends)
    bt = b.mT.contiguous().mT.to(device)
    assert bt.stride(-2) == 1
    found = torch._scaled_grouped_mm(
        a.to(device), bt, scale_a.flatten().to(device), scale_b.squeeze(1).to(device), offs, out_dtype=torch.bfloat16
    )
    close(found, exact.bfloat16(), rtol=2e-2, atol=1e-3)
    # Both are split along the dimension of the sum: a product and scales for each group.
    x, y = numbers(8, 48).to(torch.float8_e4m3fn), numbers(48, 8, seed=1).to(torch.float8_e4m3fn)
    y = y.t().contiguous().t()
    sx, sy = numbers(4 * 8, seed=2), numbers(4 * 8, seed=3)
    found = torch._scaled_grouped_mm(x.to(device), y.to(device), sx.to(device), sy.to(device), offs)
    for g, (i, j) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        product = x[:, i:j].float() @ y[i:j].float() * sx[8 * g : 8 * g + 8, None] * sy[None, 8 * g : 8 * g + 8]
        close(found[g], product.bfloat16(), rtol=2e-2, atol=1e-2)


def test_K07_scaled_products_of_groups_refuse_what_cuda_refuses(device):
    a = torch.ones(16, 16, device=device).to(torch.float8_e4m3fn)
    b = torch.ones(2, 16, 16, device=device).to(torch.float8_e4m3fn).mT
    row, columns = torch.ones(16, device=device), torch.ones(2, 16, device=device)
    offs = torch.tensor([8, 16], dtype=torch.int32, device=device)
    call = torch._scaled_grouped_mm
    for arguments, text in (
        ((a.mT.contiguous().mT, b, row, columns, offs), "Expected mat1 to not be transposed"),
        ((a, b.contiguous(), row, columns, offs), "Expected mat2 to be transposed"),
        ((a.bfloat16(), b, row, columns, offs), "Expected inputs of E4M3 FP8 type"),
        ((a, b, row[:3], columns, offs), "scale_a must have shape"),
        ((a, b, row, columns), "Have to provide offsets"),
        ((a, b, row, columns, offs.long()), "Offsets have to be int32"),
        ((a, b, row, columns, offs + 8), "offs must not decrease, nor exceed"),
    ):
        refuse([(lambda: call(*arguments), text)], (RuntimeError, ValueError))  # noqa: B023
    refuse([(lambda: call(a, b, row, columns, offs, out_dtype=torch.float32), "bf16")], (RuntimeError, ValueError))


def test_K08_products_of_int8(device):
    a = torch.randint(-128, 128, (32, 64), dtype=torch.int8, generator=torch.Generator().manual_seed(0))
    b = torch.randint(-128, 128, (64, 16), dtype=torch.int8, generator=torch.Generator().manual_seed(1))
    found = torch._int_mm(a.to(device), b.to(device))
    assert found.dtype is torch.int32
    assert torch.equal(found.cpu(), (a.long() @ b.long()).int())
    with pytest.raises(RuntimeError):
        torch._int_mm(a.to(device), a.to(device))


def test_K08_assert_async(device, device_module):
    def fail_and_wait():
        torch._assert_async(torch.tensor(0.0, device=device), "it is not so")
        device_module.synchronize()

    torch._assert_async(torch.tensor(1, device=device))
    torch._assert_async(torch.tensor(True, device=device), "so it is")
    with pytest.raises(RuntimeError, match="it is not so"):
        fail_and_wait()
    with pytest.raises(RuntimeError, match="ambiguous"):
        torch._assert_async(torch.ones(2, device=device))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_K09_histograms_of_integers(device, dtype):
    x = torch.randint(0, 50, (100,), generator=torch.Generator().manual_seed(0)).to(dtype)

    def expected(bins, low, high):
        counts = [0] * bins
        for value in x.tolist():
            if low <= value <= high:
                counts[min((value - low) * bins // (high - low), bins - 1)] += 1
        return torch.tensor(counts, dtype=dtype)

    at = x.to(device)
    for bins, low, high in ((8, 0, 7), (49, 0, 49), (7, 10, 30), (1, 0, 49)):
        close(torch.histc(at, bins, low, high), expected(bins, low, high))
    close(torch.histc(at, 10), expected(10, x.min().item(), x.max().item()))
    out = torch.empty(0, dtype=dtype, device=device)
    assert torch.histc(at, 5, 0, 50, out=out) is out
    close(out, expected(5, 0, 50))
    close(torch.histc(at[:0], 3), torch.zeros(3, dtype=dtype))
    refuse([(lambda: torch.histc(at, 0), "bins must be > 0")])
    refuse([(lambda: torch.histc(at, 3, 5, 2), "max must be larger than min")])


def test_K09_bools_and_complex_numbers(device):
    x = torch.tensor([[True, False], [True, True]])
    close(x.to(device).abs(), x)
    close(x.to(device).trace(), torch.tensor(2))
    close(F.softsign(x.to(device)), F.softsign(x.float()))
    for dtype in (torch.complex64, torch.complex128):
        z = torch.tensor([[1 + 2j, complex(math.nan, 1), 3], [4j, 5, 6]], dtype=dtype)
        kept = torch.where(z.isnan(), 0, z)
        close(z.to(device).nansum(), kept.sum())
        close(z.to(device).nansum(1, keepdim=True), kept.sum(1, keepdim=True))
        close(z.to(device).nanmean(0), kept.sum(0) / torch.tensor([2, 1, 2]))
        at = z.to(device).requires_grad_()
        at.nansum().abs().backward()
        assert at.grad[0, 1] == 0


def test_K10_depthwise_convolutions(device):
    x, w, b = numbers(2, 3, 8, 8), numbers(6, 1, 3, 3, seed=1), numbers(6, seed=2)
    call = torch.ops.aten._conv_depthwise2d
    found = call(x.to(device), w.to(device), [3, 3], b.to(device), [2, 1], [1, 0], [1, 2])
    close(found, F.conv2d(x, w, b, (2, 1), (1, 0), (1, 2), groups=3), **FINE)
    x, w = numbers(1, 2, 4, 5, 6), numbers(2, 1, 2, 2, 2, seed=1)
    found = torch.ops.aten.conv_depthwise3d(x.to(device), w.to(device), [2, 2, 2], None, [1] * 3, [0] * 3, [1] * 3)
    close(found, F.conv3d(x, w, groups=2), **FINE)
    with pytest.raises(RuntimeError, match="the weight must be of shape"):
        call(numbers(1, 3, 8, 8).to(device), numbers(4, 1, 3, 3).to(device), [3, 3], None, [1, 1], [0, 0], [1, 1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_K10_the_backward_of_a_root_mean_square_norm(device, dtype):
    x, w = numbers(4, 5, 6, dtype=dtype), numbers(6, dtype=dtype, seed=1)
    (at, wt), (xr, wr) = leaves((x, w), device=device), leaves((x, w), dtype=torch.float64)
    found, _ = torch.ops.aten._fused_rms_norm(at, [6], wt, 1e-5)
    expected = xr * (xr.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * wr
    tolerances = FINE if dtype is torch.float32 else {"rtol": 5e-2, "atol": 5e-2}
    close(found, expected.to(dtype), **tolerances)
    close_gradients(found, expected, ((at, xr), (wt, wr)), numbers(4, 5, 6, dtype=dtype, seed=2), **tolerances)


def test_K10_the_dropout_of_cuda(device, device_module):
    x = torch.ones(1000, device=device)
    device_module.manual_seed(0)
    y, mask = torch._fused_dropout(x, 0.75)
    assert mask.dtype is torch.uint8
    assert torch.equal(y, mask / 0.75)
    assert 650 < mask.sum() < 850
    assert torch.equal(torch._masked_scale(x, mask, 2.0), mask * 2.0)
    with pytest.raises(RuntimeError, match="uint8"):
        torch._masked_scale(x, x, 2.0)


# ---- attention over sequences of several lengths

LENGTHS = (5, 1, 8)


def attention(q, k, v, *, causal=False, scale=None):
    """(length, heads, size), causal up to the last key."""
    q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[0] // x.shape[0], 0) for x in (k, v))
    scores = q @ k.mT * (scale or q.shape[-1] ** -0.5)
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 + k.shape[1] - q.shape[1])
        scores = scores.masked_fill(hidden, -math.inf)
    return (scores.softmax(-1) @ v).transpose(0, 1), scores.logsumexp(-1)


def packed(dtype, heads=(4, 2)):
    total = sum(LENGTHS)
    return [numbers(total, h, 8, dtype=dtype, seed=i) for i, h in enumerate((heads[0], heads[1], heads[1]))]


def begins(device):
    return torch.tensor([0, *torch.tensor(LENGTHS).cumsum(0)], dtype=torch.int32, device=device)


@pytest.mark.parametrize(("dtype", "causal"), [*zip([torch.float32, *HALVES], [True, False, True], strict=True)])
def test_K11_packed_sequences_forward_and_backward(device, dtype, causal):
    inputs = packed(dtype)
    at, reference = leaves(inputs, device=device), leaves(inputs, dtype=torch.float64)
    found, sums, *_ = torch.ops.aten._flash_attention_forward(
        *at, begins(device), begins(device), max(LENGTHS), max(LENGTHS), 0.0, causal, False
    )
    pieces = [attention(*part, causal=causal) for part in zip(*(x.split(LENGTHS) for x in reference), strict=True)]
    expected = torch.cat([out for out, _ in pieces])
    tolerances = FINE if dtype is torch.float32 else ROUGH
    close(found, expected.to(dtype), **tolerances)
    close(sums, torch.cat([sum for _, sum in pieces], 1).float(), rtol=1e-3, atol=1e-3)
    close_gradients(found, expected, zip(at, reference, strict=True), **tolerances)


def test_K11_varlen_attn(device):
    varlen = pytest.importorskip("torch.nn.attention.varlen")
    q, k, v = packed(torch.bfloat16, (4, 4))
    found = varlen.varlen_attn(
        *(x.to(device) for x in (q, k, v)), begins(device), begins(device), max(LENGTHS), max(LENGTHS)
    )
    pieces = [attention(*part)[0] for part in zip(*(x.float().split(LENGTHS) for x in (q, k, v)), strict=True)]
    close(found, torch.cat(pieces).bfloat16(), **ROUGH)


def test_K11_batches_windows_and_dropout(device, device_module):
    q, k, v = (numbers(2, 6, 2, 8, seed=i) for i in range(3))
    at = [x.to(device) for x in (q, k, v)]

    def flash(q, k, v, dropout=0.0, **options):
        return torch.ops.aten._flash_attention_forward(q, k, v, None, None, 6, 6, dropout, False, False, **options)

    out, sums, *_ = flash(*at, window_size_left=2, window_size_right=1)
    places = torch.arange(6)
    seen = (places - places[:, None] <= 1) & (places - places[:, None] >= -2)
    expected = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), attn_mask=seen).transpose(1, 2)
    close(out, expected, **FINE)
    assert sums.shape == (2, 2, 6)
    device_module.manual_seed(0)
    first = flash(*at, 0.5)
    device_module.manual_seed(0)
    assert torch.equal(first[0], flash(*at, 0.5)[0])
    assert not torch.equal(first[0], flash(*at, 0.5)[0])
    # The backward draws the same mask: the gradient of the values is that of a linear function.
    grads = torch.ops.aten._flash_attention_backward(
        torch.ones_like(first[0]), *at, first[0], first[1], None, None, 6, 6, 0.5, False, first[2], first[3]
    )
    assert torch.allclose((grads[2] * at[2]).sum(), first[0].sum(), rtol=1e-4)
    for option in ("alibi_slopes", "seqused_k"):
        with pytest.raises(NotImplementedError, match=f"does not support {option}"):
            flash(*at, **{option: at[0]})
    with pytest.raises(RuntimeError, match="heads in key/value must divide"):
        flash(at[0], *(x[:, :, :1].expand(2, 6, 3, 8) for x in at[1:]))


def test_K11_memory_efficient_attention(device):
    q, k, v = (numbers(2, 6, 2, 8, seed=i) for i in range(3))
    bias = numbers(2, 2, 6, 6, seed=3)
    at, reference = leaves((q, k, v, bias), device=device), leaves((q, k, v, bias), dtype=torch.float32)
    found, sums, *_ = torch.ops.aten._efficient_attention_forward(*at, None, None, 6, 6, 0.0, 1, True)
    mask = torch.ones(6, 6).triu(1).bool()
    heads = [x.transpose(1, 2) for x in reference[:3]]
    expected = F.scaled_dot_product_attention(*heads, attn_mask=reference[3].masked_fill(mask, -math.inf)).transpose(
        1, 2
    )
    close(found, expected, **FINE)
    assert sums.shape == (2, 2, 32)
    close_gradients(found, expected, zip(at, reference, strict=True), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_K12_nested_tensors_attend(device, dtype):
    """scaled_dot_product_attention of jagged nested tensors, forward and backward, as sequence by sequence."""
    parts = [[numbers(n, 2, 8, dtype=dtype, seed=7 * i + n) for n in LENGTHS] for i in range(3)]
    for causal in (False, True):
        at = [leaves(part, device=device) for part in parts]
        reference = [leaves(part, dtype=torch.float64) for part in parts]
        q, k, v = (torch.nested.as_nested_tensor(part, layout=torch.jagged).transpose(1, 2) for part in at)
        found = F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)
        expected = [attention(*each, causal=causal)[0] for each in zip(*reference, strict=True)]
        tolerances = FINE if dtype is torch.float32 else ROUGH
        assert found.device.type == device.type
        for a, b in zip(found.unbind(), expected, strict=True):
            close(a, b.to(dtype), **tolerances)
        pairs = zip(chain(*at), chain(*reference), strict=True)
        close_gradients(found.values(), torch.cat(expected), pairs, **tolerances)
