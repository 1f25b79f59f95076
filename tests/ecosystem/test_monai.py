"""MONAI: networks of volumes learn, losses, metrics, inference by windows, transforms, against the CPU."""

import pytest
import torch
from beside import assert_computes, assert_learns, assert_same
from monai import inferers, losses, metrics, networks, transforms


def drawn(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(2))


def labels(*shape):
    return (drawn(*shape) > 0.7).float()


def net(kind="unet"):
    if kind == "unet":
        return networks.nets.UNet(3, 1, 2, channels=(4, 8, 16), strides=(2, 2), num_res_units=1, norm="instance")
    if kind == "segresnet":
        return networks.nets.SegResNet(
            init_filters=8, in_channels=1, out_channels=2, blocks_down=(1, 1), blocks_up=(1,)
        )
    return networks.nets.ViT(1, (16, 16, 16), (8, 8, 8), hidden_size=16, mlp_dim=32, num_layers=2, num_heads=2)


@pytest.mark.parametrize("kind", [pytest.param("unet", marks=pytest.mark.sample), "segresnet"])
def test_segmentation(device, kind):
    dice = losses.DiceCELoss(to_onehot_y=True, softmax=True)
    assert_learns(
        device, lambda: net(kind), drawn(2, 1, 16, 16, 16), labels(2, 1, 16, 16, 16),
        loss=lambda model, volume, label: dice(model(volume), label), atol=1e-4, rtol=1e-3,
    )  # fmt: skip


def test_a_vision_transformer(device):
    assert_learns(
        device, lambda: net("vit"), drawn(2, 1, 16, 16, 16), atol=1e-4, rtol=1e-3,
        loss=lambda model, volume: model(volume)[0].square().mean(),
    )  # fmt: skip


@pytest.mark.parametrize(
    "loss",
    [losses.DiceLoss(sigmoid=True), losses.FocalLoss(), losses.TverskyLoss(sigmoid=True), losses.SSIMLoss(3)],
    ids=lambda loss: type(loss).__name__,
)
def test_losses(device, loss):
    assert_computes(
        device, loss, drawn(2, 1, 16, 16, 16).requires_grad_(), labels(2, 1, 16, 16, 16), atol=1e-5, rtol=1e-4
    )


def test_windows_and_metrics(device):
    """The windows of a larger volume, put together with weights; Dice and the union of the result."""

    @torch.no_grad()
    def results(place):
        torch.manual_seed(7)
        model, volume = net().to(place).eval(), drawn(1, 1, 24, 20, 16).to(place)
        found = inferers.sliding_window_inference(volume, (16, 16, 16), 2, model, overlap=0.5, mode="gaussian")
        picked = networks.utils.one_hot(found.argmax(1, keepdim=True), 2)
        wanted = networks.utils.one_hot(labels(1, 1, 24, 20, 16).to(place), 2)
        dice = metrics.DiceMetric(include_background=False)
        dice(picked, wanted)
        return found, dice.aggregate(), metrics.compute_iou(picked, wanted)

    assert_same(results(device), results("cpu"), device, atol=1e-4, rtol=1e-3)


def test_transforms(device):
    """Of tensors that are there: what is drawn is drawn by NumPy, the same on both, and affine matrices are NumPy's."""

    def results(place):
        steps = transforms.Compose([
            transforms.ScaleIntensity(),
            transforms.Spacing(pixdim=(2.0, 1.5, 1.0)),
            transforms.RandAffine(prob=1.0, rotate_range=(0.2, 0.2, 0.2), padding_mode="zeros"),
            transforms.RandFlip(prob=1.0, spatial_axis=0),
            transforms.GaussianSmooth(1.0),
            transforms.Resize((12, 12, 12)),
            transforms.NormalizeIntensity(),
        ])  # fmt: skip
        steps.set_random_state(3)
        return steps(drawn(1, 16, 16, 16).to(place)).as_tensor()

    assert_same(results(device), results("cpu"), device, atol=1e-4, rtol=1e-3)
