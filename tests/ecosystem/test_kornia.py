"""Kornia: geometry, filters, colours, features and augmentations on the device, with gradients, against the CPU."""

import kornia
import pytest
import torch
from beside import Stays, assert_computes, assert_same
from kornia import augmentation


def images():
    return torch.rand(2, 3, 24, 32, generator=torch.Generator().manual_seed(1)).requires_grad_()


ANGLES = torch.tensor([20.0, -35.0])
FUNCTIONS = {
    "rotate": lambda x: kornia.geometry.rotate(x, ANGLES.to(x.device)),
    "warp": lambda x: kornia.geometry.warp_perspective(
        x, (torch.eye(3) + 0.002).repeat(2, 1, 1).to(x.device), (20, 20)
    ),
    "pyramid": lambda x: kornia.geometry.build_pyramid(x, 3),
    "gaussian": lambda x: kornia.filters.gaussian_blur2d(x, (5, 5), (1.2, 1.2)),
    "median": lambda x: kornia.filters.median_blur(x, (3, 3)),
    "sobel": kornia.filters.sobel,
    "canny": lambda x: kornia.filters.canny(x.detach())[1],
    "lab": kornia.color.rgb_to_lab,
    "hsv": kornia.color.rgb_to_hsv,
    "equalize": lambda x: kornia.enhance.equalize_clahe(x.detach(), grid_size=(2, 2)),
    "erosion": lambda x: kornia.morphology.erosion(x, torch.ones(3, 3, device=x.device)),
    "harris": lambda x: kornia.feature.harris_response(x[:, :1], 0.04),
    "ssim": lambda x: kornia.metrics.ssim(x, x.flip(0), 5),
}


@pytest.mark.parametrize("name", [pytest.param("rotate", marks=pytest.mark.sample), *list(FUNCTIONS)[1:]])
def test_functions(device, name):
    assert_computes(device, FUNCTIONS[name], images(), atol=1e-4, rtol=1e-3)


def test_augmentations_with_the_same_numbers(device):
    steps = augmentation.AugmentationSequential(
        augmentation.RandomAffine(20.0, p=1.0),
        augmentation.RandomHorizontalFlip(p=0.5),
        augmentation.ColorJitter(0.2, 0.2, 0.2, 0.1, p=1.0),
        augmentation.RandomErasing(p=1.0),
        data_keys=["input", "mask"],
    )
    with torch.no_grad():
        image = images()
        expected = steps(image, image[:, :1])
        with Stays(device):
            found = steps(image.to(device), image[:, :1].to(device), params=steps._params)
    assert_same(found, expected, device, atol=1e-4, rtol=1e-3)
