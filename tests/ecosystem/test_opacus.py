"""Opacus: private steps by hooks, functorch and ghost clipping, noise of the device, against the CPU."""

import opacus
import pytest
import torch
from beside import Stays, assert_same
from opacus.optimizers import DPOptimizer
from torch import nn


def made():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.LayerNorm(144), nn.Linear(144, 3)
    )


def batches():
    generator = torch.Generator().manual_seed(2)
    return [(torch.randn(5, 1, 8, 8, generator=generator), torch.arange(5) % 3) for _ in range(3)]


def trained(place, how, noise=0.0):
    model = opacus.GradSampleModule(made().to(place), force_functorch=how == "functorch")
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        noise_multiplier=noise,
        max_grad_norm=0.7,
        expected_batch_size=5,
        generator=torch.Generator(place).manual_seed(3),
    )
    for x, y in batches():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x.to(place)), y.to(place)).backward()
        samples = [parameter.grad_sample for parameter in model.parameters()]
        optimizer.step()
    return model.state_dict(), samples


@pytest.mark.parametrize("how", [pytest.param("hooks", marks=pytest.mark.sample), "functorch"])
def test_clipped_steps(device, how):
    """Gradients of each sample, clipped, without noise."""
    expected = trained("cpu", how)
    with Stays(device):
        found = trained(device, how)
    assert_same(found, expected, device, atol=1e-5, rtol=1e-3)


def test_noise_is_drawn_on_the_device(device):
    weights, _ = trained(device, "hooks", noise=1.0)
    again, _ = trained(device, "hooks", noise=1.0)
    plain, _ = trained(device, "hooks")
    assert all(torch.equal(weights[key], again[key]) for key in weights)
    assert not any(torch.equal(weights[key], plain[key]) for key in weights)


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_an_engine_makes_all_private(device, mode):
    def private(place):
        rows = [(x, y) for xs, ys in batches() for x, y in zip(xs, ys, strict=True)]
        loader = torch.utils.data.DataLoader(rows, batch_size=5)
        model, criterion = made().to(place), nn.CrossEntropyLoss()
        model, optimizer, *changed, loader = opacus.PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            criterion=criterion,
            data_loader=loader,
            noise_multiplier=0.0,
            max_grad_norm=0.7,
            poisson_sampling=False,
            grad_sample_mode=mode,
        )
        (criterion,) = changed or [criterion]
        for x, y in loader:
            optimizer.zero_grad()
            criterion(model(x.to(place)), y.to(place)).backward()
            optimizer.step()
        return model.state_dict()

    assert_same(private(device), private("cpu"), device, atol=1e-5, rtol=1e-3)
