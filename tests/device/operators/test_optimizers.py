"""Optimizers in every form (loop, foreach, fused) step as on the CPU, and have the accelerator's defaults."""

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
CHOICE = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
FORMS = [(name, form) for form in CHOICE for name in (FUSED if form == "fused" else OPTIMIZERS)]


def trained(on, name, scaler=False, **options):
    """The parameters and the state after a few steps, on the CPU."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)).to(on)
    optimizer = getattr(torch.optim, name)(model.parameters(), **OPTIMIZERS[name], **options)
    scale = torch.amp.GradScaler(torch.device(on).type, init_scale=8.0, enabled=scaler)
    x = torch.randn(7, 6).to(on)
    for _ in range(3):
        optimizer.zero_grad()
        scale.scale(model(x).square().sum()).backward()
        scale.step(optimizer)
        scale.update()
    state = [v for s in optimizer.state_dict()["state"].values() for v in s.values() if isinstance(v, torch.Tensor)]
    return [t.detach().cpu() for t in (*model.parameters(), *state)]


@pytest.mark.parametrize(("name", "form"), FORMS, ids=lambda v: v)
def test_an_optimizer_steps_as_on_the_cpu(device, name, form):
    """A fused one with a gradient scaler, too."""
    expected = trained("cpu", name, foreach=False)
    for scaler in (False, True) if form == "fused" else (False,):
        for a, b in zip(trained(device, name, scaler, **CHOICE[form]), expected, strict=True):
            torch.testing.assert_close(a, b.view(a.shape).to(a.dtype), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", FUSED)
def test_a_fused_step_is_skipped_if_a_gradient_is_infinite(device, name):
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
