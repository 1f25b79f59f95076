"""Whole models train on the device, by its kernels or the CPU fallback, as on the CPU: losses within 1e-4 of the CPU's.

tests/portable/test_models.py trains them, and others, by compiled kernels alone.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.portable import models

STEPS = 12


def images():
    return torch.randn(8, 3, 16, 16), torch.randint(0, 10, (8,))


def sentences():
    tokens = torch.randint(0, 30, (4, 17))
    return tokens[:, :-1], tokens[:, 1:].flatten()


def shifted():
    x = torch.rand(2, 3, 16, 16)
    return x, x.roll(1, -1)


MODELS = {
    "resnet": (models.ResNet, images, F.cross_entropy, lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9)),
    "lstm": (lambda: models.Recurrent(nn.LSTM), sentences, F.cross_entropy, lambda p: torch.optim.Adam(p, lr=1e-2)),
    "llama": (lambda: models.Llama(30), sentences, F.cross_entropy, lambda p: torch.optim.AdamW(p, lr=3e-3)),
    "u-net": (models.UNet, shifted, F.mse_loss, lambda p: torch.optim.RMSprop(p, lr=1e-3)),
}


def train(on, make, data, loss_of, optimizer_of):
    """The loss of every step; the model is made and the data drawn on the CPU, so that both runs begin alike."""
    torch.manual_seed(0)
    model = make().to(on)
    inputs, target = (t.to(on) for t in data())
    optimizer = optimizer_of(model.parameters())
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        y = model(inputs)
        loss = loss_of(y if target.is_floating_point() else y.flatten(0, -2), target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_a_model_trains_as_on_the_cpu(device, model):
    expected, found = train("cpu", *model), train(device, *model)
    assert found[-1] < 0.9 * found[0]
    assert found == pytest.approx(expected, rel=1e-4)
