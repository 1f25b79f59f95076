"""Small models of the kinds that people train: what test_models.py and test_compile_models.py take a step of."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def tokens(count: int, length: int = 13, rows: int = 3) -> Tensor:
    return torch.randint(1, count, (rows, length), generator=torch.Generator().manual_seed(1))


def images(size: int, channels: int = 3) -> Tensor:
    return torch.rand(4, channels, size, size, generator=torch.Generator().manual_seed(1))


def of_classes(model: nn.Module, size: int = 32, channels: int = 3) -> tuple[nn.Module, Tensor, Tensor]:
    """A model, its inputs and its targets."""
    return model, images(size, channels), torch.tensor([3, 1, 4, 1])


def of_tokens(model: nn.Module, count: int) -> tuple[nn.Module, Tensor, Tensor]:
    """The same of a model that predicts the next one."""
    return model, tokens(count)[:, :-1], tokens(count)[:, 1:]


def loss_of(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    call: Callable[[Tensor], Tensor] | None = None,
    half: torch.dtype | None = None,
) -> float:
    """Loss of a batch on the model's device; the gradients are in the parameters."""
    place = next(model.parameters()).device
    model.zero_grad()
    with torch.autocast(place.type, half, enabled=half is not None):
        y = (model if call is None else call)(inputs.to(place))
    if targets.is_floating_point():
        loss = F.mse_loss(y.float(), targets.to(place))
    else:
        loss = F.cross_entropy(y.float().flatten(0, -2), targets.to(place).flatten())
    loss.backward()
    return loss.item()


