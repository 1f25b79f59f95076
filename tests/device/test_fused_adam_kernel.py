"""The example kernel of a fused optimizer step: Adam and AdamW in every form, against the CPU's."""

import pytest
import torch

pytestmark = pytest.mark.requires("host_exec")

OPTIMIZERS = {"_fused_adam_": torch.optim.Adam, "_fused_adamw_": torch.optim.AdamW}
SHAPES = [(33, 5), (7,), (), (64, 64)]


def parameters(dtype, device):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator).to(dtype).to(device).requires_grad_() for shape in SHAPES]


def train(optimizer, where, steps=3, dtype=torch.float32, view=lambda x: x, **options):
    leaves = [view(p.detach()).requires_grad_() for p in parameters(dtype, where)]
    made = optimizer(leaves, lr=0.01, fused=True, **options)
    generator = torch.Generator().manual_seed(2)
    for _ in range(steps):
        for leaf in leaves:
            grad = torch.randn(leaf.shape, generator=generator).to(dtype).to(where)
            leaf.grad = grad if view(grad).stride() == grad.stride() else view(grad)
        made.step()
    return leaves, made


@pytest.mark.parametrize("op", OPTIMIZERS)
@pytest.mark.parametrize(
    "options", [{}, {"amsgrad": True}, {"maximize": True}, {"weight_decay": 0.3, "amsgrad": True}], ids=str
)
def test_a_step_equals_the_cpus(device, kernel_calls, op, options):
    before = kernel_calls(op)
    ours, made = train(OPTIMIZERS[op], device, **options)
    assert kernel_calls(op) - before == 3
    theirs, other = train(OPTIMIZERS[op], "cpu", **options)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.detach().cpu(), b.detach(), rtol=2e-6, atol=2e-6)
        for name, value in other.state[b].items():
            torch.testing.assert_close(made.state[a][name].cpu(), value, rtol=2e-6, atol=2e-6)


def test_other_dtypes_go_to_the_fallback(device, kernel_calls):
    before = kernel_calls("_fused_adamw_")
    ours, _ = train(torch.optim.AdamW, device, dtype=torch.float64)
    theirs, _ = train(torch.optim.AdamW, "cpu", dtype=torch.float64)
    assert kernel_calls("_fused_adamw_") == before
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.detach().cpu(), b.detach())


def fused(where, scale, found_inf):
    p, grad, mean, square = (torch.full((9,), value, device=where) for value in (1.0, 8.0, 0.5, 0.25))
    settings = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8}
    scaler = {"grad_scale": torch.tensor(scale, device=where), "found_inf": torch.tensor(found_inf, device=where)}
    step = torch.tensor(3.0, device=where)
    torch._fused_adamw_([p], [grad], [mean], [square], [], [step], amsgrad=False, maximize=False, **settings, **scaler)
    return [t.cpu() for t in (p, grad, mean, square)]


@pytest.mark.parametrize("found_inf", [0.0, 1.0])
def test_a_gradient_scaler(device, kernel_calls, found_inf):
    before = kernel_calls("_fused_adamw_")
    ours = fused(device, 4.0, found_inf)
    assert kernel_calls("_fused_adamw_") - before == 1
    torch.testing.assert_close(ours, fused("cpu", 4.0, found_inf))
    assert ours[0][0].item() == 1.0 if found_inf else ours[0][0].item() < 1.0
