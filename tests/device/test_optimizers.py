"""Optimizers in every form (loop, foreach, fused) step as on the CPU, and take the accelerator's defaults."""

import pytest
import torch
from torch.optim.optimizer import _default_to_fused_or_foreach

OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True},
    "Adam": {"lr": 0.1, "amsgrad": True, "weight_decay": 0.01},
    "AdamW": {"lr": 0.1},
    "Adagrad": {"lr": 0.1, "lr_decay": 0.1},
    "RMSprop": {"lr": 0.01, "momentum": 0.5, "centered": True},
    "Adadelta": {},
    "Adamax": {},
    "NAdam": {},
    "RAdam": {},
    "ASGD": {},
    "Rprop": {},
}
FUSED = ["SGD", "Adam", "AdamW", "Adagrad"]
FORMS = [(name, form) for name in OPTIMIZERS for form in ("default", "loop", "foreach")] + [(n, "fused") for n in FUSED]
CHOICE = {"default": {}, "loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}


def trained(on, name, scaler=False, steps=4, **options):
    """The parameters and the state after a few steps, on the CPU."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)).to(on)
    optimizer = getattr(torch.optim, name)(model.parameters(), **OPTIMIZERS[name], **options)
    scale = torch.amp.GradScaler(torch.device(on).type, init_scale=8.0, enabled=scaler)
    x = torch.randn(7, 6).to(on)
    for _ in range(steps):
        optimizer.zero_grad()
        scale.scale(model(x).square().sum()).backward()
        scale.step(optimizer)
        scale.update()
    state = [v for s in optimizer.state_dict()["state"].values() for v in s.values() if isinstance(v, torch.Tensor)]
    return [t.detach().cpu() for t in (*model.parameters(), *state)]


@pytest.mark.parametrize(("name", "form"), FORMS, ids=lambda v: v)
def test_an_optimizer_steps_as_on_the_cpu(device, name, form):
    expected, found = trained("cpu", name, foreach=False), trained(device, name, **CHOICE[form])
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b.view(a.shape).to(a.dtype), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", FUSED)
def test_a_fused_optimizer_with_a_gradient_scaler(device, name):
    expected = trained("cpu", name, foreach=False)
    for a, b in zip(trained(device, name, scaler=True, fused=True), expected, strict=True):
        torch.testing.assert_close(a, b.view(a.shape).to(a.dtype), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", FUSED)
def test_a_fused_step_is_skipped_where_a_gradient_is_infinite(device, name):
    parameter = torch.nn.Parameter(torch.ones(3, device=device))
    optimizer = getattr(torch.optim, name)([parameter], lr=0.1, fused=True)
    scaler = torch.amp.GradScaler(device.type, init_scale=4.0)
    scaler.scale(parameter.sum() * float("inf")).backward()
    scaler.step(optimizer)
    scaler.update()
    assert parameter.tolist() == [1, 1, 1]
    assert scaler.get_scale() == 2.0


def test_foreach_is_the_default_on_the_device(device):
    x = torch.nn.Parameter(torch.ones(2, device=device))
    assert _default_to_fused_or_foreach([x], differentiable=False, use_fused=False) == (False, True)
    assert _default_to_fused_or_foreach([x], differentiable=False, use_fused=True) == (True, False)


FOREACH = {
    "add scalar": lambda x: torch._foreach_add(x, 2),
    "add lists": lambda x: torch._foreach_add(x, x, alpha=3),
    "add a tensor": lambda x: torch._foreach_add(x, x[0].new_tensor(2.0)),
    "mul scalars": lambda x: torch._foreach_mul(x, [1.0, 2.0, 3.0]),
    "addcdiv": lambda x: torch._foreach_addcdiv(x, x, [t + 3 for t in x], 0.5),
    "addcmul": lambda x: torch._foreach_addcmul(x, x, x, value=2),
    "lerp": lambda x: torch._foreach_lerp(x, [t * 2 for t in x], 0.3),
    "norm": torch._foreach_norm,
    "max": torch._foreach_max,
    "sqrt": lambda x: torch._foreach_sqrt([t.abs() for t in x]),
    "pow": lambda x: torch._foreach_pow(2.0, x),
    "clamp": lambda x: torch._foreach_clamp_max(x, 0.5),
    "sign": torch._foreach_sign,
    "of mixed dtypes": lambda x: torch._foreach_add([x[0], x[1].double(), x[2].to(torch.int32)], 1),
}


@pytest.mark.parametrize("function", FOREACH.values(), ids=FOREACH.keys())
def test_foreach_functions_equal_the_cpus(device, function):
    lists = [torch.arange(6.0).view(2, 3) - 2, torch.ones(4, 2).t(), torch.tensor(3.0)]
    for a, b in zip(function([t.to(device) for t in lists]), function(lists), strict=True):
        assert (a.device.type, a.dtype, a.stride()) == (device.type, b.dtype, b.stride())
        torch.testing.assert_close(a.cpu(), b)


def test_clipping_gradients(device):
    norms = []
    for on in ("cpu", device):
        parameters = [torch.nn.Parameter(torch.arange(float(n), device=on)) for n in (3, 5)]
        for p in parameters:
            p.grad = p.detach() * 2
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, 1.0).item())
        norms.append(torch.nn.utils.get_total_norm([p.grad for p in parameters]).item())
        torch.nn.utils.clip_grad_value_(parameters, 0.1)
        assert max(p.grad.abs().max().item() for p in parameters) <= 0.1 + 1e-6
    assert norms[:2] == pytest.approx(norms[2:])
