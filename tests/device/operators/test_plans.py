"""Results have the shapes, dtypes, strides and devices of torch's fake tensors, on which compiled programs rely."""

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from variants import sampled

from backplane_tools.conformance.fakes import FakeMode
from torch_backplane.testing.compare import strides_of

FORMATS = {
    "contiguous": lambda t: t.contiguous(),
    "channels last": lambda t: in_order(t, [0, *range(2, t.dim()), 1]),
    "reversed": lambda t: in_order(t, [*range(t.dim())][::-1]),
    "swapped": lambda t: in_order(t, [0, 2, 1, *range(3, t.dim())]) if t.dim() > 2 else t,
    "gaps": lambda t: t.repeat_interleave(2, -1)[..., ::2],
}


def in_order(t, order):
    return torch.empty_permuted(t.shape, order, dtype=t.dtype).copy_(t)


def placed(t, device, grad=True):
    """On the device with the same strides, gaps included."""
    whole = t.as_strided((t.untyped_storage().nbytes() // t.itemsize,), (1,), 0)
    copy = whole.to(device).as_strided(t.size(), t.stride(), t.storage_offset())
    return copy.requires_grad_(grad and t.is_floating_point())


def as_planned(device, call, *tensors):
    """Check each operator of the call and of its backward against its fake; return the result and the gradients."""
    x = [placed(t, device) for t in tensors]
    with FakeMode(device) as mode:
        result = call(*x)
        grads = torch.autograd.grad(result.square().sum(), [t for t in x if t.requires_grad], allow_unused=True)
    mode.check()
    return result, grads


CONVOLUTIONS = {
    "conv1d": (F.conv1d, (2, 4, 7), (6, 4, 3), {}),
    "conv2d": (F.conv2d, (2, 4, 7, 6), (6, 4, 3, 2), {"stride": 2, "padding": 1}),
    "depthwise": (F.conv2d, (2, 4, 7, 6), (8, 1, 3, 2), {"groups": 4}),
    "dilated": (F.conv2d, (2, 4, 7, 6), (6, 4, 3, 2), {"dilation": 2}),
    "pointwise": (F.conv2d, (2, 4, 7, 6), (6, 4, 1, 1), {}),
    "conv3d": (F.conv3d, (2, 4, 5, 4, 4), (6, 4, 2, 2, 2), {}),
    "transposed": (F.conv_transpose2d, (2, 4, 7, 6), (4, 6, 3, 2), {"stride": 2}),
    "transposed 1d": (F.conv_transpose1d, (2, 4, 7), (4, 6, 3), {"groups": 2}),
    "transposed 3d": (F.conv_transpose3d, (2, 4, 5, 4, 4), (4, 6, 2, 2, 2), {}),
}


@pytest.mark.parametrize(
    ("format", "of_weight", "name"), sampled(7, FORMATS, ["contiguous", "channels last"], CONVOLUTIONS)
)
def test_convolutions(device, format, of_weight, name):
    function, shape, weight, options = CONVOLUTIONS[name]
    torch.manual_seed(0)
    x, w = FORMATS[format](torch.randn(shape)), FORMATS[of_weight](torch.randn(weight))
    result, grads = as_planned(device, lambda x, w: function(x, w, **options), x, w)
    leaves = x.requires_grad_(), w.requires_grad_()
    expected = function(*leaves, **options)
    for a, b in zip((result, *grads), (expected, *torch.autograd.grad(expected.square().sum(), leaves)), strict=True):
        assert a.stride() == b.stride()
        torch.testing.assert_close(a.cpu(), b, rtol=1e-4, atol=1e-3)


ATTENTION = {
    "plain": {},
    "causal": {"is_causal": True},
    "scaled": {"scale": 0.3},
    "dropout": {"dropout_p": 0.5},
    "grouped": {"enable_gqa": True},
}


def attend(device, *tensors, **options):
    with sdpa_kernel(SDPBackend.OVERRIDEABLE):
        as_planned(device, lambda *t: F.scaled_dot_product_attention(*t, **options), *tensors)


@pytest.mark.parametrize(
    ("value_size", "of_keys", "format", "kind"),
    sampled(7, [8, 6], ["contiguous", "swapped", "gaps"], FORMATS, ATTENTION),
)
def test_E26_E27_attention_is_as_its_fakes(device, value_size, of_keys, format, kind):
    torch.manual_seed(0)
    heads = 2 if kind == "grouped" else 4
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, heads, 7, 8), torch.randn(2, heads, 7, value_size)
    attend(device, FORMATS[format](q), FORMATS[of_keys](k), FORMATS[of_keys](v), **ATTENTION[kind])


@pytest.mark.parametrize(
    ("format", "kind", "shape"), sampled(7, FORMATS, ["bool", "float"], [(5, 7), (2, 1, 5, 7), (2, 4, 5, 7)])
)
def test_E26_E27_attention_with_a_mask_is_as_its_fakes(device, shape, kind, format):
    torch.manual_seed(0)
    q, k = FORMATS[format](torch.randn(2, 4, 5, 8)), FORMATS[format](torch.randn(2, 4, 7, 8))
    mask = FORMATS[format](torch.randn(shape))
    if kind == "bool":
        mask = mask > -1
    attend(device, q, k, k, mask)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_E26_the_sums_of_attention_lie_row_by_row(device, dtype):
    q = torch.randn(2, 2, 16, 8).to(device, dtype)
    results = torch.ops.aten._scaled_dot_product_fused_attention_overrideable(q, q, q)
    assert results[0].stride() == q.stride()
    assert (results[1].shape, results[1].stride()) == ((2, 2, 16), (32, 16, 1))
    expected = torch.logsumexp(q.cpu().double() @ q.cpu().double().mT / 8**0.5, -1)
    torch.testing.assert_close(results[1].cpu().double(), expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(("format", "train"), sampled(3, FORMATS, [True, False]))
def test_dropout(device, format, train):
    as_planned(device, lambda x: torch.native_dropout(x, 0.5, train)[0] * 2, FORMATS[format](torch.randn(2, 3, 4, 5)))


@pytest.mark.parametrize(
    ("op", "shape", "format"),
    sampled(7, [F.pixel_shuffle, F.pixel_unshuffle], [(2, 8, 4, 6), (1, 4, 2, 2), (8, 4, 6)], FORMATS),
)
def test_shuffled_pixels(device, op, shape, format):
    x = FORMATS[format](torch.randn(shape))
    result, _ = as_planned(device, lambda x: op(x, 2), x)
    expected = op(x, 2)
    assert result.is_contiguous() if op is F.pixel_shuffle else strides_of(result) == strides_of(expected)
    assert torch.equal(result.detach().cpu(), expected)


@pytest.mark.parametrize(
    ("mode", "include_last", "grad"), sampled(5, ["sum", "mean", "max"], [False, True], [False, True])
)
def test_embedding_bags(device, mode, include_last, grad):
    torch.manual_seed(0)
    weight, index = torch.randn(10, 4), torch.tensor([1, 2, 4, 5, 4, 3, 2, 9])
    offsets = torch.tensor([0, 3, 3, 8][: 4 if include_last else 3])
    modes = {"sum": 0, "mean": 1, "max": 2}

    def run(on):
        w = weight.to(on).requires_grad_(grad)
        results = torch.embedding_bag(w, index.to(on), offsets.to(on), False, modes[mode], False, None, include_last)
        return (*results, *(torch.autograd.grad(results[0].sin().sum(), w) if grad else ()))

    with FakeMode(device) as seen:
        found = run(device)
    seen.check()
    for i in (0, *range(4, len(found))):
        torch.testing.assert_close(found[i].cpu(), run("cpu")[i])
    assert found[1].tolist() == [0, 0, 0, 2, 2, 2, 2, 2]  # the bag of each index


# Their arguments after the running statistics.
NORMS = {
    "native_batch_norm": (False, 0.1, 1e-5),
    "_native_batch_norm_legit": (False, 0.1, 1e-5),
    "_native_batch_norm_legit_no_training": (0.1, 1e-5),
}


@pytest.mark.parametrize(
    ("parameters", "dtype", "name"),
    sampled(5, ["same", "float32"], [torch.float32, torch.float64, torch.bfloat16, torch.float16], NORMS),
)
def test_a_batch_norm_in_evaluation_returns_the_statistics_that_it_used(device, parameters, dtype, name):
    """With parameters of the same dtype, or of float32."""
    of = dtype if parameters == "same" or dtype == torch.float64 else torch.float32
    x, *rest = torch.randn(4, 3, 5).to(dtype), *(torch.rand(4, 3).add(0.5).to(of).unbind(0))
    _, mean, rstd = getattr(torch.ops.aten, name)(x.to(device), *(t.to(device) for t in rest), *NORMS[name])
    compute = torch.float64 if dtype == torch.float64 else torch.float32
    assert (mean.dtype, rstd.dtype) == (compute, compute)
    torch.testing.assert_close(mean.cpu(), rest[2].to(compute))
    torch.testing.assert_close(rstd.cpu(), (rest[3].to(compute) + 1e-5).rsqrt())
