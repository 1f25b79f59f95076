"""timm: models of four kinds learn, features, its optimizers, an average of weights, mixup, against the CPU."""

import pytest
import timm
import timm.optim
import timm.utils
import torch
from beside import Stays, assert_computes, assert_learns, assert_same
from timm.data import Mixup

MODELS = {
    "vit": ("vit_tiny_patch16_224", {"img_size": 32, "depth": 2, "qkv_bias": False}),
    "convnext": ("convnext_atto", {}),
    "efficientnet": ("efficientnet_lite0", {}),
    "regnet": ("regnetx_002", {}),
}


def made(kind, classes=5):
    model, options = MODELS[kind]
    torch.manual_seed(8)
    return timm.create_model(model, num_classes=classes, **options)


def images(count=2):
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(9))


@pytest.mark.parametrize("kind", [pytest.param("vit", marks=pytest.mark.sample), *list(MODELS)[1:]])
def test_models_learn(device, kind):
    assert_learns(device, lambda: made(kind), images(), atol=1e-3, rtol=1e-2)


def test_features_of_each_stage(device):
    torch.manual_seed(8)
    model = timm.create_model("resnet10t", features_only=True).eval()
    assert_computes(device, lambda x: model.to(x.device)(x), images().requires_grad_(), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("name", ["adamw", "lamb", "lion", "adopt", "madgrad", "adafactorbv"])
def test_optimizers(device, name):
    """In float64: some go by the sign of a gradient that is almost zero."""

    def weights(place):
        model = made("vit").to(place, torch.float64)
        optimizer = timm.optim.create_optimizer_v2(model, opt=name, lr=1e-3, weight_decay=0.05)
        average = timm.utils.ModelEmaV3(model, decay=0.5)
        for _ in range(3):
            optimizer.zero_grad()
            model(images().to(model.head.weight)).square().mean().backward()
            timm.utils.dispatch_clip_grad(model.parameters(), 1.0)
            optimizer.step()
            average.update(model)
        states = [value for state in optimizer.state.values() for value in state.values()]
        return model.state_dict(), average.module.state_dict(), states

    *expected, _ = weights("cpu")
    with Stays(device):
        *found, states = weights(device)
    assert_same(found, expected, device)
    assert {value.device for value in states if isinstance(value, torch.Tensor) and value.dim()} == {device}


def test_mixup(device):
    mixed = Mixup(mixup_alpha=1.0, prob=1.0, num_classes=5)
    mixed._params_per_batch = lambda: (0.3, False)
    assert_computes(device, lambda x, y: mixed(x, y), images(), torch.tensor([1, 4]))
