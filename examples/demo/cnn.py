"""A small convolutional network and the handwritten digits that it learns: real data, shipped with scikit-learn."""

from collections.abc import Iterator

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images in [0, 1] as (n, 1, 8, 8) and labels: for training (1347), then for testing (450)."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images / 16.0, labels, test_size=450, random_state=0, stratify=labels)
    train_x, test_x, train_y, test_y = (torch.tensor(part) for part in parts)
    return train_x.float().view(-1, 1, 8, 8), train_y, test_x.float().view(-1, 1, 8, 8), test_y


def batches(images: Tensor, labels: Tensor, steps: int, size: int = 64) -> Iterator[tuple[Tensor, Tensor]]:
    """The same shuffled batches on every call."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        chosen = torch.randint(len(images), (size,), generator=generator)
        yield images[chosen], labels[chosen]


def network() -> nn.Module:
    """About 38 thousand parameters, the same on every call."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Share of images that the model names right."""
    model.eval()
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()