def assert_near(got: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    """Gradients by name; of a bias before a norm they are 0 but for rounding, so the largest one counts, too."""
    assert got.keys() == expected.keys()
    largest = max(t.float().norm() for t in expected.values())
    for name, wanted in expected.items():
        difference = (got[name].float() - wanted.float()).norm()
        assert difference <= tolerance * (wanted.float().norm() + 0.1 * largest), name


class ResidualBlock(nn.Module):
    """Two convolutions beside a shortcut, which is a projection where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x), inplace=True)


class ResNet(nn.Module):
    """Stem with a max pool, three stages or those of ResNet-18, a global average pool."""

    def __init__(self, width: int = 8, classes: int = 10, eighteen: bool = False) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        widths = [
            width,
            *([width << i for i in range(4) for _ in range(2)] if eighteen else (width, 2 * width, 4 * width)),
        ]
        self.stages = nn.Sequential(*(ResidualBlock(a, b, 1 if a == b else 2) for a, b in pairwise(widths)))
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, images: Tensor) -> Tensor:
        x = F.adaptive_avg_pool2d(self.stages(self.stem(images)), 1)
        return self.head(torch.flatten(x, 1))


class ViT(nn.Module):
    """Patches by a convolution, a class token, pre-norm encoder blocks with dropout that is off."""

    class Block(nn.Module):
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Tensor) -> Tensor:
            y = self.norm1(x)
            x = x + self.attention(y, y, y, need_weights=False)[0]
            return x + self.mlp(self.norm2(x))

    def __init__(self, image: int = 16, patch: int = 4, width: int = 32, heads: int = 4, classes: int = 10) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.Sequential(*(self.Block(width, heads) for _ in range(2)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


class Llama(nn.Module):
    """RMS norm, rotary positions, grouped-query attention, SwiGLU; a cache of keys and values for generation."""

    class Attention(nn.Module):
        def __init__(self, width: int, heads: int, groups: int) -> None:
            super().__init__()
            self.heads, self.groups, self.size = heads, groups, width // heads
            self.q = nn.Linear(width, width, bias=False)
            self.k = nn.Linear(width, groups * self.size, bias=False)
            self.v = nn.Linear(width, groups * self.size, bias=False)
            self.o = nn.Linear(width, width, bias=False)

        def forward(self, x: Tensor, angles: Tensor, cache: list[Tensor] | None) -> Tensor:
            batch, length, width = x.shape

            def split(y: Tensor, heads: int) -> Tensor:
                return y.view(batch, length, heads, self.size).transpose(1, 2)

            q = rotated(split(self.q(x), self.heads), angles)
            k = rotated(split(self.k(x), self.groups), angles)
            v = split(self.v(x), self.groups)
            if cache is not None:
                if cache:
                    k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
                cache[:] = [k, v]
            causal = True
            if length == 1:  # a new token sees all that came before it
                causal = False
            y = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=self.heads != self.groups)
            return self.o(y.transpose(1, 2).reshape(batch, length, width))

    class Block(nn.Module):
        def __init__(self, width: int, heads: int, groups: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
            self.attention = Llama.Attention(width, heads, groups)
            self.gate = nn.Linear(width, 3 * width, bias=False)
            self.up = nn.Linear(width, 3 * width, bias=False)
            self.down = nn.Linear(3 * width, width, bias=False)

        def forward(self, x: Tensor, angles: Tensor, cache: list[Tensor] | None) -> Tensor:
            x = x + self.attention(self.norm1(x), angles, cache)
            y = self.norm2(x)
            return x + self.down(F.silu(self.gate(y)) * self.up(y))

    def __init__(self, tokens: int = 50, width: int = 32, heads: int = 4, groups: int = 2, blocks: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(self.Block(width, heads, groups) for _ in range(blocks))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, tokens, bias=False)
        half = width // heads // 2
        self.register_buffer("frequencies", 10000.0 ** (-torch.arange(half) / half))

    def forward(self, tokens: Tensor, caches: list[list[Tensor]] | None = None) -> Tensor:
        past = caches[0][0].shape[2] if caches and caches[0] else 0
        positions = torch.arange(past, past + tokens.shape[1], device=tokens.device)
        angles = torch.outer(positions.float(), self.frequencies)
        x = self.embedding(tokens)
        for i, block in enumerate(self.blocks):
            x = block(x, angles, None if caches is None else caches[i])
        return self.head(self.norm(x))

    @torch.no_grad()
    def generate(self, tokens: Tensor, count: int, choose: Callable[[Tensor], Tensor]) -> Tensor:
        """The prompt and ``count`` more tokens; ``choose`` takes one for each row of logits."""
        caches: list[list[Tensor]] = [[] for _ in self.blocks]
        new = tokens
        for _ in range(count):
            new = choose(self(new, caches)[:, -1])
            tokens = torch.cat([tokens, new], dim=1)
        return tokens


def rotated(x: Tensor, angles: Tensor) -> Tensor:
    """Pairs of ``x`` (.., length, size), a half apart, turned by the angles (length, size / 2)."""
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


def greedy(logits: Tensor) -> Tensor:
    """The likeliest token."""
    return logits.argmax(dim=-1, keepdim=True)


def sampled(logits: Tensor, temperature: float = 0.8) -> Tensor:
    """A token by its probability: which of exponential variables with these rates is the least."""
    probabilities = F.softmax(logits / temperature, dim=-1)
    return (probabilities / torch.empty_like(probabilities).exponential_()).argmax(dim=-1, keepdim=True)


class Bert(nn.Module):
    """Post-norm encoder blocks with dropout everywhere, over tokens of which 0 is padding; the token of each place."""

    class Block(nn.Module):
        def __init__(self, width: int, heads: int, dropout: float) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(width, heads, dropout=dropout, batch_first=True)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.dropout = nn.Dropout(dropout)

        def forward(self, x: Tensor, padding: Tensor) -> Tensor:
            attended = self.attention(x, x, x, key_padding_mask=padding, need_weights=False)[0]
            x = self.norm1(x + self.dropout(attended))
            return self.norm2(x + self.dropout(self.mlp(x)))

    def __init__(
        self, tokens: int = 50, width: int = 32, heads: int = 4, blocks: int = 2, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(tokens, width, padding_idx=0)
        self.positions = nn.Embedding(64, width)
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(dropout)
        self.blocks = nn.ModuleList(self.Block(width, heads, dropout) for _ in range(blocks))
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, tokens))

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.norm(self.tokens(tokens) + self.positions(positions)))
        for block in self.blocks:
            x = block(x, tokens == 0)
        return self.head(x)


class Recurrent(nn.Module):
    """Tokens through two layers of an LSTM or a GRU; the next token of each."""

    def __init__(self, kind: type[nn.RNNBase], tokens: int = 30, width: int = 16, bidirectional: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.layers = kind(width, width, num_layers=2, batch_first=True, bidirectional=bidirectional)
        self.head = nn.Linear(width * (2 if bidirectional else 1), tokens)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layers(self.embedding(tokens))[0])


class UNet(nn.Module):
    """Two levels down and up, group norms, a skip at each level.

    ``nearest`` grows by nearest upsampling and a convolution, else by a transposed convolution.
    """

    def __init__(self, width: int = 8, nearest: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.nearest = nearest
        widths = [width, 2 * width, 4 * width]
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList(self.level(w, w) for w in widths[:-1])
        self.shrink = nn.ModuleList(nn.Conv2d(a, b, 3, 2, 1) for a, b in pairwise(widths))
        self.middle = self.level(widths[-1], widths[-1])
        self.grow = nn.ModuleList(
            nn.ConvTranspose2d(b, a, 2, 2) if nearest is None else nn.Conv2d(b, a, 3, padding=1)
            for a, b in pairwise(widths)
        )
        self.up = nn.ModuleList(self.level(2 * w, w) for w in widths[:-1])
        self.last = nn.Conv2d(width, 3, 1)

    @staticmethod
    def level(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.GroupNorm(4, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1))

    def forward(self, images: Tensor) -> Tensor:
        x, skips = self.first(images), []
        for level, shrink in zip(self.down, self.shrink, strict=True):
            skips.append(level(x))
            x = shrink(skips[-1])
        x = self.middle(x)
        for level, grow, skip in reversed(list(zip(self.up, self.grow, skips, strict=True))):
            x = grow(x if self.nearest is None else self.nearest(x))
            x = level(torch.cat([x, skip], dim=1))
        return self.last(x)
