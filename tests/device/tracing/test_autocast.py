"""torch.autocast on the device: contract row D10, and torch's own lists of operators."""

import pytest
import torch

KEY = "AutocastPrivateUse1"


def autocast(device, dtype=torch.bfloat16, **options):
    return torch.autocast(device.type, dtype=dtype, **options)


@pytest.fixture
def x(device):
    return torch.full((4, 4), 0.5, device=device)


F = torch.nn.functional
# Of a call with float32 x and bfloat16 low, the dtype under autocast to bfloat16.
RULES = {
    "no rule": (torch.float32, lambda x, low: x + x),
    "no rule, low": (torch.bfloat16, lambda x, low: low + low),
    "no rule, a list": (torch.float32, lambda x, low: torch.cat([x, x.half()])),
    "exp": (torch.float32, lambda x, low: low.exp()),
    "log": (torch.float32, lambda x, low: low.log()),
    "rsqrt": (torch.float32, lambda x, low: low.rsqrt()),
    "pow": (torch.float32, lambda x, low: low.pow(2)),
    "softplus": (torch.float32, lambda x, low: F.softplus(low)),
    "layer_norm": (torch.float32, lambda x, low: F.layer_norm(low, (4,))),
    "mse_loss": (torch.float32, lambda x, low: F.mse_loss(low, low)),
    "sum": (torch.float32, lambda x, low: low.sum()),
    "sum with a dtype": (torch.bfloat16, lambda x, low: low.sum(dtype=torch.bfloat16)),
    "softmax": (torch.float32, lambda x, low: low.softmax(-1)),
    "norm": (torch.float32, lambda x, low: low.norm()),
    "norm along a dimension": (torch.float32, lambda x, low: low.norm(2, 1)),
    "norm of doubles": (torch.float64, lambda x, low: x.double().norm()),
    "norm of doubles along a dimension": (torch.float64, lambda x, low: x.double().norm(2, 1)),
    "addcmul, promoted": (torch.float32, lambda x, low: torch.addcmul(x, low, low)),
    "dot, promoted": (torch.float32, lambda x, low: torch.dot(low[0], x[0])),
    "matmul of doubles": (torch.float64, lambda x, low: x.double() @ x.double()),
    "integers": (torch.int64, lambda x, low: x.long() + 1),
}


@pytest.mark.parametrize(("dtype", "call"), RULES.values(), ids=RULES.keys())
def test_d10_rules(device, x, dtype, call):
    low = x.bfloat16()
    with autocast(device):
        assert call(x, low).dtype == dtype


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_d10_matrix_products_are_done_in_low_precision(device, x, dtype):
    with autocast(device, dtype):
        assert (x @ x).dtype == dtype
        assert F.linear(x, x).dtype == dtype
        assert torch.addmm(x, x, x).dtype == dtype
        assert F.conv1d(x, x.view(4, 4, 1)).dtype == dtype
        assert torch.equal((x @ x).float().cpu(), torch.ones(4, 4))
        with autocast(device, enabled=False):
            assert (x @ x).dtype == torch.float32
    assert (x @ x).dtype == torch.float32


def test_d10_an_unsafe_loss_is_refused_by_name(device, x):
    with autocast(device), pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"):
        F.binary_cross_entropy(x, x)


def test_d10_a_weight_is_cast_once_a_region(device):
    weight = torch.ones(4, 4, device=device, requires_grad=True)
    with autocast(device):
        first = torch.mm(weight.detach().clone(), weight)
        second = torch.mm(weight.detach().clone(), weight)
        cast = [node.next_functions[1][0] for node in (first.grad_fn, second.grad_fn)]
    assert cast[0] is not None
    assert cast[0] == cast[1]


def test_d10_gradients_have_the_dtype_of_the_parameters(device):
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 1)).to(device)
    with autocast(device):
        out = model(torch.ones(3, 4, device=device))
        assert out.dtype == torch.bfloat16
        loss = F.mse_loss(out, torch.zeros_like(out))
    loss.backward()
    assert {p.grad.dtype for p in model.parameters()} == {torch.float32}
    assert all(p.grad.isfinite().all().item() for p in model.parameters())


def test_d10_the_device_is_offered_by_torch(device):
    kind = device.type
    assert torch.amp.is_autocast_available(kind)
    with autocast(device):
        assert torch.is_autocast_enabled(kind)
        assert torch.get_autocast_dtype(kind) == torch.bfloat16


def test_every_operator_with_a_rule_on_cuda_has_one_here():
    def with_rule(key):
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        return {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::") and has(name, key)}

    expected = {name for name in with_rule("AutocastCUDA") if "cudnn" not in name}
    assert len(expected) > 90
    assert expected == with_rule(KEY)


def test_d10_an_argument_of_another_low_precision_is_refused(device, x):
    with (
        autocast(device),
        pytest.raises(RuntimeError, match=r"aten::dot under autocast to BFloat16 got a tensor of Half"),
    ):
        torch.dot(x[0].half(), x[0].half())


def test_d10_a_norm_keeps_its_dimensions(device, x):
    with autocast(device):
        assert torch.equal(x.bfloat16().norm(2, [0, 1], True).cpu(), torch.full((1, 1), 2.0))


@pytest.mark.once
def test_d10_autocast_does_not_depend_on_the_dtypes_of_the_hardware(printed):
    """A device that lists only float32 computes half types on the CPU, and autocasts to both."""
    code = """
        import warnings
        warnings.simplefilter("error")
        assert m.get_device_properties().dtypes == (torch.float32,)
        assert m.get_amp_supported_dtype() == [torch.float16, torch.bfloat16]
        x = torch.eye(3, device=d)
        for dtype in (torch.bfloat16, torch.float16):
            with torch.autocast(d, dtype=dtype):
                y = x @ x
            assert y.dtype == dtype, y.dtype
            assert torch.equal(y.float().cpu(), torch.eye(3))
        print("fine")
    """
    assert printed(code, shim_name="narrow_dtypes") == "fine\n"
