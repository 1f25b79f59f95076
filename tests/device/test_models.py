"""Whole models train on the device as on the CPU: 20 steps, losses within 1e-4 of the CPU's."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

STEPS = 20


class Residual(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, channels, out, stride):
        super().__init__()
        self.first = nn.Conv2d(channels, out, 3, stride=stride, padding=1, bias=False)
        self.second = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(out) for _ in range(2))
        self.shortcut = nn.Conv2d(channels, out, 1, stride=stride) if stride != 1 or channels != out else nn.Identity()

    def forward(self, x):
        y = self.norms[0](self.first(x)).relu()
        return (self.norms[1](self.second(y)) + self.shortcut(x)).relu()


class ResNet(nn.Module):
    """A stem, four residual blocks, a classifier."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
        self.blocks = nn.Sequential(Residual(8, 8, 1), Residual(8, 16, 2), Residual(16, 16, 1), Residual(16, 32, 2))
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        return self.head(F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1).flatten(1))


class LanguageModel(nn.Module):
    """An embedding, two LSTM layers, a tied output layer."""

    def __init__(self, words=50, size=24):
        super().__init__()
        self.embedding = nn.Embedding(words, size)
        self.lstm = nn.LSTM(size, size, num_layers=2, batch_first=True)
        self.head = nn.Linear(size, words)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.lstm(self.embedding(tokens))[0])


class Block(nn.Module):
    """Causal attention and a feed-forward network, each after a layer norm."""

    def __init__(self, size, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(2))
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.feed = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norms[0](x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.feed(self.norms[1](x))


class Transformer(nn.Module):
    """A small decoder with learned positions."""

    def __init__(self, words=50, size=32, length=16):
        super().__init__()
        self.words, self.positions = nn.Embedding(words, size), nn.Embedding(length, size)
        self.blocks = nn.Sequential(Block(size, 4), Block(size, 4))
        self.head = nn.Linear(size, words)

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.blocks(self.words(tokens) + self.positions(positions)))


class UNet(nn.Module):
    """Two levels down and up, with transposed convolutions and skip connections."""

    def __init__(self):
        super().__init__()

        def double(channels, out):
            return nn.Sequential(
                nn.Conv2d(channels, out, 3, padding=1),
                nn.GroupNorm(2, out),
                nn.SiLU(),
                nn.Conv2d(out, out, 3, padding=1),
                nn.InstanceNorm2d(out, affine=True),
                nn.SiLU(),
            )

        self.down = nn.ModuleList([double(1, 8), double(8, 16)])
        self.bottom = double(16, 32)
        self.up = nn.ModuleList([nn.ConvTranspose2d(32, 16, 2, stride=2), nn.ConvTranspose2d(16, 8, 2, stride=2)])
        self.merge = nn.ModuleList([double(32, 16), double(16, 8)])
        self.head = nn.Conv2d(8, 1, 1)

    def forward(self, x):
        skips = []
        for level in self.down:
            x = level(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.bottom(x)
        for up, merge, skip in zip(self.up, self.merge, reversed(skips), strict=True):
            x = merge(torch.cat([up(x), skip], 1))
        return self.head(x)


def images():
    return torch.randn(8, 3, 16, 16), torch.randint(0, 10, (8,))


def sentences():
    tokens = torch.randint(0, 50, (4, 17))
    return tokens[:, :-1], tokens[:, 1:]


def masks():
    x = torch.randn(2, 1, 16, 16)
    return x, (x.roll(1, -1) > 0).float()


def over_words(logits, target):
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


MODELS = {
    "resnet": (ResNet, images, F.cross_entropy, lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, weight_decay=1e-4)),
    "lstm language model": (LanguageModel, sentences, over_words, lambda p: torch.optim.Adam(p, lr=3e-3)),
    "transformer": (Transformer, sentences, over_words, lambda p: torch.optim.AdamW(p, lr=1e-3)),
    "u-net": (UNet, masks, F.binary_cross_entropy_with_logits, lambda p: torch.optim.RMSprop(p, lr=1e-3)),
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
        loss = loss_of(model(inputs), target)
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
