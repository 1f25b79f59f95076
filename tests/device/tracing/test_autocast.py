"""torch.autocast on the device: contract row D10, and torch's own lists of operators."""

import pytest
import torch

KEY = "AutocastPrivateUse1"


def autocast(device, dtype=torch.bfloat16, **options):
    return torch.autocast(device.type, dtype=dtype, **options)


@pytest.fixture
def x(device):
    return torch.full((4, 4), 0.5, device=device)


def test_d10_operators_without_a_rule_pass(device, x):
    with autocast(device):
        assert (x + x).dtype == torch.float32
        assert (x.bfloat16() + x.bfloat16()).dtype == torch.bfloat16
        assert torch.cat([x, x.half()]).dtype == torch.float32
        assert x.view(-1).sum().item() == 8


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_d10_matrix_products_are_done_in_low_precision(device, x, dtype):
    with autocast(device, dtype):
        assert (x @ x).dtype == dtype
        assert torch.nn.functional.linear(x, x).dtype == dtype
        assert torch.addmm(x, x, x).dtype == dtype
        assert torch.nn.functional.conv1d(x, x.view(4, 4, 1)).dtype == dtype
        assert torch.equal((x @ x).float().cpu(), torch.ones(4, 4))
    assert (x @ x).dtype == torch.float32


def test_d10_what_needs_range_is_done_in_float32(device, x):
    low = x.bfloat16()
    with autocast(device):
        for op in (torch.exp, torch.log, torch.rsqrt, lambda t: t.pow(2), torch.nn.functional.softplus):
            assert op(low).dtype == torch.float32
        assert torch.nn.functional.layer_norm(low, (4,)).dtype == torch.float32
        assert torch.nn.functional.mse_loss(low, low).dtype == torch.float32


def test_d10_reductions_accumulate_in_float32_unless_a_dtype_is_given(device, x):
    low = x.bfloat16()
    with autocast(device):
        assert low.sum().dtype == torch.float32
        assert low.softmax(-1).dtype == torch.float32
        assert low.sum(dtype=torch.bfloat16).dtype == torch.bfloat16
        assert low.norm().dtype == torch.float32


def test_d10_mixed_arguments_are_promoted(device, x):
    with autocast(device):
        assert torch.addcmul(x, x.bfloat16(), x.bfloat16()).dtype == torch.float32
        assert torch.dot(x[0].bfloat16(), x[0]).dtype == torch.float32


def test_d10_double_and_integers_are_not_cast(device, x):
    with autocast(device):
        assert (x.double() @ x.double()).dtype == torch.float64
        assert (torch.ones(2, 2, dtype=torch.int64, device=device) + 1).dtype == torch.int64


def test_d10_an_unsafe_loss_is_refused_by_name(device, x):
    with autocast(device), pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"):
        torch.nn.functional.binary_cross_entropy(x, x)


def test_d10_a_disabled_region_inside(device, x):
    with autocast(device), autocast(device, enabled=False):
        assert (x @ x).dtype == torch.float32


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
        loss = torch.nn.functional.mse_loss(out, torch.zeros_like(out))
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


def test_d10_norms_along_dimensions_are_done_in_float32(device, x):
    with autocast(device):
        assert x.bfloat16().norm(2, 1).dtype == torch.float32
        assert torch.equal(x.bfloat16().norm(2, [0, 1], True).cpu(), torch.full((1, 1), 2.0))
        assert (x.double().norm().dtype, x.double().norm(2, 1).dtype) == (torch.float64, torch.float64)


@pytest.mark.once
def test_d10_autocast_does_not_depend_on_the_dtypes_of_the_hardware(run_in_process, name, shim):
    """A device that lists only float32 computes half types on the CPU, and autocasts to both."""
    code = f"""
    import torch
    assert torch.{name}.get_device_properties().dtypes == (torch.float32,)
    assert torch.{name}.get_amp_supported_dtype() == [torch.float16, torch.bfloat16]
    x = torch.eye(3, device="{name}")
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("{name}", dtype=dtype):
            y = x @ x
        assert y.dtype == dtype, y.dtype
        assert torch.equal(y.float().cpu(), torch.eye(3))
    """
    result = run_in_process(code, env={f"{name.upper()}_SHIMS": shim("narrow_dtypes")})
    assert "not supported" not in result.stderr
