"""Models train by compiled kernels alone: nothing of a step goes to the CPU, and it is the CPU's step."""

import copy

import pytest
import torch
from torch import nn

from portable import models
from portable.compare import each
from portable.models import assert_near, images, loss_of, of_classes, of_tokens, tokens
from torch_backplane import fallback


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["CNN", "GPT"])
def test_F10_a_models_step_is_computed_by_compiled_kernels_alone(device, demo, name):
    cnn, gpt, lockstep = demo
    if name == "CNN":
        images, labels, _, _ = cnn.digits()
        model, batches = cnn.network(), list(cnn.batches(images, labels, 3))
    else:
        text = gpt.repository_text()
        torch.manual_seed(0)
        model = gpt.GPT(len(text.characters), width=32, layers=2)
        batches = list(text.batches(3, 4, model.context))
    twin = copy.deepcopy(model)
    model.to(device)
    with fallback.budget(calls=0):
        losses = list(lockstep.train(model, batches))
    expected = list(lockstep.train(twin, batches))
    assert losses[0] == pytest.approx(expected[0], abs=1e-4)
    assert losses[-1] == pytest.approx(expected[-1], abs=1e-2)


def twice_as_large(x):
    """Nearest upsampling."""
    return x.repeat_interleave(2, -1).repeat_interleave(2, -2)


MODELS = {
    "resnet": (lambda: of_classes(models.ResNet()), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    "vit": (lambda: of_classes(models.ViT(image=32, patch=8)), lambda p: torch.optim.AdamW(p, lr=1e-3)),
    "llama": (lambda: of_tokens(models.Llama(50), 50), lambda p: torch.optim.AdamW(p, lr=1e-3)),
    "lstm": (lambda: of_tokens(models.Recurrent(nn.LSTM), 30), lambda p: torch.optim.Adam(p, lr=1e-3)),
    "gru": (lambda: of_tokens(models.Recurrent(nn.GRU), 30), lambda p: torch.optim.Adam(p, lr=1e-3)),
    "bidirectional lstm": (
        lambda: of_tokens(models.Recurrent(nn.LSTM, bidirectional=True), 30),
        lambda p: torch.optim.RMSprop(p, lr=1e-3),
    ),
    "unet": (lambda: (models.UNet(), images(16), images(16).flip(0)), lambda p: torch.optim.Adam(p, lr=1e-3)),
    "unet, nearest": (
        lambda: (models.UNet(nearest=twice_as_large), images(16), images(16).flip(0)),
        lambda p: torch.optim.Adam(p, lr=1e-3),
    ),
}


def on_cpu(named):
    return {name: t.detach().cpu() for name, t in named}


def check(device, name, half, steps, loss_tolerance, tolerance):
    """Each step from the device's weights: the loss and gradients beside the CPU's in float32, the optimizer's step
    beside the CPU's from the same gradients."""
    torch.manual_seed(0)
    make, optimizer = MODELS[name]
    twin, inputs, targets = make()
    model = copy.deepcopy(twin).to(device)
    ours, theirs = optimizer(model.parameters()), optimizer(twin.parameters())
    for _ in range(steps):
        with fallback.budget(calls=0):
            loss = loss_of(model, inputs, targets, half=half)
        assert loss == pytest.approx(loss_of(twin, inputs, targets), rel=loss_tolerance)
        expected, got = ({name: p.grad.cpu() for name, p in one.named_parameters()} for one in (twin, model))
        assert_near(got, expected, tolerance)
        for parameter, gradient in zip(twin.parameters(), got.values(), strict=True):
            parameter.grad.copy_(gradient)
        with fallback.budget(calls=0):
            ours.step()
        theirs.step()
        pairs = (on_cpu(model.named_parameters()), on_cpu(twin.named_parameters()))
        torch.testing.assert_close(*pairs, rtol=1e-4, atol=1e-5)
        pairs = (on_cpu(model.named_buffers()), on_cpu(twin.named_buffers()))
        torch.testing.assert_close(*pairs, rtol=loss_tolerance, atol=loss_tolerance)
        twin.load_state_dict(model.state_dict())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", MODELS)
def test_F10_a_training_step_is_the_cpus(device, name):
    check(device, name, None, steps=2, loss_tolerance=1e-5, tolerance=1e-4)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", MODELS)
def test_F10_a_training_step_under_autocast_is_near_the_cpus(device, name):
    # Batch norms of few values scale up what rounding does; the CPU's own autocast is as far from float32.
    check(device, name, torch.bfloat16, steps=2, loss_tolerance=2e-2, tolerance=0.5 if name == "resnet" else 0.1)


@pytest.mark.parametrize("dtype", each([torch.float32, torch.bfloat16]))
@pytest.mark.parametrize("groups", each([2, 4]))
def test_F10_a_llama_generates_with_a_cache(device, groups, dtype):
    torch.manual_seed(0)
    twin = models.Llama(50, groups=groups).to(dtype)
    model = copy.deepcopy(twin).to(device)
    prompt = tokens(50, 5)
    with fallback.budget(calls=0):
        got = model.generate(prompt.to(device), 8, models.greedy)
        expected_logits = model(got[:, :-1])  # without a cache
    expected = twin.generate(prompt, 8, models.greedy)
    if dtype == torch.float32:
        assert got.tolist() == expected.tolist()
        assert expected_logits.argmax(-1)[:, 4:].tolist() == got[:, 5:].tolist()
    logits = twin(got[:, :-1].cpu())
    tolerance = 1e-5 if dtype == torch.float32 else 5e-2
    torch.testing.assert_close(expected_logits.cpu(), logits, rtol=tolerance, atol=tolerance)


def test_F10_a_llama_samples(device):
    torch.manual_seed(0)
    model = models.Llama(50).to(device)
    prompt = tokens(50, 5).to(device)
    texts = []
    for _ in range(2):
        torch.manual_seed(3)
        with fallback.budget(calls=0):
            texts.append(model.generate(prompt, 8, models.sampled))
    assert texts[0].tolist() == texts[1].tolist()
    assert texts[0].tolist() != model.generate(prompt, 8, models.sampled).tolist()
    assert texts[0].shape == (3, 13)
    assert texts[0].min() >= 0
    assert texts[0].max() < 50
